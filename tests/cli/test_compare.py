"""`maskwright compare`: which differences it finds, between whom."""

import json
import shutil
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch

from maskwright.cli.main import main
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder import folder
from maskwright.model_folder.folder import open_model, save_model
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer
from tests.command import Cli
from tests.golden.pseudo_likelihood import make_model
from tests.workplace import SMALL


@pytest.fixture(scope="module")
def small(workplace: Path) -> Path:
    return workplace / "runs" / "small"


@pytest.fixture(scope="module")
def worse(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with a model that has forgotten much."""
    run = Path(shutil.copytree(small, tmp_path_factory.mktemp("runs") / "worse"))
    loaded = open_model(run / "model")
    with torch.no_grad():
        for parameter in loaded.model.encoder.blocks.parameters():
            parameter.mul_(0.3)
    save_model(run / "model", loaded.model, loaded.tokenizer)
    return run


def compare(cli: Cli, *arguments: object) -> tuple[int, str, str]:
    return cli.run("compare", *arguments, "--device", "cpu")


@pytest.mark.usefixtures("drawn_charts")
def test_two_runs_of_one_tokenizer(small: Path, worse: Path, tmp_path: Path, cli: Cli):
    code, out, _ = compare(cli, small, worse, "--fast", "--out", tmp_path / "out")
    assert code == 0
    assert "paired by row" in out
    result = json.loads((tmp_path / "out" / "comparison.json").read_text())
    one, two = result["models"]
    assert one["mlm"]["settings"]["masks_sha256"] == two["mlm"]["settings"]["masks_sha256"]
    assert one["last_validation"]["step"] == 150
    [difference] = result["differences_from_first"]
    assert difference["is_paired"]
    scores = {score["name"]: score for score in difference["scores"]}
    assert scores["loss"]["low"] > 0 > scores["masked_accuracy"]["high"]
    values = [
        {score["name"]: score["value"] for score in model["mlm"]["scores"]} for model in (one, two)
    ]
    assert scores["loss"]["value"] == pytest.approx(values[1]["loss"] - values[0]["loss"])
    for name in ("curves.png", "curves.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 10_000


def check_verdicts(scores: list[dict[str, Any]]) -> None:
    """The first score is judged by itself; the others as by Holm, from the smallest p-value up."""
    first, *others = scores
    assert first["is_primary"]
    assert first["p_adjusted"] == first["p_value"]
    tested = [one for one in others if one["p_value"] is not None]
    assert len(tested) > 8
    assert not any(one["is_primary"] for one in others)
    is_open = True
    for rank, score in enumerate(sorted(tested, key=lambda one: one["p_value"])):
        is_open = is_open and score["p_value"] * (len(tested) - rank) <= 0.05
        assert score["differs"] == is_open


@pytest.mark.usefixtures("drawn_charts")
@pytest.mark.parametrize("primary", [None, "mask_only/loss"])
def test_one_score_is_primary_in_table_page_and_file(
    primary: str | None, small: Path, worse: Path, tmp_path: Path, cli: Cli
):
    flags = () if primary is None else ("--primary", primary)
    models = (small, worse, small / "model")
    code, out, _ = compare(cli, *models, "--fast", "--out", tmp_path / "out", *flags)
    assert code == 0
    result = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert result["primary"] == (primary or "loss")
    [different, same] = result["differences_from_first"]
    for difference in (different, same):
        assert difference["scores"][0]["name"] == result["primary"]
    assert different["scores"][0]["differs"]
    assert not any(score["differs"] for score in same["scores"])
    tables = out.partition(" minus ")[2].splitlines()
    assert tables[2].split()[0] == result["primary"]
    page = (tmp_path / "out" / "comparison.html").read_text()
    below = f"primary score: {result['primary']}, p adjusted (Holm) for "
    assert below in page
    assert below in " ".join(out.split())


def copy_seeds(run: Path, folder: Path, seeds: dict[int, float]) -> list[Path]:
    """Write copies of a run with other seeds, whose embeddings are scaled."""
    copies: list[Path] = []
    for seed, factor in seeds.items():
        copy = Path(shutil.copytree(run, folder / f"{run.name}-{seed}"))
        config = (copy / "config.yaml").read_text()
        (copy / "config.yaml").write_text(config.replace("seed: 0\n", f"seed: {seed}\n", 1))
        loaded = open_model(copy / "model")
        with torch.no_grad():
            loaded.model.encoder.embeddings.word.weight.mul_(factor)
        save_model(copy / "model", loaded.model, loaded.tokenizer)
        copies.append(copy)
    return copies


@pytest.mark.parametrize(
    ("theirs", "is_paired"), [({8: 1.05, 7: 1.0}, True), ({7: 1.0, 8: 1.05, 9: 1.1}, False)]
)
def test_groups_of_seeds_are_compared_by_their_means(
    theirs: dict[int, float], is_paired: bool, small: Path, worse: Path, tmp_path: Path, cli: Cli
):
    ours = copy_seeds(worse, tmp_path, {7: 1.0, 8: 1.05})
    others = copy_seeds(small, tmp_path, theirs)
    code, out, _ = compare(cli, *ours, "--against", *others, "--fast", "--out", tmp_path / "out")
    assert code == 0
    assert ("paired by seed" in out) == is_paired
    assert f"2 runs minus {len(others)} of --against" in out
    page = (tmp_path / "out" / "comparison.html").read_text()
    below = "primary score: loss. The others are exploratory: p adjusted (Holm) for 1"
    assert below in " ".join(out.split())
    assert below in page
    result = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert result["differences_from_first"] == []
    values = [
        {score["name"]: score["value"] for score in model["mlm"]["scores"]}
        for model in result["models"]
    ]
    found = result["difference_of_groups"]
    assert (found["num_runs"], found["is_paired"]) == ([2, len(others)], is_paired)
    [loss] = [score for score in found["scores"] if score["name"] == "loss"]
    means = [sum(one["loss"] for one in part) / len(part) for part in (values[:2], values[2:])]
    assert [loss["mean"], loss["mean_against"]] == pytest.approx(means)
    assert loss["value"] == pytest.approx(means[0] - means[1])
    assert loss["low"] < loss["value"] < loss["high"]
    assert found["scores"][0] is loss
    check_verdicts(found["scores"])
    if is_paired:  # by seed, not by the order in which they are named
        differences = [values[0]["loss"] - values[3]["loss"], values[1]["loss"] - values[2]["loss"]]
        expected = abs(differences[0] - differences[1]) / 2**0.5
        assert loss["deviation"] == pytest.approx(expected)


def test_tokenizers_that_differ_are_compared_by_characters(
    small: Path, workplace: Path, tmp_path: Path, cli: Cli
):
    text = workplace / "animals.txt"
    tokenizer = train_tokenizer([text.read_text()], TokenizerConfig(kind="character"))
    save_model(tmp_path / "letters", make_model("bert", tokenizer), tokenizer)
    arguments = (small, tmp_path / "letters", "--data", text, "--fast", "--seq-length", 24)
    code, out, _ = compare(cli, *arguments, "--out", tmp_path / "out")
    assert code == 0
    assert "tokenizers differ, so only bits per character can be compared" in out
    row = next(line for line in out.splitlines() if line.startswith(str(tmp_path / "letters")))
    assert len(row.split()) == 3  # name, parameters, bits per character
    result = json.loads((tmp_path / "out" / "comparison.json").read_text())
    [difference] = result["differences_from_first"]
    assert not difference["is_paired"]
    [score] = difference["scores"]
    assert score["name"] == result["primary"] == "bits_per_character"
    assert score["differs"]
    code, _, err = compare(cli, *arguments, "--primary", "loss")
    assert (code, err.count("\n")) == (2, 1)
    assert "--primary = loss cannot be compared" in err
    assert 0 < score["low"] < score["value"]  # the letters were never trained


def test_other_tokenizers_need_a_text_that_all_are_scored_on(
    small: Path, workplace: Path, tmp_path: Path, cli: Cli
):
    folders = ["--runs-dir", str(tmp_path), "--data-dir", str(tmp_path / "data")]
    options = [*SMALL, "--tokenizer.kind", "character", "--train.max_steps", "2"]
    text = str(workplace / "animals.txt")
    assert main(["pretrain", text, *folders, "--name", "letters", *options]) == 0
    code, out, err = compare(cli, small, tmp_path / "letters", "--fast")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "letters has another tokenizer than " in err
    assert "Give text files with --data" in err


def test_one_model_is_in_memory_at_a_time(
    small: Path, worse: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    alive: WeakSet[torch.nn.Module] = WeakSet()
    most = 0
    read = folder.read_model

    def watch(*arguments: Any) -> MaskedLanguageModel:
        nonlocal most
        model = read(*arguments)
        alive.add(model)
        most = max(most, len(alive))
        return model

    monkeypatch.setattr(folder, "read_model", watch)
    assert compare(cli, small, worse, small / "model", "--fast")[0] == 0
    assert most == 1


def test_rows_are_not_packed_if_one_run_does_not_pack(
    small: Path, worse: Path, tmp_path: Path, cli: Cli
):
    run = Path(shutil.copytree(worse, tmp_path / "unpacked"))
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("packed: true", "packed: false"))
    assert compare(cli, small, run, "--fast", "--out", tmp_path / "out")[0] == 0
    result = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [one["mlm"]["settings"]["packed"] for one in result["models"]] == [False, False]
    assert result["differences_from_first"][0]["is_paired"]


def test_what_is_refused(small: Path, tmp_path: Path, cli: Cli):
    (tmp_path / "file").touch()
    for arguments, message in {
        (small,): "needs two runs or more",
        (small, small): "named twice",
        (small, "--against", small / "model"): "two runs or more in each group",
        (small, small / "model", "--against", small): "two runs or more in each group",
        (small, tmp_path / "none"): "is not a folder",
        (small, small / "model", "--primary", "losss"): "unknown score losss; did you mean loss?",
        (small, small / "model", "--seq-length", 2): "must be at least 8",
        (small, small / "model", "--out", tmp_path / "file"): "file exists already",
        (small, small / "model", "--out", tmp_path): f"--out = {tmp_path} exists already",
        (small, small / "model", "--data", "-"): "can be read only once",
        (small, small / "model", "--seq-length", 4096): "positions of",
    }.items():
        code, _, err = compare(cli, *arguments)
        assert code == 2, arguments
        assert message in err, arguments
        assert err.count("\n") == 1, arguments
