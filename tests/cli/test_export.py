import json
from pathlib import Path
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.interop import onnx_int8
from maskwright.interop.comparison import pad_rows
from maskwright.interop.masked_lm_source import find_prepared_data
from maskwright.interop.onnx import OnnxModel
from maskwright.interop.onnx_int8 import DYNAMIC_RECIPES, STATIC_RECIPES
from maskwright.model_folder.folder import open_model
from tests.command import Cli
from tests.interop.receiving_hub import Hub
from tests.workplace import data_of

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


@pytest.fixture
def export(workplace: Path, tmp_path: Path, traced_once: None) -> list[str]:
    """The command to export the run to int8."""
    run = str(workplace / "runs/small")
    return ["export", run, "--to", "onnx-int8", "--out", str(tmp_path / "out")]


def test_a_run_finds_its_own_held_out_text_and_int8_is_scored_on_it(
    export: list[str], workplace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    capfd.readouterr()
    assert main(export) == 0
    said, complaints = capfd.readouterr()
    assert complaints == ""
    assert len(said.splitlines()) in (4, 5)  # the fifth: whether int8 is slower on this machine
    record = json.loads((tmp_path / "out/export.json").read_text())
    scores: dict[str, Any] = record["int8"]
    assert record["compared"]["largest"] <= 1e-4
    number, _, unit = scores["questions"].partition(" ")
    assert int(number.replace(",", "")) > 200
    assert unit == "masked tokens of held-out text"
    assert 0.9 <= scores["same"] <= 1
    assert scores["score_fp32"] > 0.4
    assert abs(scores["score_fp32"] - scores["score_int8"]) < 0.05
    assert scores["bytes_int8"] < scores["bytes_fp32"]
    assert f"{scores['same']:.1%}" in said
    assert scores["questions"] in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*record["files"], "export.json"}
    quantized = OnnxModel(tmp_path / "out/model_quantized.onnx")
    loaded = open_model(workplace / "runs/small/model")
    batch = pad_rows([[2, 10, 11, 12, 4, 3], [2, 4, 3]], loaded.tokenizer.pad_id)
    assert quantized(*batch).shape == (2, 6, 128)


