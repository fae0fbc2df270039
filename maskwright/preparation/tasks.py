"""The tasks of the stages: read a block, find duplicates, encode a block, finish the folder.

`read` repairs, cleans and selects the documents of a block. It writes the cleaned texts, a key and
fingerprint of each, their MinHash signatures, and the candidate pieces for the tokenizer's sample.

`exact`, `near` and `connect` find duplicates among all blocks; each task owns a range of hashes.
The duplicate with the smallest key (block, index) is kept. Taking the smallest is commutative, so
the result does not depend on the number or order of tasks.

`vocabulary` chooses the splits and makes the tokenizer.

`encode` writes the kept documents of a block to one shard per split, and `finish` adds up the task
reports in the manifest. Its time and memory grow with the number of blocks, not with the text.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.corpus.documents import fingerprint_pair
from maskwright.corpus.sources import read_source
from maskwright.files import JsonObject, replacing_folder, write_json, writing_file
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import (
    SELECTION_NAME,
    describe_config,
    fingerprint_blocks,
    identify_block,
)
from maskwright.preparation.split import Cut, Splits, fix_splits
from maskwright.preparation.work import (
    BANDS,
    BEFORE_MENDING,
    BLOCK_BITS,
    CONNECT,
    DROPS,
    ENCODE,
    EXACT,
    KEYS,
    NEAR,
    PAIRS,
    PIECES,
    READ,
    SAMPLED,
    SEPARATOR,
    SIGNATURES,
    TEXTS,
    VOCABULARY,
    Facts,
    Leaders,
    Part,
    Plan,
    Records,
    Values,
    Work,
    add_counts,
    cut_range,
    first_key,
)
from maskwright.selection.contamination import EvaluationTexts
from maskwright.selection.near_duplicates import (
    BAND_BITS,
    NUM_HASHES,
    Signer,
    connect,
    hash_bands,
    to_pairs,
)
from maskwright.selection.selector import Kept, Selector, Tally
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
from maskwright.tokenizer.extension import extend_tokenizer, list_longest, measure_extension
from maskwright.tokenizer.learning import draw_pieces
from maskwright.tokenizer.lost import Lost, count_lost, take_probe
from maskwright.tokenizer.token_text import cut_sentences
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, describe_words, train_tokenizer

EVALUATION_NAME = "evaluation.npz"
_LEVEL = 1  # zstandard level; compression then takes 1 % of the stage's time
_AT_ONCE, _CHARACTERS_AT_ONCE = 1_000, 4_000_000  # documents in a batch
_SAMPLE_SURPLUS = 2  # in shares of the sample, the candidates of a block: others may lose text
_ALL = 1 << 64
_INDEX = np.uint64(first_key(1) - 1)
_PAIRS_AT_ONCE = 1 << 16
_MAX_MEASURED_CHARACTERS = 4_000_000  # of held-out text
_NEVER = np.uint64((1 << 64) - 1)
COUNTS = "counts"  # suffix of files with the frequency of each id in a block's training text
VALID_FRACTION_KEY = "valid_fraction"  # the fraction that was chosen, in the manifest's `source`
EXTENSION_KEY = "tokenizer_extension"
LOST_KEY = "lost_characters"  # `Lost` as a mapping, in the manifest's `source`
HELD_OUT = "in corpus.valid_text"  # a reason for dropping a document
CUT = "document cut in two to hold out its end"
IN_SENTENCES = "document cut into sentences"
_SIZES = ("num_characters", "num_bytes", "num_words")  # of the text of a split


class BlockReader:
    """Reader of blocks, loaded once per process."""

    def __init__(self, work: Work) -> None:
        self.work, self.plan = work, work.plan
        stored = work.folder / EVALUATION_NAME
        evaluation = EvaluationTexts.load(stored) if stored.exists() else None
        self.select = Selector(self.plan.config.select, evaluation)

    def __call__(self, number: int) -> Facts:
        """Read a block; return the counts of documents read, dropped and repaired."""
        counts, tally = Counter[str](), Tally()
        with ExitStack() as stack:
            files = _BlockFiles(stack, self.work, number, self.select.sign)
            for batch in self._keep(number, counts, tally):
                files.write(batch)
        return {
            "identity": identify_block(self.plan.blocks[number]),
            "num_documents": files.num_documents,
            "num_bytes": files.num_bytes,
            "counts": counts + tally.dropped + tally.repaired,
            "tally": tally.to_plain(),
        }

    def _keep(self, number: int, counts: Counter[str], tally: Tally) -> Iterator[list[Kept]]:
        batch, size, cleans_only = list[Kept](), 0, self.work.is_held_out(number)
        for source in self.plan.blocks[number].sources:
            for document in read_source(source, self.plan.config.corpus, counts):
                if (kept := self.select(document.text, tally, cleans_only)) is not None:
                    batch.append(kept)
                    size += len(kept.text)
                if len(batch) >= _AT_ONCE or size >= _CHARACTERS_AT_ONCE:
                    yield batch
                    batch, size = [], 0
        yield batch


class _BlockFiles:
    """The files of a block, open until the `stack` is closed."""

    def __init__(self, stack: ExitStack, work: Work, number: int, sign: Signer | None) -> None:
        import zstandard  # late: training from shards needs none

        self.num_documents = self.num_bytes = 0
        self._plan, self._sign, self._first = work.plan, sign, first_key(number)
        path, enter = partial(work.path, READ, number), stack.enter_context
        self._texts, self._pieces = (
            enter(zstandard.ZstdCompressor(_LEVEL).stream_writer(enter(writing_file(path(name)))))
            for name in (TEXTS, PIECES)
        )
        self._sampled = enter(writing_file(path(SAMPLED.suffix)))
        share = work.plan.sample_share * work.plan.blocks[number].num_bytes  # 0 of a stream
        most = share or work.plan.config.tokenizer.sample_megabytes * 1e6
        self._most_sampled, self._num_sampled, self._bound = _SAMPLE_SURPLUS * most, 0.0, 2**64
        self._keys = enter(work.writing(READ, number, KEYS))
        if sign is not None:
            self._signatures = enter(writing_file(path(SIGNATURES.suffix)))
            self._bands = enter(work.writing(READ, number, BANDS))

    def write(self, batch: list[Kept]) -> None:
        """Write the next documents."""
        encoded = [kept.text.encode() for kept in batch]
        self._texts.write(b"".join(text + SEPARATOR for text in encoded))
        keys = self._first + self.num_documents, self._first + self.num_documents + len(batch)
        records = list[tuple[int, ...]]()
        for key, kept, text in zip(range(*keys), batch, encoded, strict=True):
            fingerprint, second = fingerprint_pair(kept.text)
            sizes = len(kept.text), len(text)
            records.append((fingerprint, second, key, *sizes))
            if kept.original is not None:
                before = fingerprint_pair(kept.original)
                records.append((*before, key + int(BEFORE_MENDING), *sizes))
            self._write_sample(kept.text, fingerprint, key)
        self._keys.add(np.array(records, KEYS.dtype))
        if self._sign is not None:
            signatures = self._sign([kept.hashes for kept in batch])
            self._signatures.write(signatures.tobytes())
            similarity = self._plan.config.select.near_duplicates
            self._bands.add(hash_bands(signatures, similarity, keys[0]))
        self.num_documents += len(batch)
        self.num_bytes += sum(map(len, encoded))

    def _write_sample(self, text: str, fingerprint: int, key: int) -> None:
        """Write the candidates for the tokenizer's sample: pieces with the smallest random keys."""
        for drawn, piece in draw_pieces(text, fingerprint, self._plan.seed):
            if drawn < self._bound:
                content = piece.encode()
                record = drawn, fingerprint, key, len(content)
                self._sampled.write(np.array(record, SAMPLED.dtype).tobytes())
                self._pieces.write(content + SEPARATOR)
                self._num_sampled += len(content)
                while self._num_sampled > self._most_sampled:  # half of these keys are smaller
                    self._num_sampled, self._bound = self._num_sampled / 2, self._bound // 2


