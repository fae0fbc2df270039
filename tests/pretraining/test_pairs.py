"""``--data.pairs`` from the command line to the model folder and on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from maskwright.cli.main import main
from maskwright.errors import ShardError
from maskwright.model_folder.folder import load_model
from maskwright.pretraining.build import build_trainer
from maskwright.pretraining.init_from import InitialModel, load_initial
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import resolve
from tests.cli.test_inspect import inspect_rows
from tests.command import Cli
from tests.hub_folders import write_twin
from tests.pretraining.test_init_from import FAST
from tests.workplace import SMALL, data_of

PAIRS = ["--data.pairs", "next", "--model.preset", "bert"]
BERT = ["--optim.name", "adamw", "--model.init_output", "normal", "--model.hidden_act", "gelu"]


@pytest.fixture
def data(workplace: Path) -> str:
    return str(data_of(workplace))


@pytest.fixture(scope="module")
def trained(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps with pairs."""
    root = tmp_path_factory.mktemp("runs")
    data = str(data_of(workplace))
    flags = [*SMALL, *PAIRS, *BERT, "--train.max_steps", "3", "--train.num_validations", "1"]
    assert main(["pretrain", data, *flags, "--runs-dir", str(root), "--name", "pairs"]) == 0
    return root / "pairs"


def test_a_run_saves_both_heads_and_its_model_is_of_use(trained: Path, tmp_path: Path, cli: Cli):
    raw = json.loads((trained / "model" / "config.json").read_text(encoding="utf-8"))
    assert raw["architectures"] == ["BertForPreTraining"]
    assert raw["type_vocab_size"] == 2
    assert load_model(trained / "model")[0].pair_head is not None
    assert "%" in cli("fill", str(trained), "The small horse eats [MASK].")
    out = str(tmp_path / "vectors.npy")
    assert main(["embed", str(trained), "The small horse.", "--out", out]) == 0


def test_rows_show_their_pairs(trained: Path, data: str, cli: Cli) -> None:
    flags = ["--data.max_seq_length", "32", "--rows", "40"]
    rows = inspect_rows(cli, data, *flags, "--data.pairs", "order")
    assert {len(row["token_types"]) for row in rows} == {32}
    assert {label for row in rows for label in row["pairs"].values()} == {0, 1}
    for row in rows:
        for segment in set(map(int, row["pairs"])):
            slots = [n for n, number in enumerate(row["segments"]) if number == segment]
            tokens = [row["tokens"][n] for n in slots]
            types = [row["token_types"][n] for n in slots]
            assert (tokens[0], tokens.count("[SEP]")) == ("[CLS]", 2)
            assert types == sorted(types)
            assert types.index(1) == tokens.index("[SEP]") + 1
    text = cli("inspect", data, *flags, "--data.pairs", "order")
    assert "(next) [CLS]" in text
    assert "(not next) [CLS]" in text
    assert cli("inspect", str(trained), "--rows", "2").count("ext) [CLS]") > 1


