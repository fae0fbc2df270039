"""Every variant is a configuration, and names mean the variants that they should."""

import json
from pathlib import Path

import pytest

from benchmarks.ablate import BASELINE, BASELINE_OPTIONS, GROUPS, VARIANTS, expand, read_scores
from benchmarks.trials import Bench
from maskwright.cli.flags import config_values
from maskwright.cli.pretrain import build_parser
from maskwright.config import to_mapping
from maskwright.pretraining.build import build_planner
from maskwright.runs.config import resolve


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {BASELINE}))
def test_a_variant_is_another_configuration_than_the_baseline(name: str) -> None:
    variant, baseline = (
        resolve("sprint", overrides=config_values(build_parser().parse(["text.txt", *options])))
        for options in ([*BASELINE_OPTIONS, *VARIANTS[name]], BASELINE_OPTIONS)
    )
    build_planner(variant)
    assert to_mapping(variant) != to_mapping(baseline)


def test_groups_bring_the_baseline_and_nothing_is_run_twice() -> None:
    assert expand(["rates", "mask-15", "rates"]) == [BASELINE, *GROUPS["rates"]]
    assert expand(["mask-15"]) == ["mask-15"]
    assert expand(["all"]) == list(VARIANTS)


def test_only_runs_that_ended_are_read(tmp_path: Path) -> None:
    scores = dict.fromkeys(("step", "tokens", "seconds", "loss", "masked_accuracy"), 1)
    record = {"split": "valid", "final": True, "unigram_accuracy": 0.1, **scores}
    for run, ended in (("mask-15-seed0", True), ("mask-15-to-30-seed1", True), ("spans-seed0", 0)):
        (tmp_path / run).mkdir()
        (tmp_path / run / "metrics.jsonl").write_text(json.dumps(record))
        if ended:
            (tmp_path / run / "model").mkdir()
    bench = Bench(tmp_path, tmp_path, "sprint", 5, 1)
    found = [(run["variant"], run["seed"]) for run in read_scores(bench)]
    assert found == [("mask-15", 0), ("mask-15-to-30", 1)]