def find_exact(work: Work, stage: str, number: int) -> Facts:
    """Write the documents to drop in range `number` of the fingerprints; return how many."""
    dropped, whole = 0, cut_range(0, _ALL, number, work.plan.num_ranges)
    with work.writing(stage, number, DROPS) as writer:
        parts = work.read_range(READ, KEYS, *whole)
        for keys, by in _list_leaders(parts, "fingerprint", "second"):
            goes = _find_copies(work.plan, keys, by)
            writer.add(_make_drops(keys[goes] & ~BEFORE_MENDING, by[goes]))
            dropped += int(goes.sum())
    return {"dropped": dropped}


def _list_leaders(
    parts: Iterable[Part], first: str, second: str
) -> Iterator[tuple[Values, Values]]:
    """Yield the keys of records, and for each the smallest key with the same two fields."""
    for part in parts:
        leaders = Leaders()
        for records in part():
            leaders.add(records[first], records[second], records["key"])
        for records in part():
            yield records["key"], leaders.find(records[first], records[second])


def _make_drops(keys: Values, by: Values) -> Records:
    return np.rec.fromarrays([keys, by], dtype=DROPS.dtype)


def _find_copies(plan: Plan, keys: Values, by: Values) -> NDArray[np.bool_]:
    """Return which documents are dropped, given for each the duplicate that is kept.

    The original of a repaired text is only compared with held-out documents.
    """
    num_held_out = np.uint64(first_key(plan.num_held_out))
    is_copy = (by < keys) & (by < BEFORE_MENDING)
    goes = is_copy & (by < num_held_out) & (keys >= num_held_out)
    return goes | (is_copy & (keys < BEFORE_MENDING)) if plan.config.corpus.deduplicate else goes


