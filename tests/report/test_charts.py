import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import MissingPackageError
from maskwright.logs import Record
from maskwright.report import charts
from maskwright.report.charts import Curve, draw_scatter, plot_curves

pytestmark = pytest.mark.usefixtures("drawn_charts")
RECORDS = [
    {
        "step": step,
        "tokens": 1000 * step,
        "seconds": 6.0 * step,
        "loss": 7 - step / 100,
        "seen_mask_accuracy": step / 1000,
        "unigram_loss": 7.05 + step / 1e5,
        "unigram_accuracy": 0.05,
    }
    for step in (10, 20, 30)
]
WITHOUT_A_NUMBER: list[dict[str, Any]] = [{"step": 40, "loss": None}, {"loss": 3.0}]


def test_numbers_that_are_text_are_in_their_order():
    def list_ticks(values: Sequence[str]) -> list[str]:
        picture = draw_scatter([(value, 1.0) for value in values], "setting", "loss")
        texts = re.findall("<text[^>]*>([^<]*)", picture)
        return texts[: texts.index("setting")]

    assert list_ticks(["0.4", "0.15", "0.3"]) == ["0.15", "0.20", "0.25", "0.30", "0.35", "0.40"]
    assert list_ticks(["muon", "adamw"]) == ["adamw", "muon"]


def test_a_picture_has_names_axes_and_the_baseline_and_is_the_same_twice(tmp_path: Path):
    curves = [Curve("first run", [*RECORDS, *WITHOUT_A_NUMBER]), Curve("second <run>", RECORDS[:2])]
    curves.append(Curve("nothing", []))
    png, svg = plot_curves(curves, tmp_path, note="a note")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for words in ("first run", "second &lt;run&gt;", "steps", "tokens (millions)", "a note"):
        assert words in text
    # One in each panel of loss and accuracy: baselines that are nearly the same are one.
    assert text.count("unigram baseline") == 6
    assert "wall-clock minutes" in text
    (tmp_path / "again").mkdir()
    again = plot_curves(curves, tmp_path / "again", note="a note")
    assert [path.read_bytes() for path in again] == [png.read_bytes(), svg.read_bytes()]


def shift(records: Sequence[Record], loss: float, steps: int = 0) -> list[Record]:
    return [{**one, "loss": one["loss"] + loss, "step": one["step"] + steps} for one in records]


def test_seeds_of_an_arm_are_one_curve_with_a_band(tmp_path: Path):
    seeds = [shift(RECORDS, loss) for loss in (0.0, 0.3, 0.6)]
    arms = [Curve("one (3 runs)", seeds[0], seeds[1:]), Curve("two (3 runs)", [], seeds)]
    text = plot_curves(arms, tmp_path)[1].read_text().lower()
    drawn = {color for color in charts.COLORS if color.lower() in text}
    assert len(drawn - {charts.COLORS[-1]}) == 2
    assert text.count('id="fillbetweenpolycollection') == 2 * 6
    xs, runs = arms[0].find_runs("step", "loss")
    assert xs == [10, 20, 30]
    assert runs == [[one["loss"] for one in seed] for seed in seeds]
    assert arms[0].points("step", "loss")[1] == pytest.approx([7.2, 7.1, 7.0])


def test_seeds_validated_at_other_steps_are_interpolated_where_both_were():
    curve = Curve("arm", RECORDS, [shift(RECORDS, 0.0, steps=5)])
    xs, [ours, theirs] = curve.find_runs("step", "loss")
    assert xs == [15, 20, 30]
    assert ours == pytest.approx([6.85, 6.8, 6.7])
    assert theirs == pytest.approx([6.9, 6.85, 6.75])


def test_records_without_a_number_are_skipped():
    curve = Curve("run", [*RECORDS, *WITHOUT_A_NUMBER])
    assert curve.points("step", "loss", 10) == ([1, 2, 3], [6.9, 6.8, 6.7])


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(charts.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"\[plots\]"):
        plot_curves([], tmp_path)
