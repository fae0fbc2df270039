"""A report says what the files of a run say, and nothing that they say can break it."""

import re
from dataclasses import replace
from typing import Any

import pytest

from maskwright.errors import InputError
from maskwright.report import charts
from maskwright.report.facts import RunFacts
from maskwright.report.run_page import render_page, tabulate_samples
from maskwright.runs.evaluation_file import Score, SuiteResult
from maskwright.shards.manifest import FileInfo, Manifest, SplitInfo

pytestmark = pytest.mark.usefixtures("drawn_charts")
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the charts of a page empty, which take a second each."""
    monkeypatch.setattr(charts, "render", lambda *arguments: "<svg></svg>")


def make_run(name: str = "mine", steps: int = 400, **changes: Any) -> RunFacts:
    records: list[dict[str, Any]] = []
    for step in range(20, steps + 1, 20):
        counts = {"step": step, "tokens": 100 * step, "seconds": step / 10}
        speed = {"tokens_per_second": 2000.0, "learning_rate": 1e-3, "mask_rate": 0.3}
        shape = {"row_length": 64, "grad_norm": 1.5, "loss": 8 - step / steps}
        records.append({"split": "train", **counts, **speed, **shape})
        if step % 100 == 0:
            scores = {
                "loss": 7.5 - step / steps,
                "masked_accuracy": 0.9,
                "seen_mask_accuracy": 0.1 * step / steps,
            }
            base = {"unigram_loss": 7.1, "unigram_accuracy": 0.05}
            samples = [
                f"✓ It is [MASK] at last  →  right at {step} 50%  (was: done)",
                f"✗ a [MASK] b  →  wrong 9%, {EVIL} 8%  (was: {EVIL})",
            ]
            records.append({"split": "valid", **counts, **scores, **base, "samples": samples})
    facts: dict[str, Any] = {
        "config": {"train": {"max_steps": steps}, "text": [EVIL]},
        "provenance": {"cpu": "Some CPU", "cpu_count": 2, "started": "today"},
        **changes,
    }
    return RunFacts(name, records, **facts)


def make_manifest(dropped: dict[str, int]) -> Manifest:
    train = SplitInfo(1200, 10, 6000, 6000, 900, ())
    return Manifest(8192, "uint16", "", "a", {}, {"train": train}, FileInfo(0, ""), dropped)


@pytest.fixture(scope="module")
def page() -> str:
    """The page of a run with an evil name, with charts."""
    return render_page([make_run(EVIL)])


def test_a_page_holds_scores_baselines_samples_and_configuration(page: str):
    assert "6.500 (unigram baseline: 7.100)" in page
    assert "0.100 (unigram baseline: 0.050)" in page
    assert '<th scope="row">train.max_steps</th><td>400</td>' in page
    assert "step 100, 25 %" in page
    assert page.count("<svg") == 4  # of the learning curves three, of which one is shown


@pytest.mark.usefixtures("no_charts")
def test_several_runs_are_shown_with_what_differs_between_them():
    page = render_page([make_run("a", 400), make_run("b", 800), make_run("c", 800)])
    row = '<th scope="row">train.max_steps</th><td>400</td><td>800</td><td>800</td>'
    assert row in page
    assert '<th scope="row">text</th>' not in page  # the same in all
    assert "Differences in configuration" not in render_page([make_run("a"), make_run("b")])


def test_nothing_in_a_run_is_markup(page: str):
    assert EVIL not in page
    assert page.count("&lt;script&gt;") >= 3
    assert "src=" not in page


def test_it_is_self_contained(page: str):
    links = re.findall(r'(?:href|src|url)\s*[=(]\s*["\']?(https?:[^"\')\s]+)', page)
    assert [link for link in links if "w3.org" not in link] == []


def test_evaluations_and_text_are_shown_where_there_are_some():
    scores = (
        Score("loss", 6.25, 6.0, 6.5, 900, 7.125),
        Score("frequency_1e2/seen_mask_accuracy", 0.25, 0.2, 0.3, 90),
        Score("frequency_1e2/loss", 3.0, None, None, 90),
    )
    pairs = (
        Score("blimp/mean_over_paradigms", 0.56, 0.5, 0.6, 90),
        Score("blimp/binding", 0.515, 0.5, 0.6, 90),
        Score("blimp/binding/principle_A", 0.7, 0.5, 0.8, 90),
    )
    ranked = (Score("retrieval/reranked/ndcg_10", 0.875, 0.5, 0.9, 9),)
    evaluation = [
        SuiteResult("mlm", {"name": "held out", "fingerprint": "f"}, {"fast": True}, scores),
        SuiteResult("blimp", {"name": "pairs", "fingerprint": "f"}, {}, pairs),
        SuiteResult("retrieval", {"name": "beir", "fingerprint": "f"}, {}, ranked),
    ]
    manifest = make_manifest(dropped={"duplicate": 1234})
    page = render_page(
        [make_run(evaluation=evaluation, manifest=manifest, document_lengths=[3, 50, 700])]
    )
    assert page.count("<svg") == 7
    for text in (
        *("100 to 999 times", "dropped or repaired: duplicate", "Scores of mlm on held out, with"),
        *("1,234", "0.250", "binding", "0.515", "0.875", "1.333", "8,192", "--fast"),
        "<td>6.250</td><td>6.000 to 6.500</td><td>7.125</td>",
    ):
        assert text in page
    assert "principle" not in page


@pytest.mark.usefixtures("no_charts")
def test_render_page_shows_the_origin_of_a_setting():
    origins = {"flag": ["train.max_steps", ["seed"], 1], "recipe": "seed"}  # not validated
    config = {"seed": 0, "train": {"max_steps": 7}}
    page = render_page([make_run(config=config, provenance={"origins": origins})])
    assert "<td>7 (flag)</td>" in page
    assert "<td>0</td>" in page


@pytest.mark.usefixtures("no_charts")
def test_several_runs_stand_side_by_side():
    page = render_page([make_run("a"), make_run("b" * 200, is_finished=False)])
    assert "a, finished</th>" in page
    assert "b, not finished</th>" in page
    assert "Configuration" not in page


@pytest.mark.usefixtures("no_charts")
def test_what_curves_do_not_say_is_said():
    ours, theirs = (make_run(provenance={"corpus": {"fingerprint": letter}}) for letter in "ab")
    assert "are not comparable" in render_page([ours, theirs])  # though the data of both are gone
    kept = replace(ours, manifest=make_manifest({}))
    assert "are not comparable" not in render_page([ours, kept])
    assert "are not comparable" not in render_page([ours, replace(ours, provenance={})])
    *records, last = ours.records
    ended = replace(ours, records=[*records, {**last, "final": True}], manifest=None)
    assert "The last point of a finished run" in render_page([ended])
    assert "The last point" not in render_page([replace(ours, manifest=None)])


def test_long_runs_stay_small():
    assert len(render_page([make_run(steps=100_000)])) < 1_000_000


def test_a_run_without_a_line_says_so():
    with pytest.raises(InputError, match=r"mine has no line in metrics\.jsonl yet"):
        render_page([RunFacts("mine", [], {}, {})])


def test_time_is_shared_between_steps_and_the_rest():
    run = make_run(steps=400)  # 40,000 tokens at 2,000 a second, of 40 seconds
    assert [seconds for _, seconds in run.share_time()] == [20.0, 0.0, 0.0, 20.0]
    first, *others = run.records
    rest = [{**r, "validation_seconds": 2.0} if r["split"] == "valid" else r for r in others]
    run = replace(run, records=[{**first, "startup_seconds": 5.0}, *rest])
    assert [seconds for _, seconds in run.share_time()] == [20.0, 5.0, 8.0, 7.0]


@pytest.mark.parametrize(
    ("note", "is_named"),
    [("compiling: a GPU", True), ("not compiling: train.compile is off", False)],
)
def test_a_run_that_is_not_compiled_has_no_time_of_compilation(note: str, is_named: bool):
    run = make_run(provenance={"computation": {"compiling": note}})
    assert ("compilation" in " ".join(name for name, _ in run.share_time())) == is_named


@pytest.mark.usefixtures("no_charts")
def test_a_run_that_began_with_a_model_shows_its_scores_before():
    run = make_run()
    first = {"split": "valid", "step": 0, "tokens": 0, "seconds": 0.0, "loss": 7.4}
    page = render_page([replace(run, records=[first, *run.records])])
    assert "6.500 (before: 7.400, unigram baseline: 7.100)" in page
    assert "0.100 (unigram baseline: 0.050)" in page
    assert "before:" not in render_page([run])


def test_names_are_shown_as_they_are():
    page = render_page([make_run("_one"), make_run("a$b$c_{2}")])
    assert page.count("_one") >= 2
    assert "a$b$c_{2}" in re.sub(r"<[^>]*>", "", page[page.index("<svg") :])


@pytest.mark.usefixtures("no_charts")
def test_the_top_says_what_was_trained_and_by_which_recipe():
    sizes = {"num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 2, "preset": "bert"}
    provenance = {"recipe": "sprint", "num_parameters": 1_475_200}
    page = render_page([make_run(config={"model": sizes}, provenance=provenance)])
    assert "1,475,200 parameters, bert, 4 layers, width 128, 2 heads" in page
    assert '<th scope="row">recipe</th><td>sprint</td>' in page
    assert page.index("1,475,200") < page.index("Learning curves")


@pytest.mark.usefixtures("no_charts")
def test_samples_are_a_table_of_texts_and_times():
    page = render_page([make_run()])
    assert 'It is <span class="answer">done</span> at last' in page
    assert page.count("It is ") == 1
    assert '<th scope="col">step 400, 100 %</th>' in page
    times = [f"right at {step} 50%" for step in (100, 200, 400)]
    assert [page.count(f'<span class="right">{time}</span>') for time in times] == [1, 1, 1]


@pytest.mark.usefixtures("no_charts")
def test_samples_of_several_hidden_tokens_stay_lines():
    record = make_run().records[-1]
    page = render_page([replace(make_run(), records=[{**record, "samples": ["a⟨r⟩b"]}])])
    assert 'a</span><span class="right">⟨r⟩</span>' in page


def test_a_sample_that_appears_late_or_twice_keeps_its_column():
    early, late = "✓ a [MASK]  →  x 1%  (was: x)", "✗ b <mask> c  →  y 1%  (was: z)"
    rows = tabulate_samples([[early], [late, late], [early]])
    assert rows is not None
    parts = [(row.before, row.word, row.after) for row in rows]
    assert parts == [("a ", "x", ""), ("b ", "z", " c")]
    kinds = [[kind for kind, _ in row.guesses] for row in rows]
    assert kinds == [["right", "", "right"], ["", "wrong", ""]]
    assert tabulate_samples([[early, "a⟨r⟩b"]]) is None