def find_near(work: Work, stage: str, number: int) -> Facts:
    """Write the similar pairs among documents that share a hash in one band and one range; return
    how many pairs were compared and how many are similar.
    """
    compared, similar, ranges = 0, 0, work.plan.num_ranges
    band, part = divmod(number, ranges)
    whole = cut_range(band << BAND_BITS, (band + 1) << BAND_BITS, part, ranges)
    with work.writing(stage, number, PAIRS) as writer:
        for keys, by in _list_leaders(work.read_range(READ, BANDS, *whole), "value", "value"):
            met = np.flatnonzero(by != keys)
            for start in range(0, len(met), _PAIRS_AT_ONCE):
                some = met[start : start + _PAIRS_AT_ONCE]
                one, other = by[some], keys[some]
                share = (_load(work, one) == _load(work, other)).mean(axis=1)
                alike = share >= work.plan.config.select.near_duplicates
                writer.add(to_pairs(one[alike], other[alike]))
                compared, similar = compared + len(some), similar + int(alike.sum())
    return {"compared": compared, "similar": similar}


def _load(work: Work, keys: Values) -> NDArray[np.uint32]:
    loaded = np.empty((len(keys), NUM_HASHES), np.uint32)
    order = np.argsort(keys)
    blocks, starts = np.unique(keys[order] >> BLOCK_BITS, return_index=True)
    for block, where in zip(blocks, np.split(order, starts[1:]), strict=True):
        loaded[where] = work.read(READ, int(block), SIGNATURES)[keys[where] & _INDEX]
    return loaded


def connect_range(work: Work, stage: str, number: int) -> Facts:
    """Run one round of `connect` on range `number`: write the pairs for the next round, and the
    documents known so far to be dropped.
    """
    round_number, changed = int(stage.rpartition("-")[2]), False
    before = f"{CONNECT}-{round_number - 1}" if round_number > 1 else NEAR
    whole = cut_range(0, _ALL, number, work.plan.num_ranges)
    with work.writing(stage, number, PAIRS) as pairs, work.writing(stage, number, DROPS) as drops:
        for part in work.read_range(before, PAIRS, *whole):
            if chunks := list(part()):
                joined = connect(np.concatenate(chunks))
                changed |= joined.changed
                pairs.add(joined.pairs)
                drops.add(_make_drops(joined.nodes, joined.least))
    return {"changed": changed}


