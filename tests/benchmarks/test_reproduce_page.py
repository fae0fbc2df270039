"""The tables are what the result files say; what has no file is left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import BEGIN, END
from benchmarks.reproduce import NOTEBOOK, SYSTEMS
from benchmarks.reproduce_page import PAGE, write_section
from maskwright.cli.flags import config_values
from maskwright.cli.pretrain import build_parser
from maskwright.pretraining.build import build_planner
from maskwright.runs.config import resolve

FINAL = {
    "step": 1200, "tokens": 2_500_000, "seconds": 900.0, "loss": 5.4321, "masked_accuracy": 0.234,
    "unigram_accuracy": 0.048,
}  # fmt: skip
TEST = {
    "parameters": 6_861_056, "sentences": 2000, "masked_loss": 5.1, "masked_accuracy": 0.2,
    "masked_predictions": 9000, "single_mask_accuracy": 0.3215, "single_mask_interval": 0.02,
}  # fmt: skip
ENVIRONMENT = {"cpu": "AMD EPYC", "cpu_count": 2, "packages": {"torch": "2.13"}}


def write_result(folder: Path, name: str, **changes: Any) -> None:
    system = SYSTEMS[name]
    result = {
        "title": system.title, "corpus": system.corpus, "recipe": system.recipe, "minutes": 15,
        "options": list(system.options), "ended": True, "curve": [], "final": FINAL,
        "test": TEST, "environment": ENVIRONMENT,
    }  # fmt: skip
    (folder / f"2026-01-01_cpu_reproduce-{name}.json").write_text(json.dumps({**result, **changes}))


def test_the_tables_are_what_the_files_say():
    assert BEGIN + write_section() + END in PAGE.read_text(encoding="utf-8")


def test_each_system_that_ended_has_a_row(tmp_path: Path):
    assert write_section(tmp_path, tmp_path) == "No run has ended yet.\n"
    for name in ("shakespeare-32", "sentences-padded", "wiki-bert"):
        write_result(tmp_path, name)
    write_result(tmp_path, "wiki-ours", final={**FINAL, "loss": 5.1})
    pairs = {"pair_accuracy": 0.61, "pair_baseline": 0.5}
    write_result(tmp_path, "wiki-bert", final={**FINAL, **pairs})
    write_result(tmp_path, "wiki-ours-long", minutes=95)
    write_result(tmp_path, "wiki-neobert", ended=False)
    section = write_section(tmp_path, tmp_path)
    assert "On 2 cores of an AMD EPYC, torch 2.13." in section
    assert (
        "| `shakespeare-32`: rows of 32 | 15 min, 2 cores (AMD) | 1,200 | 2.50 M | 5.432" in section
    )
    assert "| 15 min, 2 cores (AMD) | 2.50 M | 5.100 | 0.200 | 0.3215 ± 0.0200 |" in section
    assert section.index("`sprint`") < section.index("`bert`")  # the best comes first
    assert "; next sentences 0.610 (always the same answer: 0.500) |" in section
    assert "`tiny` `--train.seq_length_schedule 0:64,0.8:128` `--train.batch" in section
    assert "--train.valid_seq_length" not in section  # which all have
    assert section.index("`bert`") < section.index("`tiny`")  # the longer time last
    assert "[file](../benchmarks/results/2026-01-01_cpu_reproduce-wiki-bert.json)" in section
    assert "neobert" not in section
    assert "images/" not in section
    (tmp_path / "classics.svg").touch()
    assert "(images/classics.svg)" in write_section(tmp_path, tmp_path)


def test_minimal_pairs_of_our_models_are_shown(tmp_path: Path):
    accuracy = {
        "blimp/mean_over_paradigms": [0.57, 0.565, 0.575],
        "blimp/mean_over_pairs": [0.56, 0.55, 0.57],
        "blimp/field/syntax": [0.6, 0.5, 0.7],
        "blimp/island_effects": [0.5, 0.49, 0.51],
        "blimp/island_effects/adjunct_island": [0.4, 0.3, 0.5],
    }
    ours = {"parameters": 6_917_376, "pairs": 34_000, "accuracy": accuracy}
    models = {"small": {**ours, "parameters": 1}, "wiki-ours-long": ours}
    result = {"models": models, "environment": ENVIRONMENT}
    (tmp_path / "2026-01-01_cpu_minimal-pairs.json").write_text(json.dumps(result))
    section = write_section(tmp_path, tmp_path)
    assert "### BLiMP, 34,000 pairs of 1 paradigms (chance: 0.5)" in section
    assert "|  | `wiki-ours-long`, 6.92 M |" in section
    assert "| mean over paradigms | 0.570 (0.565 to 0.575) |" in section
    assert "| island effects | 0.500 (0.490 to 0.510) |" in section
    assert "adjunct" not in section
    assert "mean over pairs" not in section
    models = {"sentences-ours-long": {**ours, "parameters": 6_900_000}}
    result = {"models": models, "environment": ENVIRONMENT}
    (tmp_path / "2026-01-02_cpu_minimal-pairs.json").write_text(json.dumps(result))
    section = write_section(tmp_path, tmp_path)
    assert "|  | `wiki-ours-long`, 6.92 M | `sentences-ours-long`, 6.90 M |" in section


def test_ablations_are_compared_with_the_recipe(tmp_path: Path):
    runs = [
        {"variant": variant, "seed": seed, "options": [], **FINAL, "loss": loss}
        for variant, seed, loss in (
            ("baseline", 0, 5.0), ("baseline", 1, 5.2), ("spans", 0, 5.3), ("spans", 1, 5.1),
        )
    ]  # fmt: skip
    result = {"minutes": 5, "runs_at_once": 2, "baseline": ["--x=1"], "runs": runs}
    (tmp_path / "2026-01-01_cpu_ablations-wiki_en.json").write_text(json.dumps(result))
    section = write_section(tmp_path, tmp_path)
    assert "| 5.200 (5.300, 5.100) | +0.100 |" in section
    assert "| `baseline` | `--x=1` |" in section
    assert "| 5.100 (5.000, 5.200) |  |" in section


@pytest.mark.parametrize("name", [n for n, system in SYSTEMS.items() if system.recipe != NOTEBOOK])
def test_a_system_is_a_configuration(name: str):
    options = build_parser().parse(["text.txt", *SYSTEMS[name].options])
    build_planner(resolve(SYSTEMS[name].recipe, overrides=config_values(options)))


def test_every_program_of_the_page_exists():
    page = PAGE.read_text(encoding="utf-8")
    folder = PAGE.parents[1] / "benchmarks"
    for line in page.splitlines():
        if line.startswith("python -m benchmarks."):
            program = line.split()[2].removeprefix("benchmarks.")
            assert (folder / f"{program}.py").exists()
