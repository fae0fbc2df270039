"""`maskwright fill` beyond a good sentence: bad lines, places, masks in the way."""

import io
import json
from argparse import Namespace
from pathlib import Path

import pytest

from maskwright.cli.inputs import read_sentences
from maskwright.errors import CorpusError
from tests.command import Cli

GOOD = "The small horse in the river eats [MASK] every day."


@pytest.fixture
def run(workplace: Path) -> str:
    return str(workplace / "runs" / "small")


def fill(cli: Cli, *arguments: str) -> tuple[int, list[str], list[str]]:
    """The exit code and the lines of the two outputs."""
    code, out, err = cli.run("fill", *arguments)
    return code, out.splitlines(), err.splitlines()


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_bad_lines_are_named_and_the_others_filled(run: str, tmp_path: Path, cli: Cli):
    file = write(tmp_path / "s.txt", GOOD, "no mask", "", "the cat " * 40 + "[MASK]", GOOD)
    code, out, err = fill(cli, run, "--file", file, "--json")
    assert code == 2
    rows = [json.loads(line) for line in out]
    assert [row["text"] for row in rows] == [GOOD, "no mask", "", "the cat " * 40 + "[MASK]", GOOD]
    assert [len(row["masks"]) for row in rows] == [1, 0, 0, 0, 1]
    assert {tuple(row) for row in rows} == {("text", "masks", "unknown_share", "error")}
    assert [row["error"] for row in rows if row["error"]] == [
        line.removeprefix(f"InputError: {file}:{number}: ")
        for line, number in zip(err, (2, 4), strict=True)
    ]
    assert [line.partition('"')[0] for line in err] == [
        f"InputError: {file}:2: ",
        f"InputError: {file}:4: ",
    ]
    assert "has no [MASK]" in err[0]
    assert "tokens, more than the model's max_position_embeddings = 32" in err[1]


def test_fill_and_score_say_that_a_text_is_mostly_unknown(run: str, cli: Cli):
    for arguments in (["fill", run, "☃☃ ☃☃☃ [MASK]"], ["score", run, "☃☃☃ ☃☃"]):
        for flag in ([], ["--json"]):
            code, _, err = cli.run(*arguments, *flag)
            assert code == 0
            assert err.startswith("100% of the characters are unknown to the model ([UNK])")
    assert fill(cli, run, GOOD)[2] == []


def test_bad_lines_of_standard_input_are_numbered(
    run: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{GOOD}\nno mask\n"))
    code, out, err = fill(cli, run, "--json")
    assert (code, len(out)) == (2, 2)
    assert err[0].startswith('InputError: standard input:2: "no mask" has no [MASK]')


def test_standard_input_is_utf_8_whatever_the_locale(
    monkeypatch: pytest.MonkeyPatch,
):
    arguments = Namespace(file=None, text=["-"], columns=[], header=None)

    def read(content: bytes) -> list[str]:
        raw = io.TextIOWrapper(io.BytesIO(content), encoding="ascii", errors="surrogateescape")
        monkeypatch.setattr("sys.stdin", raw)
        return [each.text for each in read_sentences(arguments)]

    assert read("\ufeffein Fr\u00fchst\u00fcck\n".encode()) == ["ein Fr\u00fchst\u00fcck"]
    with pytest.raises(CorpusError, match="standard input"):
        read("ein Fr\u00fchst\u00fcck\n".encode("latin-1"))


def test_a_random_word_is_not_hidden_beside_a_mask(run: str, cli: Cli):
    code, out, err = fill(cli, run, GOOD, "The old bird eats seeds.", "--random")
    assert code == 2
    assert [line.split(":")[0] for line in out] == ["", "masked", "ACTUAL", "MASKED", "MODEL"]
    [line] = err
    assert line.startswith(f'InputError: "{GOOD}" already contains [MASK]')


def test_all_bad_targets_are_named(run: str, cli: Cli):
    code, out, err = fill(cli, run, GOOD, "--targets", "xylophone", "grass", "quartz")
    assert (code, out, len(err)) == (2, [], 1)
    assert '"xylophone"' in err[0]
    assert '"quartz"' in err[0]
    assert '"grass"' not in err[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a [MASK]", "--device", "gpu"], "device = gpu is not a device here"),
        ([" "], "there is no sentence to fill"),
        (["a [MASK]", "--seed", "1"], "--seed has no effect without --random"),
    ],
)
def test_what_cannot_be_filled_at_all(run: str, cli: Cli, arguments: list[str], message: str):
    code, out, err = fill(cli, run, *arguments)
    assert (code, out, len(err)) == (2, [], 1)
    assert message in err[0]


@pytest.mark.parametrize("named", ["small", "smal", "runs/smal"])
def test_a_run_that_is_named_without_its_folder_is_suggested(
    named: str, workplace: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    monkeypatch.chdir(workplace)
    for command in (["fill", named, GOOD], ["watch", named], ["tokenizer", "inspect", named]):
        assert "did you mean runs/small?" in cli.refuse(*command)
    assert "did you mean runs/small?" in cli.refuse("pretrain", "--resume", named)
    assert "did you mean" not in cli.refuse("fill", "nothing-like-it", GOOD)
