"""``maskwright report`` and ``maskwright watch`` on a finished run."""

import json
import os
import shutil
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.logs import read_metrics
from maskwright.pretraining.watch import follow
from maskwright.runs.run_directory import locking_run
from tests.command import Cli
from tests.workplace import SMALL


def test_a_run_becomes_a_page(workplace: Path, tmp_path: Path, cli: Cli):
    run, out = workplace / "runs" / "small", tmp_path / "page.html"
    assert cli("report", run, "--out", out) == f"{out}: open it in a browser\n"
    page = out.read_text(encoding="utf-8")
    last = read_metrics(run / "metrics.jsonl")[-1]
    assert f"{last['loss']:.3f} (unigram baseline" in page
    assert "Text and tokenizer" in page
    assert "page.html exists already. Choose anoth" in cli.refuse("report", run, "--out", out)
    assert "several runs need --out FILE" in cli.refuse("report", run, run)
    assert "is not a run directory" in cli.refuse("report", tmp_path)


def test_a_run_is_followed_to_its_end(workplace: Path, cli: Cli):
    run = workplace / "runs" / "small"
    lines = cli("watch", run).splitlines()
    assert lines[0].startswith("  7%  step 10  ")
    assert any("validation loss" in line for line in lines)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    final = next(record for record in records if record.get("final"))
    assert f"validation loss {final['loss']:.3f}" in "\n".join(lines[-7:])
    assert main(["watch", str(run / "model"), "--once"]) == 2


def test_a_run_whose_process_died_is_no_longer_followed(workplace: Path, tmp_path: Path, cli: Cli):
    for name in ("config.yaml", "metrics.jsonl"):
        shutil.copy(workplace / "runs" / "small" / name, tmp_path)
    os.utime(tmp_path / "metrics.jsonl", (0, 0))
    assert "--resume" in cli("watch", tmp_path)


def test_lines_that_a_resumed_run_writes_again_are_shown_again(tmp_path: Path):
    log = tmp_path / "metrics.jsonl"
    lines = [f'{{"split": "train", "step": {n}, "tokens": {n}, "seconds": {n}}}\n' for n in (1, 2)]
    log.write_text("".join([*lines, '{"split": "tra']))
    (tmp_path / "model").mkdir()  # of a run that was resumed with a new budget
    with locking_run(tmp_path, print):
        records = follow(tmp_path)
        assert [next(records)["step"], next(records)["step"]] == [1, 2]
        log.write_text(lines[0])
    assert list(records) == []
    assert [record["step"] for record in follow(tmp_path)] == [1]


def test_a_run_of_fine_tuning_is_told_apart(tmp_path: Path, cli: Cli):
    (tmp_path / "config.yaml").write_text("epochs: 1\n")
    (tmp_path / "provenance.json").write_text('{"asked": {"finetune": {}}}')
    for command in ("report", "watch"):
        assert "is a run of fine-tuning: see its results.json" in cli.refuse(command, tmp_path)
    for command in (["inspect", str(tmp_path)], ["pretrain", "--resume", str(tmp_path)]):
        assert "is a run of fine-tuning" in cli.refuse(*command)
    assert "unfinished run of fine-tuning" in cli.refuse("predict", tmp_path, "text")


def test_a_run_ends_with_its_report(workplace: Path, tmp_path: Path):
    options = [*SMALL, "--train.max_steps", "2", "--train.report", "true"]
    folders = ["--runs-dir", str(tmp_path), "--data-dir", str(workplace / "data")]
    text = str(workplace / "animals.txt")
    assert main(["pretrain", text, *folders, "--name", "short", *options]) == 0
    assert "Learning curves" in (tmp_path / "short" / "report.html").read_text(encoding="utf-8")
    assert not (workplace / "runs" / "small" / "report.html").exists()


def test_what_was_shown_last_stays_on_a_terminal(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = cli("watch", workplace / "runs" / "small", "--once")
    assert "validation loss" in shown.rpartition("\x1b[?25h")[2]
