"""The last stages: encode the kept documents of each block to one shard per split, and add up the
task reports in the manifest.

Time and memory of adding up grow with the number of blocks, not with the text.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict

import numpy as np

from maskwright.files import JsonObject, write_json
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import SELECTION_NAME
from maskwright.preparation.input_identity import describe_config, fingerprint_blocks
from maskwright.preparation.vocabulary import Splits
from maskwright.preparation.work import ENCODE, EXACT, READ, VOCABULARY, Facts, Work, add_counts
from maskwright.selection.tally import Tally
from maskwright.shards.manifest import (
    COUNTS_NAME,
    MANIFEST_NAME,
    SPLITS,
    TOKENIZER_NAME,
    FileInfo,
    Manifest,
    SplitInfo,
    choose_dtype,
    parse_shard,
    write_manifest,
)
from maskwright.shards.writer import ShardWriter, write_array
from maskwright.tokenizer.sentence_ends import cut_sentences
from maskwright.tokenizer.tokenizer import Tokenizer

COUNTS = "counts"  # suffix of files with the frequency of each id in a block's training text
VALID_FRACTION_KEY = "valid_fraction"  # the fraction that was chosen, in the manifest's `source`
EXTENSION_KEY = "tokenizer_extension"
HELD_OUT = "in corpus.valid_text"  # a reason for dropping a document
CUT = "document cut in two to hold out its end"
IN_SENTENCES = "document cut into sentences"


class BlockEncoder:
    """Encoder of blocks to shards, loaded once per process."""

    def __init__(self, work: Work) -> None:
        self.work, self.plan = work, work.plan
        self.tokenizer = Tokenizer.load(work.folder / TOKENIZER_NAME)
        self.splits = Splits(**work.facts(VOCABULARY)["splits"])
        self._cuts = self.plan.config.corpus.documents == "sentences"

    def __call__(self, number: int) -> Facts:
        """Write the shards ``WORK/SPLIT/NNNNN.*``; return their description and the drop counts."""
        counts, tally, vocab_size = Counter[str](), Tally(), self.tokenizer.vocab_size
        unigrams, sizes = np.zeros(vocab_size, np.uint32), defaultdict[str, Counter[str]](Counter)
        with ExitStack() as stack:
            shards: dict[str, ShardWriter] = {}
            for text, drop, parts in self.splits.divide_block(self.work, number):
                if drop is not None:
                    tally.drop(self._explain(*drop), text)
                elif self.plan.config.select.does_anything:
                    tally.keep(text)
                counts[CUT] += len(parts) > 1
                if self._cuts:  # only now: duplicates, selection and splits are of whole documents
                    counts[IN_SENTENCES] += bool(parts)
                    parts = [(split, one) for split, part in parts for one in cut_sentences(part)]
                for split, part in parts:
                    encoded = self.tokenizer.encode(part)
                    if not len(encoded.ids):
                        counts["without tokens"] += 1
                        continue
                    if split not in shards:
                        folder, dtype = self.work.folder / split, choose_dtype(vocab_size)
                        shard = ShardWriter(folder, f"{number:05d}", dtype)
                        shards[split] = stack.enter_context(shard)
                    shards[split].add(encoded.ids, encoded.word_starts)
                    if split == "train":
                        np.add.at(unigrams, encoded.ids, 1)
                    sizes[split]["num_characters"] += len(part)
                    sizes[split]["num_bytes"] += len(part.encode())
                    sizes[split]["num_words"] += len(part.split())
            infos = {split: asdict(shard.close()) for split, shard in shards.items()}
        if "train" in infos:
            write_array(self.work.path(ENCODE, number, COUNTS), unigrams, shared=True)
        described = {split: {"shard": info, **sizes[split]} for split, info in infos.items()}
        return {"splits": described, "counts": counts + tally.dropped, "tally": tally.to_plain()}

    def _explain(self, stage: str, by: int) -> str:
        if stage != EXACT:
            return "near duplicate"
        return HELD_OUT if self.work.is_held_out(by) else "duplicate"


def describe_source(paths: Sequence[str], config: PrepareConfig, seed: int) -> JsonObject:
    """Return the manifest's `source` as known before reading: paths, seed and configuration."""
    return {"paths": list(paths), "seed": seed, **describe_config(config)}


def finish_folder(work: Work, stage: str, number: int) -> Facts:
    """Move tokenizer and shards into the prepared folder, then write its manifest. A finished
    folder only gets the selection counts.
    """
    read, encoded = list(work.all_facts(READ)), list(work.all_facts(ENCODE))
    if work.plan.config.select.does_anything:
        tally = Tally()
        for facts in (*read[work.plan.num_held_out :], *encoded[work.plan.num_held_out :]):
            tally.add(Tally.from_plain(facts["tally"]))
        write_json(work.out / SELECTION_NAME, tally.to_plain())
    if not (work.out / MANIFEST_NAME).is_file():
        _move_folders(work)
        write_manifest(work.out, _describe(work, read, encoded))
    return {}


def _move_folders(work: Work) -> None:
    """Move the folders that are not moved yet, without the files that killed tasks left."""
    for name in (TOKENIZER_NAME, *SPLITS):
        made, place = work.folder / name, work.out / name
        if made.is_dir() and not place.exists():
            made.rename(place)
        for stray in place.glob(".*"):
            stray.unlink()


def _describe(work: Work, read: Sequence[Facts], encoded: Sequence[Facts]) -> Manifest:
    tokenizer, plan = Tokenizer.load(work.out / TOKENIZER_NAME), work.plan
    facts = work.facts(VOCABULARY)
    source = describe_source(plan.paths, plan.config, plan.seed)
    if not plan.config.corpus.valid_text:
        source[VALID_FRACTION_KEY] = facts["splits"]["valid_fraction"]
    if facts["extension"]:
        source[EXTENSION_KEY] = facts["extension"]
    identities = [each["identity"] for each in read]
    counts = add_counts([plan.ignored, *(each["counts"] for each in (*read, *encoded))])
    return Manifest(
        vocab_size=tokenizer.vocab_size,
        dtype=choose_dtype(tokenizer.vocab_size),
        tokenizer_fingerprint=tokenizer.fingerprint,
        fingerprint=fingerprint_blocks(identities, plan.num_held_out, plan.config, plan.seed),
        source=source,
        splits={split: _add_shards(split, encoded) for split in SPLITS},
        unigram_counts=_count_unigrams(work, tokenizer.vocab_size),
        dropped={reason: count for reason, count in sorted(counts.items()) if count},
    )


def _count_unigrams(work: Work, vocab_size: int) -> FileInfo:
    counts = np.zeros(vocab_size, np.uint64)
    for number in range(len(work.plan.blocks)):
        path = work.path(ENCODE, number, COUNTS)
        if path.exists():
            counts += np.fromfile(path, np.uint32)
    return write_array(work.out / COUNTS_NAME, counts.astype("<u8"))


def _add_shards(split: str, encoded: Sequence[Facts]) -> SplitInfo:
    found = [facts["splits"][split] for facts in encoded if split in facts["splits"]]
    shards = tuple(parse_shard(each["shard"]) for each in found)
    return SplitInfo(
        num_tokens=sum(shard.num_tokens for shard in shards),
        num_documents=sum(shard.num_documents for shard in shards),
        num_characters=sum(each["num_characters"] for each in found),
        num_bytes=sum(each["num_bytes"] for each in found),
        num_words=sum(each["num_words"] for each in found),
        shards=shards,
    )
