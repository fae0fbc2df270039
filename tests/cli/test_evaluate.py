"""`maskwright evaluate`: what it finds, writes and shows, and what it refuses."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright import console
from maskwright.evaluation import suite_sentences
from maskwright.evaluation.run import hash_model, locate_submission
from maskwright.formatting import show_number
from maskwright.logs import read_metrics
from maskwright.runs.evaluation_file import choose_result, parse_results, to_plain
from tests.command import Cli
from tests.tokenizer.helpers import trained
from tests.workplace import data_of

PAIRS = [
    {"sentence_good": "The big cat eats fish.", "sentence_bad": "The big cat eats grass."},
    {"sentence_good": "The old fox eats berries.", "sentence_bad": "The old fox eats seeds."},
]


@pytest.fixture
def run(workplace: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be written to, without scores of other tests."""
    ignore = shutil.ignore_patterns("evaluation.json")
    return Path(shutil.copytree(workplace / "runs" / "small", tmp_path / "small", ignore=ignore))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    return path


def evaluate(cli: Cli, *arguments: object) -> tuple[int, str, str]:
    return cli.run("evaluate", *arguments, "--device", "cpu")


def scores_of(results: dict[str, Any], suite: str) -> dict[str, dict[str, Any]]:
    [found] = [each for each in results["suites"] if each["suite"] == suite]
    return {score["name"]: score for score in found["scores"]}


def test_a_run_is_scored_on_its_own_data(run: Path, pairs: Path, cli: Cli):
    suites, choices = "mlm,fill,pll,blimp", run / "choices.json"
    arguments = (run, "--suite", suites, "--blimp", pairs, "--fast", "--details")
    code, out, err = evaluate(cli, *arguments, "--choices", choices)
    assert (code, err) == (0, "")
    assert len(json.loads(choices.read_text())["choices"]) == 1
    choices.unlink()
    results = json.loads((run / "evaluation.json").read_text())
    assert results["format"] == 1
    assert results["model"]["sha256"] == hash_model(run / "model")
    assert results["model"]["num_parameters"] > 1000
    assert len(results["model"]["tokenizer_fingerprint"]) == 64
    assert [suite["suite"] for suite in results["suites"]] == suites.split(",")
    for suite in results["suites"]:
        assert len(suite["data"]["fingerprint"]) == 64
        assert {"date", "environment"} <= suite.keys()
        assert suite["computation"] == {"device": "cpu", "products": "float32"}
        for score in suite["scores"]:
            assert score.keys() == {*("name", "value", "low", "high", "num_samples", "baseline")}
            assert score["name"] in out
    mlm = scores_of(results, "mlm")
    assert mlm["masked_accuracy"]["value"] > mlm["masked_accuracy"]["baseline"] + 0.1
    assert scores_of(results, "fill")["fill/accuracy"]["value"] > 0.3
    assert scores_of(results, "blimp")["blimp/mean_over_pairs"]["num_samples"] == 2
    assert out.count("cpu in float32") == len(results["suites"])


def test_each_suite_says_in_which_precision_it_computed(run: Path, pairs: Path, cli: Cli):
    arguments = (run, "--suite", "mlm,blimp", "--blimp", pairs, "--fast", "--precision", "bf16")
    code, out, err = evaluate(cli, *arguments)
    assert (code, err) == (0, "")
    suites = json.loads((run / "evaluation.json").read_text())["suites"][-2:]
    assert [each["computation"]["products"] for each in suites] == ["float32", "bfloat16"]
    assert "cpu in float32 and cpu in bfloat16" in out


def test_what_a_model_is_known_by_is_one_short_table(run: Path, pairs: Path, cli: Cli):
    arguments = (run, "--suite", "mlm,fill,pll,blimp", "--blimp", pairs, "--fast")
    code, out, _ = evaluate(cli, *arguments)
    assert code == 0
    _, _, titles, *rows = out.splitlines()
    assert titles.split()[:2] == ["score", "value"]
    assert [row.split()[0] for row in rows[:7]] == [
        *("mlm/loss", "mlm/seen_mask/masked_accuracy", "mlm/seen_mask/masked_accuracy_top5"),
        "mlm/bits_per_character",
        *("fill/accuracy", "pll/pseudo_perplexity", "blimp/mean_over_paradigms"),
    ]
    written = run / "evaluation.json"
    results = json.loads(written.read_text())
    fill = scores_of(results, "fill")["fill/accuracy"]
    assert rows[4].split()[1] == show_number(fill["value"])
    num_more = sum(len(suite["scores"]) for suite in results["suites"]) - 7
    assert f"--details shows {num_more} more" in rows
    assert rows[-1] == f"all scores are in {written}"


