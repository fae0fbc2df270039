"""Selection before tokenizing: documents go through their steps on all cores and are written down.

Near duplicates are found afterwards, among all that is left, by the signatures that the first pass
wrote beside its parts; a second pass leaves them out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.corpus.fingerprints import FingerprintSet
from maskwright.corpus.progress import ReadProgress
from maskwright.corpus.readers.dispatch import read_source
from maskwright.corpus.sources import find_sources
from maskwright.corpus.stream import fingerprint_held_out
from maskwright.errors import CorpusError
from maskwright.files import naming_file, read_json, write_json
from maskwright.formatting import count_noun
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.engines import Engine
from maskwright.preparation.folder import SELECTED_NAME, SELECTION_NAME, Report
from maskwright.preparation.parts import MOST_CHARACTERS, PartFolder
from maskwright.selection.config import SelectionConfig
from maskwright.selection.contamination import EvaluationTexts, read_evaluation
from maskwright.selection.near_duplicates import (
    NUM_HASHES,
    Signatures,
    Signer,
    find_near_duplicates,
)
from maskwright.selection.selector import Kept, Selector
from maskwright.selection.tally import Tally
from maskwright.selection.words import Hashes
from maskwright.shards.writer import write_array

_PART_CHARACTERS = 16 << 20
_NEAR_DUPLICATE = "near duplicate"
_MAX_TALLY_BYTES = 16 << 20


@dataclass(frozen=True)
class Part:
    """Documents that are worked on together."""

    index: int
    documents: list[str]


@dataclass(frozen=True)
class Duplicates:
    """Which documents of a part are near duplicates of earlier ones."""

    index: int
    is_duplicate: NDArray[np.bool_]


def check_steps(config: SelectionConfig) -> None:
    """Raise if a step of selection cannot be taken, before hours are spent on reading.

    Raises:
        MissingPackageError: a package that a step needs is not installed.
        ConfigError: a language that is not known.
    """
    if config.does_anything:
        Selector(config, None)
    if config.near_duplicates:
        Signer()


def write_down_selected(
    paths: Sequence[str],
    out: Path,
    config: PrepareConfig,
    counts: Counter[str],
    engine: Engine,
    report: Report,
) -> list[str]:
    """Return a folder below `out` with what selection keeps of the text that `paths` name.

    ``OUT/selection.json`` tells what it dropped and shows some of it. What ``corpus.valid_text``
    names is not selected from.

    Raises:
        CorpusError: text that cannot be read, none that is kept, or a package that is missing.
    """
    folder = out / SELECTED_NAME
    # Parts of which nobody asked for the languages are made again for a report.
    name = "identified" if config.select.identifies_languages else "candidates"
    candidates = PartFolder(folder / name, config.corpus.text_field)
    candidates.folder.mkdir(parents=True, exist_ok=True)
    evaluation = _read_evaluation(config.select, report)
    # What is mended is no longer known by its fingerprint when the text is split.
    held_out = fingerprint_held_out(config.corpus) if config.select.changes_texts else None
    read: Counter[str] = Counter()
    indices: list[int] = []
    progress = ReadProgress()
    parts = _gather(_read_documents(paths, config, read, progress))
    undone = progress.hand_out(candidates.pass_over_written(parts, indices))
    begin = partial(PartSelector, candidates, config.select, evaluation, held_out)
    for number, _ in enumerate(engine.work_through(undone, begin, "the text"), start=1):
        progress.finish()
        report(f"{count_noun(number, 'part')} selected from{progress}")
    tally, kept = _sum_up(candidates, indices), candidates
    if tally.kept and config.select.near_duplicates:
        kept = PartFolder(folder / "kept", config.corpus.text_field)
        similarity = config.select.near_duplicates
        _drop_near_duplicates(candidates, kept, indices, similarity, engine, report)
        tally.follow(_sum_up(kept, indices))
    for counted in (read, tally.dropped, tally.repaired):
        counts.update(counted)
    write_json(out / SELECTION_NAME, tally.to_plain())
    if not tally.kept:
        reasons = ", ".join(f"{reason}: {n:,}" for reason, n in tally.dropped.most_common())
        raise CorpusError(
            f"selection keeps none of {tally.read:,} documents ({reasons}). Loosen --select.*; "
            f"{out / SELECTION_NAME} shows some of them."
        )
    report(f"selection: {tally.kept:,} of {tally.read:,} documents kept")
    return [str(kept.folder)]


def read_tally(out: Path) -> Tally | None:
    """Return what selection counted for the folder `out`; None if that is missing or damaged."""
    try:
        return Tally.from_plain(read_json(out / SELECTION_NAME, _MAX_TALLY_BYTES))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read_documents(
    paths: Sequence[str], config: PrepareConfig, counts: Counter[str], progress: ReadProgress
) -> Iterator[str]:
    longest = min(config.corpus.max_document_characters, MOST_CHARACTERS)
    corpus = replace(config.corpus, max_document_characters=longest)
    sources = find_sources(paths, counts)
    progress.expect(sources)
    for source in sources:
        for document in read_source(source, corpus, counts, progress):
            yield document.text


def _gather(documents: Iterable[str]) -> Iterator[Part]:
    index, gathered, size = 0, list[str](), 0
    for document in documents:
        gathered.append(document)
        size += len(document)
        if size >= _PART_CHARACTERS:
            yield Part(index, gathered)
            index, gathered, size = index + 1, [], 0
    if gathered:
        yield Part(index, gathered)


def _read_evaluation(config: SelectionConfig, report: Report) -> EvaluationTexts | None:
    if not config.decontaminate:
        return None
    ignored: Counter[str] = Counter()
    texts = EvaluationTexts(read_evaluation(config.decontaminate, ignored))
    if not len(texts):
        names = ", ".join(config.decontaminate)
        raise CorpusError(f"select.decontaminate = {names}: no text there has eight words.")
    passed_over = "".join(f", {count:,} {reason}" for reason, count in ignored.items())
    report(f"decontamination: {len(texts):,} runs of words of evaluations{passed_over}")
    return texts


class PartSelector:
    """Selects from the documents of a part, and writes down what is kept and its signatures."""

    def __init__(
        self,
        parts: PartFolder,
        config: SelectionConfig,
        evaluation: EvaluationTexts | None,
        held_out: FingerprintSet | None,
    ) -> None:
        self.parts, self.select = parts, Selector(config, evaluation, held_out)
        self.sign = Signer() if config.near_duplicates else None

    def __call__(self, part: Part) -> None:
        tally = Tally()
        kept = [found for text in part.documents if (found := self.select(text, tally))]
        if self.sign is not None:
            signatures = self.sign(list(_list_hashes(kept)))
            write_array(_signature_path(self.parts, part.index), signatures)
        self.parts.write(part.index, [one.text for one in kept], tally.to_plain())


def _list_hashes(kept: Iterable[Kept]) -> Iterator[Hashes]:
    for one in kept:
        assert one.hashes is not None, "the search for near duplicates asks for them"
        yield one.hashes


def _signature_path(parts: PartFolder, index: int) -> Path:
    return parts.folder / f".{index:05d}.signatures"


def _sum_up(parts: PartFolder, indices: Sequence[int]) -> Tally:
    tally = Tally()
    for facts in parts.read_all_facts(indices):
        tally.add(Tally.from_plain(facts))
    return tally


def _drop_near_duplicates(
    candidates: PartFolder,
    kept: PartFolder,
    indices: Sequence[int],
    similarity: float,
    engine: Engine,
    report: Report,
) -> None:
    """Write all parts again, without near duplicates of earlier documents."""
    kept.folder.mkdir(parents=True, exist_ok=True)
    signatures, sizes = _join_signatures(candidates, indices)
    found = find_near_duplicates(signatures, similarity)
    split = np.split(found, np.cumsum(sizes)[:-1])
    parts = (Duplicates(index, part) for index, part in zip(indices, split, strict=True))
    undone = list(kept.pass_over_written(parts, []))
    begin = partial(DuplicateDropper, candidates, kept)
    progress = ReadProgress(len(undone))
    for number, _ in enumerate(engine.work_through(undone, begin, "the text"), start=1):
        progress.advance(number)
        report(f"near duplicates left out of {count_noun(number, 'part')}{progress}")


def _join_signatures(parts: PartFolder, indices: Sequence[int]) -> tuple[Signatures, list[int]]:
    """Return all signatures, mapped from one file, and the number of documents of each part."""
    path = parts.folder / ".signatures"
    sizes: list[int] = []
    with naming_file(path), path.open("wb") as file:
        for index in indices:
            content = _signature_path(parts, index).read_bytes()
            sizes.append(len(content) // (4 * NUM_HASHES))
            file.write(content)
    if not sum(sizes):
        return np.empty((0, NUM_HASHES), np.uint32), sizes
    mapped = np.memmap(path, np.uint32, "r").reshape(-1, NUM_HASHES)
    return mapped, sizes


class DuplicateDropper:
    """Writes a part again without its near duplicates."""

    def __init__(self, candidates: PartFolder, kept: PartFolder) -> None:
        self.candidates, self.kept = candidates, kept

    def __call__(self, part: Duplicates) -> None:
        tally, texts = Tally(), list[str]()
        documents = self.candidates.read_texts(part.index)
        for text, is_duplicate in zip(documents, part.is_duplicate.tolist(), strict=True):
            tally.read += 1
            if is_duplicate:
                tally.drop(_NEAR_DUPLICATE, text)
            else:
                tally.keep(text)
                texts.append(text)
        self.kept.write(part.index, texts, tally.to_plain())
