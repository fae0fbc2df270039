"""Every recipe after a published system trains, validates, samples and saves, at toy size."""

from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.logs import read_metrics
from maskwright.model_folder.folder import describe_folder
from maskwright.recipes import Recipe, list_recipes
from tests.workplace import write_corpus

# 48 is a multiple of all their numbers of heads.
TOY = [
    "--model.hidden_size", "48", "--model.num_hidden_layers", "2", "--tokenizer.min_frequency", "1",
    "--train.max_steps", "3", "--train.batch_tokens", "512", "--train.num_validations", "2",
    "--train.log_every_steps", "1", "--train.valid_tokens", "1024", "--train.compile", "off",
    "--train.final_valid_tokens", "1024", "--corpus.deduplicate", "false",
    "--corpus.valid_fraction", "0.1", "--train.report", "false",
]  # fmt: skip
PUBLISHED = [recipe for recipe in list_recipes() if "source" in recipe.facts]
OWN_SPELLING = {"gpt-bert-style", "shakespeare", "wiki-sentences", "cramming-style"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt", 120)


def test_there_are_the_systems_of_the_documentation():
    names = {"shakespeare", "wiki-sentences", "bert", "electra"}
    names |= {f"{name}-style" for name in ("mosaicbert", "modernbert", "neobert")}
    names |= {f"{name}-style" for name in ("24hbert", "cramming", "gpt-bert")}
    assert {recipe.name for recipe in PUBLISHED} == names


@pytest.mark.parametrize("recipe", PUBLISHED, ids=lambda recipe: recipe.name)
def test_a_published_system_trains(
    recipe: Recipe, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    vocabulary = "320" if recipe.values["tokenizer"]["kind"] == "bpe" else "96"
    folders = ["--runs-dir", str(tmp_path), "--data-dir", str(text.parent), "--name", "run"]
    options = [*TOY, "--tokenizer.vocab_size", vocabulary]
    command = ["pretrain", str(text), "--recipe", recipe.name, *folders, *options]
    assert main(command) == 0
    case = "uncased" if recipe.values["tokenizer"].get("lowercase") else "cased"
    assert f" tokens, {case}, accents" in capsys.readouterr().out
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    valid = [record for record in records if record["split"] == "valid"]
    assert all(0 < record["loss"] < 10 for record in records)
    assert valid[-1]["samples"]
    # A discriminator has no masked-language-model class; its generator does.
    detects = recipe.values.get("objective", {}).get("name") == "rtd"
    folder = describe_folder(tmp_path / "run" / ("generator" if detects else "model"))
    assert (folder.family.model_type == "maskwright") == (recipe.name in OWN_SPELLING)


def test_only_recipes_of_uncased_systems_lowercase():
    uncased = {
        recipe.name
        for recipe in list_recipes()
        if recipe.values.get("tokenizer", {}).get("lowercase")
    }
    assert uncased == {
        *("bert", "electra", "wiki-sentences"),
        *(f"{name}-style" for name in ("24hbert", "cramming", "mosaicbert", "neobert")),
    }
