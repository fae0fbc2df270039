"""A model card says what a model is made of, and nothing about the machine or by markup."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from maskwright.config import fields_of, to_mapping
from maskwright.logs import Record
from maskwright.pretraining.build import objective_of
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.pretraining.run_session import describe_training
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.run_directory import shorten_path, shorten_paths
from tests.workplace import data_of

_NAMES = (
    "masked_accuracy masked_accuracy_top5 seen_mask_accuracy loss unigram_accuracy unigram_loss"
)
FINAL: dict[str, Any] = {
    **dict.fromkeys(_NAMES.split(), 0.5),
    **{"num_predictions": 10, "step": 3, "tokens": 9, "seconds": 60.0},
}
# The text settings that name no file.
WORDS = {
    "model.sizes",
    *("corpus.encoding", "corpus.text_field", "select.language"),
    *("mixture.weights", "mixture.epochs"),
    *("masking.no_mask_tokens", "masking.strategy", "train.device", "objective.name"),
    *("train.batch_tokens_schedule", "train.seq_length_schedule", "train.checkpoint_words"),
    *("train.trackers", "corpus.replace", "tokenizer.pattern", "tokenizer.alphabet"),
}
HOSTILE = "]x](http://evil)<img src=x> ```\n# h | [a](http://evil) `` www.evil.com $x$ **b"


@pytest.fixture
def data(workplace: Path) -> PreparedData:
    return PreparedData(data_of(workplace), "sizes")


def describe(
    name: str, config: PretrainConfig, data: PreparedData, final: Record, origin: Any = None
) -> str:
    title, objective = "A masked language model", objective_of(config)
    return describe_training(name, "1", config, data, objective, title, final, origin=origin)


def private_config() -> PretrainConfig:
    """A configuration in which every path has folders that are nobody's business."""
    values: dict[str, Any] = {"text": ["/home/secret/a.txt", "../../secret/b.txt", "~/secret/c"]}
    values["corpus"] = {"valid_text": ["secret/valid.txt"]}
    values["select"] = {"decontaminate": ["../secret/*.jsonl"]}
    values["tokenizer"] = {"path": "/srv/secret/tokenizer"}
    values["evaluate"] = {"suites": ["blimp"], "blimp": "/home/secret/blimp"}
    return resolve("tiny", None, values)


def test_every_text_setting_is_a_path_or_known_not_to_be() -> None:
    texts = {info.name for info in fields_of(PretrainConfig) if "str" in str(info.annotation)}
    texts = {name for name in texts if "Literal" not in str(annotation_of(name))}
    assert {info.name for info in fields_of(PretrainConfig) if info.is_path} == texts - WORDS
    assert texts >= WORDS


def annotation_of(name: str) -> Any:
    return next(info.annotation for info in fields_of(PretrainConfig) if info.name == name)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/jane/wiki.txt", "wiki.txt"),
        ("../../jane/wiki.txt", "wiki.txt"),
        ("data/**/*.txt", "*.txt"),
        ("~/jane", "jane"),
        ("wiki.txt", "wiki.txt"),
        ("pydocs", "pydocs"),
        ("hf:me/larvae:en#body", "hf:me/larvae:en#body"),
        ("hf:/home/jane/set#body", "hf:set#body"),
        ("hf:../jane/set", "hf:set"),
        ("s3://bucket/data/wiki", "s3://bucket/data/wiki"),
        ("https://TOKEN@host/data?sig=TOKEN#TOKEN", "https://host/data"),
        ("https://me:TOKEN@host/data", "https://host/data"),
        ("file:///home/jane/data", "data"),
        ("https://[TOKEN@/data", "data"),
    ],
)
def test_of_a_path_the_name_is_shown(path: str, shown: str) -> None:
    assert shorten_path(path) == shown


def test_no_setting_shows_where_files_are() -> None:
    config = private_config()
    shown = json.dumps(shorten_paths(to_mapping(config)))
    assert "secret" in json.dumps(to_mapping(config))
    assert "secret" not in shown
    assert "valid.txt" in shown
    begun = replace(config, init_from="hf:me/bert")
    assert shorten_paths(to_mapping(begun))["tokenizer"]["path"] is None


def test_no_card_shows_where_files_are(data: PreparedData) -> None:
    card = describe("run", private_config(), data, FINAL)
    assert "secret" not in card
    assert "`tokenizer`" in card
    assert data.tokenizer.case in card


def test_markdown_of_a_foreign_manifest_stays_text(data: PreparedData) -> None:
    manifest = data.train.manifest
    data.train.manifest = replace(manifest, source={**manifest.source, "paths": [HOSTILE, 3]})
    of_sources = {f"{name}/{HOSTILE}": 0.25 for name in ("loss", "seen_mask_accuracy")}
    config = resolve("tiny", None, {"text": [HOSTILE]})
    origin = {"name": HOSTILE, "sha256": {HOSTILE: HOSTILE}}
    card = describe(HOSTILE, config, data, FINAL | of_sources, origin)
    # The one piece of HTML that is ours.
    html = MarkdownIt("commonmark", {"linkify": False}).enable("table").render(card)
    html = html.replace("<details>\n<summary>The whole configuration</summary>", "")
    for tag in ("<a ", "<img", "<h1>h", "<strong>"):
        assert tag not in html
    assert html.count("<h1>") == 1
    assert html.count("<pre>") == 1
    row = html[html.index("accuracy on [MASK], ") :].partition("</tr>")[0]
    assert row.count("<td>") == 2


def test_a_manifest_may_say_nothing_of_its_text(data: PreparedData) -> None:
    for source in ({}, {"paths": 3}):
        data.train.manifest = replace(data.train.manifest, source=source)
        assert "unknown text: " in describe("run", private_config(), data, FINAL)


def test_the_card_of_a_run_begins_with_its_use(workplace: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(workplace / "runs" / "small" / "model", tmp_path / "model")
    card = (folder / "README.md").read_text(encoding="utf-8")
    sections = [line for line in card.splitlines() if line.startswith(("# ", "## ", "<details>"))]
    assert sections == [
        *("# small", "## Use", "## Architecture", "## Scores", "## Data", "## Training"),
        "<details>",
    ]
