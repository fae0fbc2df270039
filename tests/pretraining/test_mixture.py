"""Several prepared folders in one run: trained on by their shares, resumed exactly, each scored."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import fsspec
import pytest

from maskwright.cli.main import main
from maskwright.data.config import MixtureConfig
from maskwright.data.rows import DataPosition
from maskwright.errors import ShardError
from maskwright.logs import read_metrics
from maskwright.pretraining.build import build_row_source, build_trainer
from maskwright.pretraining.prepared_data import PreparedMixture
from maskwright.pretraining.validation import Validation
from maskwright.runs.run_directory import load_run_config
from maskwright.shards.manifest import SPLITS
from tests.command import Cli
from tests.preparation.helpers import read_shards
from tests.shards.faults import start_anew, upload
from tests.workplace import SMALL, write_corpus

FLAGS = [
    *SMALL[SMALL.index("--data.max_seq_length") :], "--train.log_every_steps", "1",
    "--train.checkpoint_every_minutes", "1e-9", "--train.keep_checkpoints", "20",
    "--train.max_steps", "8",
]  # fmt: skip


def prepare(text: Path, out: Path, *flags: str) -> None:
    common = ["--corpus.valid_fraction", "0.1", "--corpus.deduplicate", "false"]
    assert main(["prepare", str(text), "--out", str(out), *common, *flags]) == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two prepared folders of one tokenizer, one of another, and a finished run of the two."""
    root = tmp_path_factory.mktemp("mixture")
    rare = ["--tokenizer.min_frequency", "1"]
    animals = write_corpus(root / "animals.txt")
    days = root / "days.txt"
    line = "every day eats every old forest in the big river . "
    days.write_text("\n\n".join(line * (n % 3 + 1) for n in range(150)), encoding="utf-8")
    prepare(animals, root / "data" / "animals", "--tokenizer.vocab_size", "96", *rare)
    shared = str(root / "data" / "animals" / "tokenizer")
    prepare(days, root / "data" / "days", "--tokenizer.path", shared)
    prepare(days, root / "data" / "alien", "--tokenizer.vocab_size", "48", *rare)
    both = ["--data", "days=1,animals=3", "--name", "both", *flags(root), "--train.report", "true"]
    assert main(["pretrain", *both]) == 0
    return root


def flags(root: Path) -> list[str]:
    return ["--runs-dir", str(root / "runs"), "--data-dir", str(root / "data"), *FLAGS]


def folders(place: Path) -> dict[str, Path]:
    return {name: place / "data" / name for name in ("animals", "days")}


def test_a_run_of_two_folders_is_scored_on_each(place: Path) -> None:
    records = read_metrics(place / "runs" / "both" / "metrics.jsonl")
    last = [record for record in records if record["split"] == "valid"][-1]
    each = [(last[f"loss/{n}"], last[f"num_predictions/{n}"]) for n in ("animals", "days")]
    assert all(count > 50 for _, count in each)
    assert sum(count for _, count in each) == last["num_predictions"]
    mean = sum(loss * count for loss, count in each) / last["num_predictions"]
    assert last["loss"] == pytest.approx(mean, rel=1e-6)
    assert each[0][0] != each[1][0]
    card = (place / "runs" / "both" / "model" / "README.md").read_text(encoding="utf-8")
    assert "75.0% of the tokens" in card
    assert "| loss (nats), days |" in card
    assert "Scores by source" in (place / "runs" / "both" / "report.html").read_text()


def test_articles_and_their_sentences_are_trained_on_together(place: Path, tmp_path: Path) -> None:
    """Both folders of one text hold out the same articles."""
    text, data = place / "animals.txt", tmp_path / "data"
    shared = ["--tokenizer.path", str(place / "data" / "animals" / "tokenizer")]
    prepare(text, data / "sentences", "--corpus.documents", "sentences", *shared)
    shutil.copytree(place / "data" / "animals", data / "articles")
    halves = ["--data", "articles=1,sentences=1", "--name", "halves", *flags(tmp_path)]
    assert main(["pretrain", *halves]) == 0
    records = read_metrics(tmp_path / "runs" / "halves" / "metrics.jsonl")
    assert min(records[-1][f"num_predictions/{name}"] for name in ("articles", "sentences")) > 50
    for split in SPLITS:
        articles, sentences = [
            " ".join(read_shards(data / name, split)) for name in ("articles", "sentences")
        ]
        assert articles == sentences


