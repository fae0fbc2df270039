"""Pictures are drawn of what there is."""

import json
from pathlib import Path

from benchmarks.ablate import GROUPS
from benchmarks.plots import draw_all
from benchmarks.reproduce import SYSTEMS


def write_results(folder: Path) -> None:
    for name in ("shakespeare-128", "shakespeare-longer", "wiki-bert", "wiki-ours"):
        system = SYSTEMS[name]
        curve = [{"seconds": 60 * minute, "loss": 7 - minute / 10} for minute in (1, 2, 3)]
        result = {"title": system.title, "corpus": system.corpus, "ended": True, "curve": curve}
        (folder / f"2026-01-01_cpu_reproduce-{name}.json").write_text(json.dumps(result))
    runs = [
        {"variant": variant, "seed": seed, "loss": 5 + place / 10 + seed / 100}
        for place, variant in enumerate(["baseline", *GROUPS["masking"], "layers-6"])
        for seed in (0, 1)
    ]
    runs[-1]["loss"] = 9.0
    result = {"minutes": 5, "runs": runs}
    (folder / "2026-01-01_cpu_ablations-wiki_en.json").write_text(json.dumps(result))


def test_pictures_are_drawn_of_what_there_is(tmp_path: Path):
    images = tmp_path / "images"
    assert draw_all(tmp_path, images) == []
    write_results(tmp_path)
    assert draw_all(tmp_path, images) == ["classics", "shakespeare", "ablations"]
    assert len(list(images.iterdir())) == 6
    text = (images / "ablations.svg").read_text(encoding="utf-8")
    assert "whole-words" in text
    assert "+2." in text  # the variant that is far worse is cut off, and says so
