"""From the shards of all blocks to a prepared folder: what the tasks reported is added up.

Work and memory grow with the number of blocks, not with the text.
"""

from collections.abc import Sequence

import numpy as np

from maskwright.files import JsonObject, flush, write_json
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.encode import COUNTS
from maskwright.preparation.folder import SELECTION_NAME
from maskwright.preparation.input_identity import describe_config, fingerprint_blocks
from maskwright.preparation.work import ENCODE, READ, VOCABULARY, Facts, Work, add_counts
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
from maskwright.shards.writer import write_array
from maskwright.tokenizer.tokenizer import Tokenizer

VALID_FRACTION_KEY = "valid_fraction"  # in the manifest's description of its source: as chosen
EXTENSION_KEY = "tokenizer_extension"


def describe_source(paths: Sequence[str], config: PrepareConfig, seed: int) -> JsonObject:
    """Return what a manifest says of text and configuration, as far as it is known ahead."""
    return {"paths": list(paths), "seed": seed, **describe_config(config)}


class Finisher:
    """Moves tokenizer and shards into the prepared folder and writes its manifest, last of all."""

    def __init__(self, work: Work) -> None:
        self.work, self.plan = work, work.plan

    def __call__(self, number: int) -> Facts:
        """Finish the folder; one that is finished gets what selection counted alone."""
        read, encoded = list(self.work.all_facts(READ)), list(self.work.all_facts(ENCODE))
        if self.plan.config.select.does_anything:
            write_json(self.work.out / SELECTION_NAME, self._add_tallies(read, encoded).to_plain())
        if not (self.work.out / MANIFEST_NAME).is_file():
            self._move_files()
            write_manifest(self.work.out, self._describe(read, encoded))
        return {}

    def _move_files(self) -> None:
        """Move whole files one by one: tasks that were killed left others in the same folders."""
        for name in (TOKENIZER_NAME, *SPLITS):
            made, out = self.work.folder / name, self.work.out / name
            if made.is_dir():
                out.mkdir(exist_ok=True)
                for path in made.glob("[!.]*"):
                    path.replace(out / path.name)
                flush(out)

    def _describe(self, read: Sequence[Facts], encoded: Sequence[Facts]) -> Manifest:
        tokenizer, config = Tokenizer.load(self.work.out / TOKENIZER_NAME), self.plan.config
        facts = self.work.facts(VOCABULARY)
        source = describe_source(self.plan.paths, config, self.plan.seed)
        if not config.corpus.valid_text:
            source[VALID_FRACTION_KEY] = facts["splits"]["valid_fraction"]
        if facts["extension"]:
            source[EXTENSION_KEY] = facts["extension"]
        identities = [each["identity"] for each in read]
        counts = add_counts([self.plan.ignored, *(each["counts"] for each in (*read, *encoded))])
        return Manifest(
            vocab_size=tokenizer.vocab_size,
            dtype=choose_dtype(tokenizer.vocab_size),
            tokenizer_fingerprint=tokenizer.fingerprint,
            fingerprint=fingerprint_blocks(
                identities, self.plan.num_held_out, config, self.plan.seed
            ),
            source=source,
            splits={split: _add_shards(split, encoded) for split in SPLITS},
            unigram_counts=self._count_unigrams(tokenizer.vocab_size),
            dropped={reason: count for reason, count in sorted(counts.items()) if count},
        )

    def _count_unigrams(self, vocab_size: int) -> FileInfo:
        counts = np.zeros(vocab_size, np.uint64)
        for number in range(len(self.plan.blocks)):
            path = self.work.path(ENCODE, number, COUNTS)
            if path.exists():
                counts += np.fromfile(path, np.uint32)
        return write_array(self.work.out / COUNTS_NAME, counts.astype("<u8"))

    def _add_tallies(self, read: Sequence[Facts], encoded: Sequence[Facts]) -> Tally:
        tally, later = Tally(), Tally()
        for number in range(self.plan.num_held_out, len(self.plan.blocks)):
            tally.add(Tally.from_plain(read[number]["tally"]))
            later.add(Tally.from_plain(encoded[number]["tally"]))
        tally.follow(later)
        return tally


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