def make_vocabulary(work: Work, stage: str, number: int) -> Facts:
    """Choose the splits and write the tokenizer to ``WORK/tokenizer``; return the splits, the
    measures of an extension, lines to report, and some of the new tokens.
    """
    splits, start = fix_splits(work), time.monotonic()
    config, seed = work.plan.config.tokenizer, work.plan.seed
    described: dict[str, Any] = {}
    lines, new = list[str](), list[str]()
    if config.path is None:
        tokenizer = train_tokenizer(_sample(work, splits), config, seed)
        seconds = time.monotonic() - start
        lines += [f"tokenizer: {tokenizer.vocab_size:,} tokens, {seconds:.1f} seconds"]
        lines += filter(None, [describe_shortage(tokenizer, config), describe_words(tokenizer)])
    elif config.extend_vocab or config.replace_vocab:
        base, sample = Tokenizer.load(config.path), _sample(work, splits)
        if config.replace_vocab:
            asked = replace(config, vocab_size=config.replace_vocab)
            tokenizer = train_tokenizer(sample, asked, seed)
            lines += filter(None, [describe_shortage(tokenizer, asked)])
        else:
            tokenizer = extend_tokenizer(base, sample, config, seed)
        seconds = time.monotonic() - start
        effect, told = measure_extension(base, tokenizer, _list_held_out(work, splits))
        lines += [f"making the tokenizer took {seconds:.1f} seconds", *told]
        new = list_longest(base, tokenizer)
        described = {"base": config.path, "replaces": bool(config.replace_vocab), **effect}
    else:
        tokenizer = Tokenizer.load(config.path)
        # Before hours of encoding; the counts of the whole text are checked at the end.
        count_lost(tokenizer, take_probe(_sample(work, splits))).check(is_trained=False)
    with replacing_folder(work.folder / TOKENIZER_NAME) as temporary:
        tokenizer.save(temporary)
    return {"splits": asdict(splits), "extension": described, "lines": lines, "new": new}


def _sample(work: Work, splits: Splits) -> Iterator[str]:
    """Yield the pieces of training text with the smallest random keys, in text order.

    The training part of a document that is cut in two is yielded whole.
    """
    blocks = range(len(work.plan.blocks))
    pieces = np.concatenate([work.read(READ, block, SAMPLED) for block in blocks])
    splits_of = map(splits.choose, pieces["fingerprint"].tolist())
    stays = pieces["key"] >= np.uint64(first_key(work.plan.num_held_out))
    stays &= np.fromiter((split == "train" for split in splits_of), np.bool_, len(pieces))
    if splits.cut is not None:
        yield splits.divide(work.read_text(splits.cut.block, splits.cut.index))[0][1]
        stays &= pieces["fingerprint"] != np.uint64(splits.cut.fingerprint)
    for dropped in work.list_dropped():
        stays &= ~np.isin(pieces["key"], dropped)
    order = np.argsort(np.where(stays, pieces["drawn"], _NEVER), kind="stable")
    most = work.plan.config.tokenizer.sample_megabytes * 1e6
    stays[order] &= np.cumsum(pieces["size"][order], dtype=np.uint64) <= most
    stored = chain.from_iterable(work.read_texts(block, PIECES) for block in blocks)
    yield from compress(stored, stays.tolist())


def _list_held_out(work: Work, splits: Splits) -> Iterator[str]:
    num_characters = 0
    for block in range(len(work.plan.blocks)):
        for _, _, parts in splits.divide_block(work, block):
            for split, part in parts:
                if split == "valid":
                    yield part
                    num_characters += len(part)
            if num_characters >= _MAX_MEASURED_CHARACTERS:
                return


