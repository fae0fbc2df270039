"""The prepared folder: the identity of its input, locking, and the check of a finished folder.

The *fingerprint*, kept in the manifest, covers the content of the files, every configuration value
that changes the result, and the version of the shard format, so that the same text is not prepared
twice. The *identity* of a plan uses size and modification time instead, and only finds interrupted
work. Both have the content of a tokenizer in place of its path.

``.work-ID`` holds the files of the stages. ID is the identity, so a process of an earlier
preparation that still runs writes to another folder. The files are valid only beside their plan,
which is written first and removed first. A folder with ``manifest.json`` is finished.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, cast

from maskwright.config import to_mapping
from maskwright.corpus.blocks import Block, choose_block_bytes, cut_into_blocks, estimate_bytes
from maskwright.corpus.readers.columns import parse_hub_name
from maskwright.corpus.sources import find_sources, identify_source, list_files
from maskwright.errors import MaskwrightError, ShardError
from maskwright.files import locking_folder, read_json
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.work import PLAN_NAME
from maskwright.provenance import find_version
from maskwright.selection.contamination import find_evaluations
from maskwright.selection.selector import Tally
from maskwright.shards.manifest import (
    MANIFEST_NAME,
    SPLITS,
    TOKENIZER_NAME,
    VERSION,
    Manifest,
    read_manifest,
)
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.tokenizer import Tokenizer

SELECTION_NAME = "selection.json"  # what selection dropped and why
STDIN_NAME = "stdin-{}"  # a copy, of no known suffix; {} is the hash of its content
STDIN_TEMPORARY = ".stdin.txt.tmp"
_STDIN_NAMES, _WORK_NAMES = STDIN_NAME.format("?" * 16), ".work-*"

Report = Callable[[str], None]


def describe_config(config: PrepareConfig) -> dict[str, Any]:
    """Return the part of the configuration that the result depends on, as plain values."""
    plain = to_mapping(config)
    for name in ("workers", "engine", "cluster"):
        del plain[name]
    del plain["select"]["describe"]
    return plain


def list_blocks(
    paths: Sequence[str],
    config: PrepareConfig,
    counts: Counter[str],
    report: Callable[[str], None] = lambda line: None,
) -> tuple[list[Block], int]:
    """Return the blocks of ``corpus.valid_text`` and then of `paths`, and the number of the former.

    Ignored files are counted by reason.

    Raises:
        CorpusError: an input that is missing.
    """
    sources = find_sources(paths, counts)
    named = config.corpus.valid_text
    held_out = find_sources(named, counts) if named else []
    size = choose_block_bytes(sum(map(estimate_bytes, sources)), config.block_megabytes * 1_000_000)
    blocks = [cut_into_blocks(part, config.corpus, size, report) for part in (held_out, sources)]
    return [*blocks[0], *blocks[1]], len(blocks[0])


def fingerprint_input(paths: Sequence[str], config: PrepareConfig, seed: int) -> str:
    """Return the sha256 (hex) of the text that `paths` name and of its configuration.

    Raises:
        CorpusError: an input that is missing or cannot be read.
        TokenizerError: `config.tokenizer.path` holds no tokenizer.
    """
    blocks, num_held_out = list_blocks(paths, config, Counter())
    with ThreadPoolExecutor() as threads:  # hashing releases the GIL
        identities = list(threads.map(identify_block, blocks))
    return fingerprint_blocks(identities, num_held_out, config, seed)


def fingerprint_blocks(
    identities: Iterable[Any], num_held_out: int, config: PrepareConfig, seed: int
) -> str:
    """Return the fingerprint of an input whose blocks have these identities.

    Raises:
        CorpusError, TokenizerError: as `fingerprint_input`.
    """
    evaluations = find_evaluations(config.select.decontaminate, Counter())
    other = [[identify_source(source) for source in evaluations], num_held_out, seed]
    described = [VERSION, _describe_by_content(config), other, *identities]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def identify_plan(
    blocks: Sequence[Block], num_held_out: int, config: PrepareConfig, seed: int
) -> str:
    """Return the sha256 (hex) of a preparation without reading the text: files are identified by
    name, size and modification time.

    Raises:
        CorpusError, TokenizerError: as `fingerprint_input`.
    """
    evaluations = find_evaluations(config.select.decontaminate, Counter())
    sources = [*chain(evaluations, *(block.sources for block in blocks))]
    folders = (parse_hub_name(source.name).folder for source in sources if source.kind == "hub")
    paths = {source.path for source in sources if source.path}
    paths.update(*map(list_files, filter(None, folders)))
    stats = [(str(path), path.stat()) for path in paths if path.exists()]
    files = sorted([name, stat.st_size, stat.st_mtime_ns] for name, stat in stats)
    described = _describe_by_content(config), config.select.describe
    plain = [block.to_plain() for block in blocks], *described
    # Another version may clean or cut text in another way.
    versions = [VERSION, *map(find_version, ("maskwright", "tokenizers"))]
    identity = [files, plain, num_held_out, seed, versions]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def _describe_by_content(config: PrepareConfig) -> dict[str, Any]:
    """Return `describe_config` with the tokenizer's content in place of its path."""
    plain, tokenizer = describe_config(config), config.tokenizer
    if tokenizer.path is None:
        # Without a tokenizer to extend or replace, these have no effect.
        del plain["tokenizer"]["extend_vocab"], plain["tokenizer"]["replace_vocab"]
    elif tokenizer.replace_vocab:
        plain["tokenizer"]["path"] = Tokenizer.load(tokenizer.path).fingerprint
        del plain["tokenizer"]["vocab_size"]  # that of replace_vocab
    else:
        base = Tokenizer.load(tokenizer.path).fingerprint
        extension = tokenizer.extend_vocab, tokenizer.min_frequency, tokenizer.sample_megabytes
        plain["tokenizer"] = [base, *extension] if tokenizer.extend_vocab else base
    del plain["corpus"]["valid_text"], plain["select"]["decontaminate"]
    return plain