def test_a_suite_that_takes_its_time_says_so(run: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "EVERY_SECONDS", 0)
    code, _, err = evaluate(cli, run, "--suite", "fill", "--fast")
    assert code == 0
    assert set(err.splitlines()) == {"fill: 0.0 minutes so far"}


def test_the_last_validation_of_a_run_is_found_again(run: Path, cli: Cli):
    """Training and evaluating look at the same masks, if at as many of them."""
    evaluate(cli, run, "--suite", "mlm")
    mlm = scores_of(json.loads((run / "evaluation.json").read_text()), "mlm")
    last = [r for r in read_metrics(run / "metrics.jsonl") if r.get("final")][-1]
    if mlm["loss"]["num_samples"] == last["num_predictions"]:
        assert mlm["loss"]["value"] == pytest.approx(last["loss"], rel=1e-5)
    assert mlm["loss"]["low"] - 0.2 < last["loss"] < mlm["loss"]["high"] + 0.2


def test_suites_of_an_earlier_evaluation_stay_and_are_replaced(run: Path, cli: Cli):
    path = run / "evaluation.json"
    evaluate(cli, run, "--suite", "fill", "--fast")
    first = json.loads(path.read_text())
    evaluate(cli, run, "--suite", "mlm", "--fast")
    both = json.loads(path.read_text())
    assert [suite["suite"] for suite in both["suites"]] == ["fill", "mlm"]
    assert both["suites"][0] == first["suites"][0]
    evaluate(cli, run, "--suite", "fill", "--fast")
    assert len(json.loads(path.read_text())["suites"]) == 2
    # Of another model, or damaged, nothing stays.
    path.write_text(json.dumps({**both, "model": {"sha256": "another"}}))
    evaluate(cli, run, "--suite", "fill", "--fast")
    assert len(json.loads(path.read_text())["suites"]) == 1
    path.write_text("{")
    assert evaluate(cli, run, "--suite", "fill", "--fast")[0] == 0