def test_training_takes_tokens_by_their_shares(place: Path) -> None:
    config = load_run_config(place / "runs" / "both", {})
    data = PreparedMixture(folders(place), config.mixture)
    source = build_row_source(config, data)
    rows, _ = source.planner(32).plan_rows(DataPosition(32), 2000)
    tokens = Counter[str]()
    for row in rows:
        for start, length in row.segments:
            tokens[data.train.source_of(start)] += length
    assert tokens["animals"] / tokens.total() == pytest.approx(0.75, abs=0.01)
    assert data.epoch_tokens == pytest.approx(data.train.num_tokens)
    each = {name: source.count_segments(5) for name, source in data.sources.items()}
    assert each["animals"] == (-(-data.sources["animals"].train.document_lengths // 5)).sum()
    wanted = data.passes["animals"] * each["animals"] + data.passes["days"] * each["days"]
    assert data.count_segments(5) == pytest.approx(wanted)


def test_resume_gives_the_same_weights_bit_for_bit(place: Path, tmp_path: Path) -> None:
    whole, broken = place / "runs" / "both", tmp_path / "both"
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "model")
    for checkpoint in (broken / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step_")) > 3:
            shutil.rmtree(checkpoint)
    assert main(["pretrain", "--resume", str(broken), "--train.report", "false"]) == 0
    weights = [path / "model" / "model.safetensors" for path in (whole, broken)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.fixture
def elsewhere(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of the folder `animals`; the cache is empty."""
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    start_anew()
    fsspec.filesystem("memory").store.clear()
    upload(place / "data" / "animals", "memory://bucket/animals")
    return "memory://bucket/animals"


def test_a_source_elsewhere_is_mixed_in_as_if_it_lay_here(
    place: Path, tmp_path: Path, elsewhere: str, cli: Cli
) -> None:
    shutil.copytree(place / "data" / "days", tmp_path / "data" / "days")
    asked = ["--data", f"days=1,{elsewhere}=3", "--name", "far", *flags(tmp_path)]
    near, far = place / "runs" / "both", tmp_path / "runs" / "far"
    assert main(["pretrain", *asked]) == 0
    mirrored = {path.name for path in (tmp_path / "cache").rglob("0*.*")}
    assert mirrored == {"00000.tokens", "00000.ends", "00000.starts"}
    rows = [cli("inspect", str(f), "--rows", "40", "--json") for f in (near, far)]
    assert rows[0] == rows[1]
    scores = [
        [{key: value for key, value in record.items() if "loss" in key} for record in records]
        for records in (read_metrics(folder / "metrics.jsonl") for folder in (near, far))
    ]
    assert scores[0] == scores[1]
    assert sum("loss/animals" in record for record in scores[1]) > 0
    weights = [folder / "model" / "model.safetensors" for folder in (near, far)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_resumed_mixture_finds_each_source_where_it_is_now(
    place: Path, tmp_path: Path, elsewhere: str
) -> None:
    shutil.copytree(place / "data" / "days", tmp_path / "data" / "days")
    asked = ["--data", f"days=1,{elsewhere}=3", "--name", "far", *flags(tmp_path)]
    far = tmp_path / "runs" / "far"
    assert main(["pretrain", *asked, "--train.max_steps", "3"]) == 0
    shutil.rmtree(tmp_path / "cache")
    start_anew()
    (tmp_path / "data" / "days").rename(tmp_path / "moved")
    provenance = json.loads((far / "provenance.json").read_text())
    provenance["prepared_data"]["days"] = str(tmp_path / "moved")
    (far / "provenance.json").write_text(json.dumps(provenance))
    assert main(["pretrain", "--resume", str(far), "--train.max_steps", "4"]) == 0
    records = read_metrics(far / "metrics.jsonl")
    steps = [record["step"] for record in records if record["split"] == "train"]
    assert steps == [1, 2, 3, 4]


def test_a_source_that_is_gone_or_changed_stops_a_resumption(place: Path, tmp_path: Path, cli: Cli):
    broken = tmp_path / "both"
    shutil.copytree(place / "runs" / "both", broken)
    provenance = json.loads((broken / "provenance.json").read_text())
    for folder, message in (("nowhere", "nowhere, a source of"), ("alien", "text has changed")):
        provenance["prepared_data"]["days"] = str(place / "data" / folder)
        (broken / "provenance.json").write_text(json.dumps(provenance))
        shown = cli.refuse("pretrain", "--resume", str(broken))
        assert shown.startswith("CheckpointError")
        assert message in shown


def test_validation_does_not_depend_on_the_shares(place: Path, tmp_path: Path) -> None:
    """Runs with other shares hide the same tokens, so that their scores can be compared."""
    config = load_run_config(place / "runs" / "both", {})
    pinned: list[list[list[int]]] = []
    for weights in (("animals=3", "days=1"), ("animals=1", "days=9")):
        config = replace(config, mixture=MixtureConfig(weights))
        data = PreparedMixture(folders(place), config.mixture)
        trainer, _ = build_trainer(config, data, tmp_path)
        assert isinstance(trainer.validate, Validation)
        sources = trainer.validate.hold_out(final=False).read_sources()
        batches = chain.from_iterable(sources.values())
        pinned.append([batch.input_ids.tolist() for batch in batches])
    assert pinned[0] == pinned[1]


def test_inspect_shows_which_source_a_row_is_of(place: Path, cli: Cli) -> None:
    folder = str(place / "runs" / "both")
    lines = cli("inspect", folder, "--rows", "40", "--json").splitlines()
    shown = [json.loads(line) for line in lines]
    sources = Counter(row["source"] for row in shown)
    assert sources["animals"] > sources["days"] > 5
    # A token that is predicted may be a random one.
    clean = [
        {token for token, label in zip(row["tokens"], row["labels"], strict=True) if label < 0}
        for row in shown
    ]
    fish = {row["source"] for row, tokens in zip(shown, clean, strict=True) if "fish" in tokens}
    assert fish == {"animals"}
    page = cli("inspect", folder)
    assert "75.0% of the tokens" in page
    assert "epoch 0, row 0, " in page
    valid = cli("inspect", folder, "--split", "valid", "--rows", "1", "--json")
    assert json.loads(valid)["source"] in sources


def test_a_run_is_evaluated_on_all_of_its_folders(place: Path, cli: Cli) -> None:
    folder = str(place / "runs" / "both")
    printed = cli("evaluate", folder, "--suite", "mlm", "--json")
    assert json.loads(printed)["suites"][0]["data"]["name"] == "days + animals, held out"


def test_without_shares_each_folder_is_seen_once(place: Path, cli: Cli) -> None:
    shown = cli("pretrain", "--data", "animals,days", *flags(place), "--dry-run")
    assert shown.count(", 1 times an epoch") == 2
    paths = [str(path) for path in folders(place).values()]
    assert cli("pretrain", *paths, *flags(place), "--dry-run").count(", 1 times an") == 2
    asked = ["--mixture.epochs", "days=2.5", *flags(place), "--dry-run"]
    assert ", 2.5 times an epoch" in cli("pretrain", *paths, *asked)
    asked = ["--mixture.temperature", "1e6", *flags(place), "--dry-run"]
    assert cli("pretrain", *paths, *asked).count(" 50.0% of the tokens") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "animals=1,number=1"], "data/number is not prepared data"),
        (["--data", "animals=0,days=1"], "mixture.weights = animals=0 must be NAME=NUMBER"),
        (["--data", "animals=,days=1"], "mixture.weights = animals= must be NAME=NUMBER"),
        (["--data", "animals=1,days"], "mixture.weights = animals=1 has no weight for days"),
        (["--data", "animals=1"], "mixture.weights = animals=1 needs two prepared folders"),
        (["--data", "animals,animals"], "are both called animals"),
        (["--data", "animals=1,memory://nowhere/x=1"], "memory://nowhere/x/manifest.json cannot"),
        (["--data", "animals,days", "pydocs"], "Remove the other text"),
        (["--data", "animals,days", "--mixture.weights", "animal=1,days=1"],
         "mixture.weights = animal is not one of the sources animals, days. Did you me"),
        (["--data", "animals=1,days=1", "--mixture.temperature", "2"], "Remove --mixture"),
        (["--data", "animals,days", "--mixture.temperature", "0"], "temperature = 0.0 must"),
        (["--data", "animals,days", "--mixture.temperature", "2", "--mixture.epochs", "days=2"],
         "cannot be combined with epochs"),
        (["--data", "animals,days", "--data.pairs", "next"], "data.pairs = next needs a single"),
        (["--data", "animals,alien"], "with another tokenizer than"),
        (["--data", "animals,days", "--tokenizer.vocab_size", "500"], "has no effect"),
        (["pydocs", "--mixture.weights", "a=1"], "needs two prepared folders or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_mixed(place: Path, cli: Cli, arguments: list[str], message: str) -> None:
    assert message in cli.refuse("pretrain", *arguments, *flags(place))


def test_the_remedy_for_another_tokenizer_can_be_run(place: Path) -> None:
    names = ("animals", "alien")
    with pytest.raises(ShardError) as caught:
        PreparedMixture({name: place / "data" / name for name in names}, MixtureConfig())
    command = str(caught.value).partition("maskwright ")[2].partition(" (with")[0].split()
    assert main([*command, "--corpus.valid_fraction", "0.1"]) == 0
    mended = {"animals": place / "data" / "animals", "alien-again": place / "data" / "alien-again"}
    assert PreparedMixture(mended, MixtureConfig()).epoch_tokens > 0


def test_prepared_data_beside_text_says_how_to_prepare_that_too(place: Path, cli: Cli) -> None:
    given = [str(place / "data" / "animals"), str(place / "days.txt")]
    message = cli.refuse("pretrain", *given, *flags(place))
    assert f"maskwright prepare {given[1]} --out data/NAME --tokenizer.path {given[0]}" in message


def test_shares_cannot_change_when_a_run_goes_on(place: Path, cli: Cli) -> None:
    asked = ["--data", "days=1,animals=1", "--name", "both", "--auto-resume", *flags(place)]
    message = cli.refuse("pretrain", *asked)
    assert "mixture.weights" in message
    assert "cannot change when a run is resumed" in message
