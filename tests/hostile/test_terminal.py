"""Models, cards and runs of others print as text, in every command that shows what they say."""

import json
import shutil
from pathlib import Path

import pytest

from maskwright.cli.finetune import show_prediction
from maskwright.cli.main import main
from maskwright.finetuning.conll import join_words
from maskwright.finetuning.predict import AnsweredText
from maskwright.finetuning.task import Answer
from maskwright.inference.fill_mask import FillMask, FillResult, Prediction
from maskwright.tokenizer.tokenizer import Tokenizer

EVIL = "\x1b]0;owned\x9b2J\x1b[31m"
SHOWN = r"\x1b]0;owned\x9b2J\x1b[31m"


def check_printed(capsys: pytest.CaptureFixture[str]) -> str:
    printed = "".join(capsys.readouterr())
    for raw in ("\x1b]", "\x1b[31m", "\x9b"):
        assert raw not in printed
    return printed


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_vocabulary(
    workplace: Path,
    flags: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    guess = FillResult(f"[MASK] {EVIL}", [[Prediction(EVIL, 7, 0.5)]])
    monkeypatch.setattr(FillMask, "attempt", lambda *_: [guess])
    monkeypatch.setattr(Tokenizer, "token", lambda *_: EVIL)
    assert main(["fill", str(workplace / "runs" / "small"), "[MASK]", *flags]) == 0
    printed = check_printed(capsys)
    if flags:
        assert json.loads(printed)["text"] == guess.text
    else:
        assert printed.count(SHOWN) == 1
        assert printed.count("␛]0;owned<U+009B>2J␛[31m") == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_a_label(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(EVIL, 0.5, {EVIL: 0.5})
    show_prediction(AnsweredText((f"a text {EVIL}",), answer), as_json)
    words = join_words(["a", EVIL])
    show_prediction(AnsweredText(tuple(words), [answer, answer], words), as_json)
    printed = check_printed(capsys)
    if as_json:
        first, second = printed.splitlines()
        assert json.loads(first)["label"] == json.loads(second)["words"][1]["word"] == EVIL
    else:
        assert printed.count(SHOWN) == 5


def test_a_card(workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(workplace / "runs" / "small" / "model", tmp_path / "model")
    with (folder / "README.md").open("a", encoding="utf-8") as file:
        file.write(f"\n## More\n\n{EVIL}\n")
    capsys.readouterr()
    assert main(["publish", str(folder), "--repo", "me/x", "--dry-run"]) == 0
    assert f"\n{SHOWN}\n" in check_printed(capsys)


def test_a_run(
    workplace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(workplace / "runs" / "small" / "config.yaml", tmp_path)
    record = {"split": "valid", "step": 1, "tokens": 1, "seconds": 1.0, f"loss/{EVIL}": 1.0}
    line = json.dumps({**record, "samples": [f"✓ {EVIL}"]})
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n")
    for is_terminal in (False, True):
        if is_terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        assert main(["watch", str(tmp_path), "--once"]) == 0
        assert check_printed(capsys).count(SHOWN) >= 2