@pytest.fixture
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --fast the suite fill scores five sentences, a part of every text."""
    monkeypatch.setattr(suite_sentences, "FILL", replace(suite_sentences.FILL, fast=5))


@pytest.mark.usefixtures("few_sentences")
def test_results_on_other_data_and_of_other_sizes_stay(run: Path, workplace: Path, cli: Cli):
    text = workplace / "animals.txt"
    for arguments in (("--fast",), ("--fast", "--data", text), (), ("--fast",)):
        assert evaluate(cli, run, "--suite", "fill", *arguments)[0] == 0
    suites = json.loads((run / "evaluation.json").read_text())["suites"]
    names = [(suite["data"]["name"], suite["settings"]["fast"]) for suite in suites]
    held_out = f"{next((workplace / 'data').iterdir()).name}, held out"
    assert names == [("animals.txt", True), (held_out, False), (held_out, True)]
    # Whoever reads the file gets the full result, though the fast one is later.
    results = parse_results({"suites": suites}, "evaluation.json")
    assert choose_result(results, "fill") == results[1]
    assert choose_result(results[:1], "fill") == results[0]
    assert choose_result(results, "mlm") is None


def test_a_fast_form_that_leaves_nothing_out_is_a_full_result(run: Path, cli: Cli):
    path = run / "evaluation.json"
    results: list[Any] = []
    for arguments in (("--fast",), ()):
        code, out, _ = evaluate(cli, run, "--suite", "mlm,fill", *arguments)
        assert (code, "--fast" in out) == (0, False)
        suites = json.loads(path.read_text())["suites"]
        results.append([(s["suite"], s["settings"], s["scores"]) for s in suites])
    assert results[0] == results[1]


@pytest.mark.usefixtures("few_sentences")
def test_a_part_of_the_text_is_said_to_be_one(run: Path, cli: Cli):
    _, short, _ = evaluate(cli, run, "--suite", "mlm,fill", "--fast")
    [line] = [line for line in short.splitlines() if "--fast" in line]
    assert line.startswith("on ")
    assert "(--fast: a part of it in fill)" in line
    _, details, _ = evaluate(cli, run, "--suite", "mlm,fill", "--fast", "--details")
    [line] = [line for line in details.splitlines() if "--fast" in line]
    assert line.startswith("fill ")


def test_text_that_is_cut_is_told(
    run: Path, workplace: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    arguments = ("--data", workplace / "animals.txt", "--suite", "fill", "--fast", "--json")
    code, out, err = evaluate(cli, run, *arguments)
    [whole] = json.loads(out)["suites"]
    assert (code, err, whole["data"]["is_cut"]) == (0, "", False)
    monkeypatch.setattr("maskwright.evaluation.data._MAX_CHARACTERS", 1000)
    code, out, err = evaluate(cli, run, *arguments)
    [part] = json.loads(out)["suites"]
    assert (code, part["data"]["is_cut"]) == (0, True)
    assert 500 < part["data"]["num_characters"] <= 1000
    count = part["data"]["num_characters"]
    assert err == f"animals.txt is long: only its first {count:,} characters are used\n"


def test_rows_are_packed_as_in_training(run: Path, cli: Cli):
    path = run / "config.yaml"
    for packed in (True, False):
        path.write_text(path.read_text().replace("packed: true", f"packed: {str(packed).lower()}"))
        _, out, _ = evaluate(cli, run, "--suite", "mlm", "--fast", "--json")
        assert json.loads(out)["suites"][0]["settings"]["packed"] is packed


def test_text_files_and_a_model_folder(run: Path, workplace: Path, tmp_path: Path, cli: Cli):
    text, out = workplace / "animals.txt", tmp_path / "results.json"
    arguments = ("--data", text, "--suite", "mlm,fill,pll", "--fast", "--json", "--out", out)
    code, printed, _ = evaluate(cli, run / "model", *arguments, "--seq-length", 24)
    assert code == 0
    printed, written = json.loads(printed), json.loads(out.read_text())
    assert written["suites"] == printed["suites"]
    assert not (run / "evaluation.json").exists()
    mlm, fill, _ = written["suites"]
    assert mlm["settings"]["max_seq_length"] == 24
    assert mlm["data"]["unigram_counts"] == fill["data"]["unigram_counts"] == "this text"
    assert fill["data"]["name"] == "animals.txt"
    # With the run comes its training data, and with that the baseline.
    again = (run, "--data", text, "--suite", "fill", "--fast", "--out", out)
    code, _, error = evaluate(cli, *again)
    assert (code, json.loads(out.read_text())) == (2, written)
    assert (
        error == f"InputError: --out = {out} exists already. Choose another file, or remove it.\n"
    )
    out.unlink()
    assert evaluate(cli, *again)[0] == 0
    assert json.loads(out.read_text())["suites"][0]["data"]["unigram_counts"] == "training text"


def test_what_is_refused(
    run: Path,
    workplace: Path,
    pairs: Path,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("MASKWRIGHT_DATA", raising=False)  # where BLiMP would be found
    data = data_of(workplace)
    other = Path(shutil.copytree(data, tmp_path / "other"))
    trained("wordpiece").save(other / "tokenizer")
    empty = tmp_path / "empty.txt"
    empty.touch()
    for arguments, message in {
        (run, "--suite", "mlm,fil"): "unknown suite fil; did you mean fill?",
        (run, "--suite", ","): "no suite given",
        (run, "--suite", "blimp"): "needs --blimp",
        (run, "--out", tmp_path): "is a folder",
        (run, "--suite", "glue", "--seq-length", 16): "--seq-length has no effect",
        (run, "--suite", "glue", "--details"): "--details has no effect",
        (run, "--babylm", tmp_path): "--babylm needs --suite blimp",
        (run, "--choices", tmp_path / "x"): "--choices needs --suite blimp",
        (run, "--suite", "blimp", "--blimp", pairs, "--choices", empty): "exists already",
        (run, "--precision", "bf16"): "--precision needs --suite blimp",
        (run, "--pooling", "cls"): "--pooling needs --suite retrieval or sts",
        (run, "--suite", "blimp", "--blimp", pairs, "--precision", "auto"): "--precision",
        (run, "--suite", "blimp", "--blimp", pairs, "--babylm", "x", "--fast"): "--babylm needs",
        (run, "--suite", "blimp", "--blimp", pairs, "--data", data): "--data has no effect",
        (run, "--suite", "blimp", "--blimp", pairs, "--seq-length", 32): "--seq-length has no",
        (run, "--blimp", tmp_path): "--blimp needs --suite blimp",
        (run, "--data", data, workplace / "animals.txt"): "cannot be mixed with other text",
        (run, "--data", other): "was prepared with another tokenizer",
        (run, "--data", tmp_path / "none.txt"): "none.txt",
        (run, "--data", empty): "empty.txt",
        (run, "--seq-length", 4): "--seq-length = 4 must be at least 8",
        (run, "--seq-length", 100_000): "positions of the model",
        (run, "--out", tmp_path / "no" / "where"): "its folder does not exist",
        (run / "model",): "--data",
        (tmp_path / "nothing",): "is not a folder",
        (run, "--devise", "cpu"): "did you mean --device?",
    }.items():
        code, out, err = evaluate(cli, *arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err, arguments
        assert err.count("\n") == 1, arguments
    assert not (run / "evaluation.json").exists()


def test_numbers_that_json_does_not_have():
    assert to_plain({"a": (1.0, float("inf")), "b": float("nan")}) == {"a": [1.0, None], "b": None}


def test_pairs_are_found_where_the_environment_says(
    run: Path, pairs: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    (pairs.parent / "blimp").mkdir()
    pairs.rename(pairs.parent / "blimp" / "some.jsonl")
    monkeypatch.setenv("MASKWRIGHT_DATA", str(pairs.parent))
    code, out, _ = evaluate(cli, run, "--suite", "blimp", "--json")
    assert (code, json.loads(out)["suites"][0]["data"]["name"]) == (0, "blimp")
    monkeypatch.delenv("MASKWRIGHT_DATA")
    code, _, err = evaluate(cli, run, "--suite", "blimp")
    assert (code, err.count("\n")) == (2, 1)
    assert "needs --blimp" in err


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("runs/N", "N/main"),
        ("runs/N/chck_1M", "N/chck_1M"),
        ("runs/N/chck_1M-generator", "N/chck_1M"),
        ("hf:org/babylm", "babylm/main"),
        ("hf:org/babylm@chck_1M", "babylm/chck_1M"),
        ("hf:org/babylm@refs/pr/3", "babylm/refs/pr/3"),
    ],
)
def test_a_submission_names_the_model_and_its_revision(argument: str, expected: str):
    found = locate_submission(Path("results"), argument)
    assert found == Path("results", expected, "zero_shot", "mlm")


@pytest.mark.parametrize("is_ewok", [False, True])
def test_choices_are_written_where_a_submission_to_babylm_has_them(
    run: Path, tmp_path: Path, cli: Cli, is_ewok: bool
):
    """Of the end of a run, and of a milestone."""
    model, revision, task, name = run, "main", "blimp", "supplement_filtered"
    texts = {"sentence_good": "The cat eats fish.", "sentence_bad": "The cat fish eats."}
    if is_ewok:
        model, revision, task, name = run / "chck_1M", "chck_1M", "ewok", "ewok_fast"
        shutil.copytree(run / "model", model)
        texts = {"Context1": "The fox.", "Target1": "It eats berries.", "Target2": "It eats fish."}
    pairs = tmp_path / name / "turn_taking.jsonl"
    pairs.parent.mkdir()
    pairs.write_text(json.dumps({**texts, "Domain": "turn_taking"}), encoding="utf-8")
    flags = ("--suite", "blimp", "--blimp", pairs.parent, "--babylm", tmp_path / "results")
    code, out, _ = evaluate(cli, model, *flags, "--json")
    assert (code, json.loads(out)["suites"][0]["settings"]["metric"]) == (0, "original")
    zero_shot = tmp_path / "results" / run.name / revision / "zero_shot" / "mlm"
    [written] = (tmp_path / "results").rglob("*.json")
    assert written == zero_shot / task / name / "predictions.json"
    [choice] = json.loads(written.read_text())["turn_taking"]["predictions"]
    assert choice["id"] == "turn_taking_0"
    assert choice["pred"].removeprefix(" ") in texts.values()


def test_sentences_longer_than_the_model_are_counted(run: Path, tmp_path: Path, cli: Cli):
    text = tmp_path / "text.txt"
    text.write_text("The big cat eats fish.\n" + "cat " * 500 + "\n")
    code, out, _ = evaluate(cli, run, "--suite", "pll", "--data", text)
    assert code == 0
    assert "1 sentence is longer than the model and left out" in out