def test_too_much_lost_in_int8_fails_and_leaves_nothing(
    export: list[str], workplace: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    tried: list[object] = []

    def quantize_badly(source: Path, target: Path, recipe: object, _: object) -> None:
        onnx: Any = pytest.importorskip("onnx")
        tried.append(recipe)
        graph = onnx.load(source)
        for weight in graph.graph.initializer:
            if weight.name.endswith("mlp.input.weight"):
                values = 30 * onnx.numpy_helper.to_array(weight)
                weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
        onnx.save(graph, target)

    monkeypatch.setattr(onnx_int8, "quantize", quantize_badly)
    assert "--max-loss = 0.01" in cli.refuse(*export)
    assert tried == list(DYNAMIC_RECIPES)
    assert main([*export, "--max-loss", "1"]) == 2  # too many predictions change
    assert main([*export, "--calibrate", str(data_of(workplace))]) == 2
    assert tried[-2:] == list(STATIC_RECIPES)
    assert list(tmp_path.iterdir()) == []


def test_the_first_recipe_that_loses_little_is_taken(
    export: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real, written = onnx_int8.quantize, list[object]()

    def fail_once(source: Path, target: Path, recipe: Any, calibration: Any) -> None:
        real(source, target, recipe, calibration)
        written.append(recipe)
        if len(written) == 1:
            onnx: Any = pytest.importorskip("onnx")
            graph = onnx.load(target)
            for weight in graph.graph.initializer:
                if weight.name.endswith("weight_scale"):
                    weight.CopyFrom(
                        onnx.numpy_helper.from_array(
                            -onnx.numpy_helper.to_array(weight), weight.name
                        )
                    )
            onnx.save(graph, target)

    monkeypatch.setattr(onnx_int8, "quantize", fail_once)
    assert main(export) == 0
    assert written == list(DYNAMIC_RECIPES)
    scores = json.loads((tmp_path / "out/export.json").read_text())["int8"]
    assert scores["recipe"] == DYNAMIC_RECIPES[1].describe()


@pytest.mark.parametrize("text", ["prepared", "animals.txt"])
def test_int8_is_static_after_calibration(
    export: list[str], workplace: Path, tmp_path: Path, text: str
):
    source = data_of(workplace) if text == "prepared" else workplace / text
    assert main([*export, "--calibrate", str(source)]) == 0
    scores = json.loads((tmp_path / "out/export.json").read_text())["int8"]
    assert scores["recipe"] in [one.describe() for one in STATIC_RECIPES]  # by the machine
    assert scores["score_fp32"] - scores["score_int8"] <= 0.01


@pytest.mark.parametrize(
    ("to", "options", "field"),
    [
        ("onnx", ["--calibrate", "text.txt"], "--calibrate"),
        ("hf", ["--max-loss", "0.1"], "--max-loss"),
        ("onnx-int8", ["--max-loss", "-1"], "--max-loss = -1"),
        ("onnx-int8", ["--max-loss", "nan"], "--max-loss = nan"),
        ("onnx-int8", ["--calibrate", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_settings_of_int8_that_do_not_fit_are_refused(
    workplace: Path, tmp_path: Path, to: str, options: list[str], field: str, cli: Cli
):
    run, out = str(workplace / "runs/small"), str(tmp_path / "out")
    assert field in cli.refuse("export", run, "--to", to, "--out", out, *options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["hf", "sentence-transformers"])
def test_other_targets(workplace: Path, tmp_path: Path, to: str, cli: Cli):
    pytest.importorskip("sentence_transformers")
    run, out = workplace / "runs/small", tmp_path / "out"
    said = cli("export", run, "--to", to, "--out", out)
    [data] = (workplace / "data").iterdir()
    assert f"({data.name})" in said
    assert "largest difference of" in said
    assert (out / "export.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "onnx-int8"], "needs held-out text"),
        (["--to", "tflite"], "invalid choice: 'tflite'"),
        (["--to", "hf", "--data", "nowhere"], "--data = nowhere is not a folder that maskwright"),
        ([], "the following arguments are required: --to"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    workplace: Path, tmp_path: Path, arguments: list[str], said: str, cli: Cli
):
    model = str(workplace / "runs/small/model")  # not the run, so its data is not known
    assert said in cli.refuse("export", model, "--out", tmp_path / "out", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_the_current_folder_is_not_written_over(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    monkeypatch.chdir(tmp_path)
    model = str((workplace / "runs/small/model").resolve())
    assert "--out = . must be a new folder" in cli.refuse(
        "export", model, "--to", "hf", "--out", "."
    )


def test_data_that_is_gone_is_not_found(workplace: Path, tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    assert find_prepared_data(run, None) is None
    (run / "config.yaml").write_text("{}")
    assert find_prepared_data(run, None) is None
    provenance = json.loads((workplace / "runs/small/provenance.json").read_text())
    (run / "provenance.json").write_text(json.dumps(provenance))
    assert find_prepared_data(run, None) == Path(provenance["prepared_data"])
    (run / "provenance.json").write_text(json.dumps({**provenance, "prepared_data": "nowhere"}))
    assert find_prepared_data(run, None) is None


@pytest.fixture
def publish(workplace: Path) -> list[str]:
    return ["publish", str(workplace / "runs/small"), "--repo", "me/animals"]


def test_a_dry_run_shows_files_and_card_and_asks_no_network(
    publish: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("socket.socket.connect", None)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    said = cli(*publish, "--dry-run", "--license", "cc0-1.0", "--language", "en,ko")
    above, _, card = said.partition("\n---\n")
    assert [line.split()[0] for line in above.strip().splitlines()] == [
        *("README.md", "config.json", "tokenizer.json", "tokenizer_config.json"),
        "model.safetensors",
    ]
    assert "license: cc0-1.0\nlanguage:\n- en\n- ko\n" in card
    assert "\nNothing was uploaded. " in card


def test_the_card_says_how_the_model_came_about_and_not_where(
    publish: list[str], workplace: Path, cli: Cli
):
    card = cli(*publish, "--dry-run")
    for part in ("unigram baseline", "Seed 0, 150 steps", "torch 2", "`animals.txt`", "- animals"):
        assert part in card
    assert str(workplace) not in card


def test_a_run_is_published(publish: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch):
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", hub.open)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert "published: https://hub.test/me/animals/tree/v1" in cli(
        *publish, "--private", "--revision", "v1", "--message", "First"
    )
    [(name, branch, message, files)] = hub.commits
    assert (name, branch, message, len(files)) == ("me/animals", "v1", "First", 5)
    assert hub.repositories == {"me/animals": True}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--repo", "me/animals"], "ModelFolderError: nowhere is not a folder"),
        (["RUN", "--repo", "animals"], "InputError: --repo = animals must be OWNER/NAME"),
        (["RUN"], "the following arguments are required: --repo"),
        (["RUN", "--repo", "me/animals", "--licence", "mit"], "did you mean --license?"),
    ],
)
def test_what_cannot_be_published_is_one_line(
    workplace: Path, arguments: list[str], said: str, cli: Cli
):
    run = str(workplace / "runs/small")
    assert said in cli.refuse("publish", *(run if part == "RUN" else part for part in arguments))