def test_a_dry_run_counts_them(data: str, cli: Cli) -> None:
    flags = [*SMALL, "--model.preset", "bert", *BERT, "--train.max_steps", "3", "--dry-run"]
    plain = cli("pretrain", data, *flags)
    paired = cli("pretrain", data, *flags, "--data.pairs", "next")

    def parameters(report: str) -> int:
        line = next(line for line in report.splitlines() if line.startswith("model"))
        return int(line.split()[1].replace(",", ""))

    assert parameters(paired) - parameters(plain) == 32 * 33 + 2 * 33


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data.pairs", "next"], "model.type_vocab_size = 0 must be at least 2, one for each"),
        ([*PAIRS, "--data.special_tokens", "false"], "data.pairs = next requires [CLS] and [SEP]"),
        (
            [*PAIRS, "--model.next_token_prediction", "true", "--masking.causal_share", "0.5"],
            "data.pairs = next cannot be combined with masking.causal_share",
        ),
        (["--data.pairs", "nxt"], "must be next|order or none. Did you mean next?"),
    ],
)
def test_what_cannot_be_is_one_line(
    flags: list[str], message: str, data: str, tmp_path: Path, cli: Cli
) -> None:
    places = ["--runs-dir", str(tmp_path), "--name", "run", "--train.max_steps", "3"]
    assert message in cli.refuse("pretrain", data, *SMALL, *places, *flags)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_corpus_of_one_document_is_one_line(split: str, data: str, tmp_path: Path) -> None:
    config = resolve("tiny", None, {"train": {"max_steps": 1}, **read_sections(PAIRS)})
    prepared = PreparedData(Path(data))
    store = prepared.train if split == "train" else prepared.valid
    store.document_lengths = store.document_lengths[:1]
    with pytest.raises(ShardError, match=r"fewer than 2 documents.*data\.pairs = next"):
        build_trainer(config, prepared, tmp_path)


def read_sections(flags: list[str]) -> dict[str, dict[str, str]]:
    """``--section.name value`` as nested values."""
    sections: dict[str, dict[str, str]] = {}
    for flag, value in zip(flags[::2], flags[1::2], strict=True):
        section, name = flag.removeprefix("--").split(".")
        sections.setdefault(section, {})[name] = value
    return sections


def test_a_model_goes_on_with_or_without_its_head(trained: Path, tmp_path: Path, data: str) -> None:
    weights = load_file(trained / "model" / "model.safetensors")
    fast = [*FAST[:-4], "--train.max_steps", "1", "--optim.learning_rate", "1e-12"]
    for pairs, architecture in (("next", "BertForPreTraining"), ("none", "BertForMaskedLM")):
        places = ["--runs-dir", str(tmp_path), "--name", pairs, "--init-from", str(trained)]
        assert main(["pretrain", data, *fast, *places, "--data.pairs", pairs]) == 0
        folder = tmp_path / pairs / "model"
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert raw["architectures"] == [architecture]
        found = load_file(folder / "model.safetensors")
        assert ("cls.seq_relationship.weight" in found) == (pairs == "next")
        for name, tensor in found.items():
            assert (tensor - weights[name]).abs().max() < 1e-6, name


def load_bert(folder: Path, data: str) -> InitialModel:
    given = {"text": [data], "init_from": str(folder), "data": {"pairs": "next"}}
    initial = load_initial(resolve(None, None, {**given, "train": {"max_steps": 1}}))
    assert initial is not None
    return initial


def test_a_missing_head_is_new_and_follows_the_seed(tmp_path: Path, data: str) -> None:
    initial = load_bert(write_twin(tmp_path / "bert", "bert"), data)
    assert initial.model.pair_head is None
    config = replace(initial.model.config, sentence_pair_head=True)
    heads = [initial.adapt(config, initial.tokenizer, seed).pair_head for seed in (0, 0, 1)]
    one, same, other = (head.pooler.weight for head in heads if head is not None)
    assert one.equal(same)
    assert not one.equal(other)


def test_a_published_head_is_taken(tmp_path: Path, data: str) -> None:
    """Of a folder whose config.json names the class without it, as those of google-bert do."""
    folder = write_twin(tmp_path / "bert", "bert")
    weights = load_file(folder / "model.safetensors")
    shapes = {"bert.pooler.dense": (32, 32), "cls.seq_relationship": (2, 32)}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = torch.randn(shape)
        weights[f"{name}.bias"] = torch.randn(shape[0])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    initial = load_bert(folder, data)
    model = initial.adapt(initial.model.config, initial.tokenizer)
    assert model.pair_head is not None
    assert model.pair_head.classifier.weight.equal(weights["cls.seq_relationship.weight"])
    assert model.pair_head.pooler.bias.equal(weights["bert.pooler.dense.bias"])