class BlockEncoder:
    """Encoder of blocks to shards, loaded once per process."""

    def __init__(self, work: Work) -> None:
        self.work, self.plan = work, work.plan
        self.tokenizer = Tokenizer.load(work.folder / TOKENIZER_NAME)
        splits = work.facts(VOCABULARY)["splits"]
        self.splits = Splits(splits["valid_fraction"], splits["cut"] and Cut(**splits["cut"]))
        self._cuts = self.plan.config.corpus.documents == "sentences"

    def __call__(self, number: int) -> Facts:
        """Write the shards ``WORK/SPLIT/NNNNN.*``; return their description and the drop counts."""
        counts, tally, vocab_size = Counter[str](), Tally(), self.tokenizer.vocab_size
        unigrams, sizes = np.zeros(vocab_size, np.uint32), defaultdict[str, Counter[str]](Counter)
        lost = Lost()
        with ExitStack() as stack:
            shards: dict[str, ShardWriter] = {}
            for text, drop, parts in self.splits.divide_block(self.work, number):
                if drop is not None:
                    stage, by = drop
                    exact = HELD_OUT if self.work.is_held_out(by) else "duplicate"
                    tally.drop(exact if stage == EXACT else "near duplicate", text)
                elif self.plan.config.select.does_anything:
                    tally.keep(text)
                counts[CUT] += len(parts) > 1
                if self._cuts:  # only now: duplicates, selection and splits are of whole documents
                    counts[IN_SENTENCES] += bool(parts)
                    parts = [(split, one) for split, part in parts for one in cut_sentences(part)]
                for split, part in parts:
                    encoded = self.tokenizer.encode(part)
                    lost += count_lost(self.tokenizer, [part])
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
                    measured = len(part), len(part.encode()), len(part.split())
                    sizes[split].update(dict(zip(_SIZES, measured, strict=True)))
            infos = {split: asdict(shard.close()) for split, shard in shards.items()}
        if "train" in infos:
            write_array(self.work.path(ENCODE, number, COUNTS), unigrams, shared=True)
        described = {split: {"shard": info, **sizes[split]} for split, info in infos.items()}
        return {
            "splits": described,
            "counts": counts + tally.dropped,
            "tally": tally.to_plain(),
            LOST_KEY: asdict(lost),
        }


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
        add_lost(encoded).check(work.plan.config.tokenizer.trains)
        _move_folders(work)
        write_manifest(work.out, _make_manifest(work, read, encoded))
    return {}


def add_lost(encoded: Iterable[Facts]) -> Lost:
    """Return the lost characters of all blocks."""
    return sum((Lost(**facts[LOST_KEY]) for facts in encoded), Lost())


def _move_folders(work: Work) -> None:
    for name in (TOKENIZER_NAME, *SPLITS):
        made, place = work.folder / name, work.out / name
        if made.is_dir() and not place.exists():
            made.rename(place)
        for stray in place.glob(".*"):
            stray.unlink()


def _make_manifest(work: Work, read: Sequence[Facts], encoded: Sequence[Facts]) -> Manifest:
    tokenizer, plan = Tokenizer.load(work.out / TOKENIZER_NAME), work.plan
    facts = work.facts(VOCABULARY)
    source = describe_source(plan.paths, plan.config, plan.seed)
    if not plan.config.corpus.valid_text:
        source[VALID_FRACTION_KEY] = facts["splits"]["valid_fraction"]
    if facts["extension"]:
        source[EXTENSION_KEY] = facts["extension"]
    source[LOST_KEY] = asdict(add_lost(encoded))
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
    texts = {name: sum(each[name] for each in found) for name in _SIZES}
    return SplitInfo(
        num_tokens=sum(shard.num_tokens for shard in shards),
        num_documents=sum(shard.num_documents for shard in shards),
        shards=shards,
        **texts,
    )