def identify_block(block: Block) -> list[list[Any]]:
    """Return the identity of each source of a block; errors as in `identify_source`."""
    return [identify_source(source) for source in block.sources]


@contextmanager
def making_folder(folder: Path, report: Report) -> Generator[None]:
    """Make `folder` and lock it; if another process prepares it, wait for that process.

    Raises:
        ShardError: `folder` is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ShardError(f"{folder} is a file, not a folder. Choose another --out.") from None
    busy = f"{folder} is being prepared by another process; waiting for it"
    with locking_folder(folder, lambda: report(busy), report):
        yield


def check_use(out: Path) -> None:
    """Raise ShardError if a folder holds anything but prepared data, finished or not."""
    ours = (out / MANIFEST_NAME).is_file() or any(out.glob(_WORK_NAMES))
    if not ours and {*out.iterdir()} - {*out.glob(_STDIN_NAMES), out / STDIN_TEMPORARY}:
        raise ShardError(f"{out} holds files that are not prepared data. Choose another --out.")


def reuse_finished(
    out: Path, fingerprint: str, source: Mapping[str, Any], report: Report
) -> Manifest | None:
    """Return the manifest of a finished folder; None if it is damaged and must be prepared again.

    Raise ShardError if `out` holds other data; `source` is that of the manifest to be written.
    """
    manifest = read_manifest(out)
    if manifest.fingerprint != fingerprint:
        _remove_stdin(out)
        differences = list(_list_differences(manifest.source, source))
        raise ShardError(
            f"{out} was prepared from other text or with another configuration: "
            f"{', '.join(differences) or 'the content of the files differs'}. "
            "Choose another --out, or remove that folder."
        )
    damage = _find_damage(out, manifest)
    if damage is None:
        return manifest
    report(f"preparing {out} again, because it is damaged: {damage}")
    _renew_work(out)
    (out / MANIFEST_NAME).unlink()
    return None


def open_work(out: Path, identity: str) -> Path:
    """Return the folder for the files of the stages, with the files of an interrupted run.

    Files of another input are removed.
    """
    work = out / _WORK_NAMES.replace("*", identity[:12])
    if not (work / PLAN_NAME).is_file():
        new = _renew_work(out)
        if not (out / MANIFEST_NAME).is_file():
            (out / SELECTION_NAME).unlink(missing_ok=True)
            for name in (TOKENIZER_NAME, *SPLITS):
                shutil.rmtree(out / name, ignore_errors=True)
        new.rename(work)
    return work


def _renew_work(out: Path) -> Path:
    """Remove the files of all stages; return an empty work folder. It exists throughout, so
    `check_use` accepts `out` even after this process was killed.
    """
    new = out / _WORK_NAMES.replace("*", "new")
    new.mkdir(exist_ok=True)
    _remove_work(out, new)
    return new


def find_work(out: Path) -> Path | None:
    """Return the folder for the files of the stages; None if nothing is being prepared."""
    return next((plan.parent for plan in out.glob(f"{_WORK_NAMES}/{PLAN_NAME}")), None)


def _list_differences(
    before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    for name, value in now.items():
        other = before.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            nested = cast(Mapping[str, Any], other), cast(Mapping[str, Any], value)
            yield from _list_differences(*nested, f"{prefix}{name}.")
        elif json.dumps(value) != json.dumps(other):  # JSON has no tuples
            yield f"{prefix}{name} was {other} and is {value}"


def _find_damage(out: Path, manifest: Manifest) -> str | None:
    """Return how a finished folder differs from its manifest, as a sentence; None if it matches."""
    try:
        for split in SPLITS:
            TokenStore.open(out, split)
        found = Tokenizer.load(out / TOKENIZER_NAME).fingerprint
    except MaskwrightError as error:
        return str(error)
    if found != manifest.tokenizer_fingerprint:
        return f"{out / TOKENIZER_NAME} is not the tokenizer of these tokens."
    return None


def tidy_folder(out: Path) -> None:
    """Remove the files that only an unfinished preparation needs."""
    _remove_work(out)
    _remove_stdin(out)


def read_tally(out: Path) -> Tally | None:
    """Return the selection counts of the folder `out`; None if they are missing or damaged."""
    try:
        return Tally.from_plain(read_json(out / SELECTION_NAME))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _remove_stdin(out: Path) -> None:
    for spooled in out.glob(_STDIN_NAMES):
        spooled.unlink()


def _remove_work(out: Path, kept: Path | None = None) -> None:
    for work in out.glob(_WORK_NAMES):
        if work != kept:
            (work / PLAN_NAME).unlink(missing_ok=True)
            shutil.rmtree(work)
