"""Who may write to a folder, and what belongs to whom in it."""

import errno
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.corpus.config import CorpusConfig
from maskwright.errors import CorpusError, ShardError, TokenizerError
from maskwright.preparation.config import ClusterConfig, PrepareConfig
from maskwright.preparation.folder import (
    check_use,
    find_work,
    fingerprint_input,
    identify_plan,
    list_blocks,
    making_folder,
    open_work,
)
from maskwright.preparation.pipeline import prepare_folder
from maskwright.selection.config import SelectionConfig
from maskwright.tokenizer.config import TokenizerConfig
from tests.preparation.helpers import (
    cut_small,
    read_folder,
    small_config,
    write_corpus,
)


def ignore(line: str) -> None:
    del line


def test_the_lock_ends_with_its_block(tmp_path: Path) -> None:
    lines: list[str] = []
    for _ in range(2):
        with (
            pytest.raises(ZeroDivisionError),
            making_folder(tmp_path / "new" / "out", lines.append),
        ):
            _ = 1 / 0
    assert lines == []


def test_a_file_cannot_be_filled(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with (
        pytest.raises(ShardError, match=r"a\.txt is a file, not"),
        making_folder(tmp_path / "a.txt", ignore),
    ):
        pass


@pytest.mark.parametrize("name", [".stdin.txt.tmp", "stdin-0123456789abcdef"])
def test_a_folder_in_which_reading_standard_input_was_killed_is_ours(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).touch()
    check_use(tmp_path)
    (tmp_path / "thesis.doc").touch()
    with pytest.raises(ShardError, match="files that are not prepared data"):
        check_use(tmp_path)


def test_work_on_the_same_input_is_kept(tmp_path: Path) -> None:
    work = open_work(tmp_path, "a" * 64)
    assert find_work(tmp_path) is None
    (work / "plan.json").touch()
    (work / "read").mkdir()
    assert open_work(tmp_path, "a" * 64) == work == find_work(tmp_path)
    assert (work / "read").exists()


@pytest.mark.parametrize("identity", ["a" * 64, "b" * 64])
def test_work_without_a_plan_or_on_another_input_is_removed(tmp_path: Path, identity: str) -> None:
    """The plan goes first, so what a process leaves that is killed meanwhile has none."""
    before = open_work(tmp_path, "a" * 64)
    (before / "read").mkdir()
    if identity != "a" * 64:
        (before / "plan.json").touch()
    for name in ("train", "tokenizer"):  # of a process killed at the end
        (tmp_path / name).mkdir()
    (tmp_path / "selection.json").touch()
    work = open_work(tmp_path, identity)
    assert list(tmp_path.iterdir()) == [work]
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("killed_at", ["rmtree", "unlink", "rename"])
def test_a_damaged_folder_stays_ours_when_a_process_that_repairs_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    before = prepare_folder([str(path)], out, small_config())
    expected = read_folder(out)
    (out / "train" / "00000.tokens").write_bytes(b"damaged")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(shutil if killed_at == "rmtree" else Path, killed_at, die)
        with pytest.raises(KeyboardInterrupt):
            prepare_folder([str(path)], out, small_config())
    assert prepare_folder([str(path)], out, small_config()) == before
    assert read_folder(out) == expected


def test_a_finished_folder_that_cannot_be_written_to_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    before = prepare_folder([str(path)], out, small_config())

    def fail(file: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(file))

    # As root, tests can write everywhere; and there the kernel does not look for the file first.
    monkeypatch.setattr(Path, "unlink", fail)
    assert prepare_folder([str(path)], out, small_config()) == before


def test_content_counts_and_not_names(tmp_path: Path) -> None:
    for name, text in (("a.txt", "same"), ("b.txt", "same"), ("c.txt", "other")):
        (tmp_path / name).write_text(text)
    config = small_config()

    def fingerprint(*names: str) -> str:
        return fingerprint_input([str(tmp_path / name) for name in names], config, 0)

    assert fingerprint("a.txt") == fingerprint("b.txt")
    os.utime(tmp_path / "b.txt", (1, 1))
    assert fingerprint("a.txt") == fingerprint("b.txt")
    different = {fingerprint(*names) for names in (["a.txt"], ["c.txt"], ["a.txt", "c.txt"])}
    assert len(different | {fingerprint("c.txt", "a.txt")}) == 4


def test_each_byte_of_each_part_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, 1_000)
    path, config = write_corpus(tmp_path / "a.txt", 0.01), small_config()
    content = path.read_bytes()
    before = fingerprint_input([str(path)], config, 0)
    for place in (0, len(content) // 2, len(content) - 4):
        path.write_bytes(content[:place] + b"#" + content[place + 1 :])
        assert fingerprint_input([str(path)], config, 0) != before
    path.write_bytes(content)
    assert fingerprint_input([str(path)], config, 0) == before


def test_configuration_counts_but_not_who_does_the_work(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text")
    config = small_config()
    first = fingerprint_input([str(path)], config, 0)
    for same in (
        replace(config, workers=7),
        replace(config, engine="datatrove-local"),
        replace(config, cluster=ClusterConfig(tasks=3)),
        replace(config, select=SelectionConfig(describe=True)),
    ):
        assert fingerprint_input([str(path)], same, 0) == first
    others = [
        replace(config, block_megabytes=2),
        replace(config, corpus=CorpusConfig(deduplicate=False)),
        replace(config, tokenizer=TokenizerConfig(vocab_size=512)),
    ]
    assert all(fingerprint_input([str(path)], other, 0) != first for other in others)
    assert fingerprint_input([str(path)], config, 1) != first


def test_files_of_evaluation_count_by_what_is_in_them(tmp_path: Path) -> None:
    corpus = [str(write_corpus(tmp_path / "a.txt"))]
    asked, moved = tmp_path / "asked.txt", tmp_path / "elsewhere.txt"
    asked.write_text("a question that is long enough to be looked for in text")

    def configure(path: Path) -> PrepareConfig:
        return replace(small_config(), select=SelectionConfig(decontaminate=(str(path),)))

    before = fingerprint_input(corpus, configure(asked), 0)
    asked.rename(moved)
    assert fingerprint_input(corpus, configure(moved), 0) == before
    moved.write_text("another question that is long enough to be looked for in text")
    assert fingerprint_input(corpus, configure(moved), 0) != before


def test_a_local_dataset_counts_by_its_files(tmp_path: Path) -> None:
    def fingerprint(name: str, field: str = "text") -> str:
        return fingerprint_input([f"hf:{tmp_path / name}#{field}"], small_config(), 0)

    for name in ("one", "two"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "train.jsonl").write_text('{"text": "a"}')
    first = fingerprint("one")
    assert fingerprint("two") == first
    assert fingerprint("one", "body") != first
    (tmp_path / "two" / "below" / "train.jsonl").write_text('{"text": "b"}')
    assert fingerprint("two") != first


def test_work_is_identified_without_reading_the_text(tmp_path: Path) -> None:
    path, config = write_corpus(tmp_path / "a.txt"), small_config()

    def identify(config: PrepareConfig = config, seed: int = 0) -> str:
        blocks, num_held_out = list_blocks([str(path)], config, Counter())
        return identify_plan(blocks, num_held_out, config, seed)

    first = identify()
    assert identify(replace(config, workers=3)) == first
    described = replace(config, select=SelectionConfig(describe=True))
    os.utime(path, (1, 1))
    found = {first, identify(), identify(described), identify(seed=1)}
    found.add(identify(replace(config, corpus=CorpusConfig(deduplicate=False))))
    assert len(found) == 5


def test_missing_inputs(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not exist"):
        fingerprint_input([str(tmp_path / "none.txt")], small_config(), 0)
    missing = replace(small_config(), tokenizer=TokenizerConfig(path=str(tmp_path)))
    with pytest.raises(TokenizerError, match=r"holds no tokenizer\.json"):
        fingerprint_input(["pydocs"], missing, 0)
