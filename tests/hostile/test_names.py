"""What the user names, and what somebody else's run directory leads to."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.readers.columns import parse_hub_name
from maskwright.corpus.sources import find_sources
from maskwright.errors import CorpusError, InputError
from maskwright.inference.fill_mask import FillMask
from tests.corpus.helpers import read_all


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("~nobody-of-this-name/x", "Could not determine home directory"),
        ("/dev/zero", "is not a regular file"),
        ("/dev/stdin", "is not a regular file|does not exist"),
        ("x\0y", "does not exist"),
        ("x" * 5_000, "does not exist"),
        ("[" * 50, "matches no file"),
        ("**/../" * 500 + "*", "matches no file|is not a valid pattern"),
        ("hf:", "names no dataset"),
        ("hf:#text", "names no dataset"),
    ],
)
def test_inputs_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match=message):
        find_sources([given])


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.txt")
    with pytest.raises(
        CorpusError, match=r"x\.txt is not a regular file. Send its text to standard"
    ):
        find_sources([str(tmp_path / "x.txt")])
    with pytest.raises(CorpusError, match="contains no readable file"):
        find_sources([str(tmp_path)])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"_data_files": [{"filename": "../x"}]}'])
def test_datasets_that_are_damaged(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("datasets")
    for name in ("state.json", "dataset_info.json"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match="cannot be read"):
        read_all(f"hf:{tmp_path}")
    with pytest.raises(CorpusError, match="Could not determine home directory"):
        _ = parse_hub_name("hf:~nobody-of-this-name/x").folder


def test_a_sentence_of_any_bytes(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, sentence = str(workplace / "runs" / "small"), "the \udcff [MASK] eats [/b] \x1b[31m"
    for flags in ([], ["--json"]):
        assert main(["fill", run, sentence, *flags]) == 0
    assert main(["fill", run, sentence.replace("[MASK]", "cat"), "--random"]) == 0
    assert main(["fill", run, "no mask \udcff"]) == 2
    assert "\\udcff" in capsys.readouterr().err
    with pytest.raises(InputError):
        FillMask(Path(run) / "model")("[MASK]", targets=["\ud800"])


def test_the_field_of_a_corpus_may_be_anything(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({f"\x1b[31m{n}" * 100: n for n in range(1000)}) + "\n")
    from maskwright.corpus.sources import stream_corpus

    with pytest.raises(CorpusError) as caught:
        list(stream_corpus([str(path)], CorpusConfig(), Counter()))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1_100
