import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from maskwright.errors import ExportError, InputError, MissingPackageError, ModelFolderError
from maskwright.extras import how_to_install
from maskwright.interop import masked_lm_source as masked_model
from maskwright.interop import transformers as to_transformers
from maskwright.interop import vector_source
from maskwright.interop.comparison import OutputComparison
from maskwright.interop.export import export
from maskwright.interop.targets import TARGETS, Target
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import open_model, read_dimensions, save_model, write_dimensions
from tests.command import Cli
from tests.interop.models import LONGEST, NATIVE, OWN, write_model

pytest.importorskip("transformers")


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return write_model(tmp_path / "bert", NATIVE["bert"], "# Larvae\n\nThey glow.")


@pytest.mark.parametrize("preset", NATIVE)
def test_hf_gives_the_same_ids_and_logits(tmp_path: Path, preset: str):
    folder = write_model(tmp_path / "model", NATIVE[preset], "# Larvae")
    report = export(folder, "hf", tmp_path / "out")
    assert report.comparison.largest <= 1e-5
    assert report.comparison.num_texts > 20
    assert report.source == "pydocs"
    ours, theirs = open_model(folder).model, open_model(tmp_path / "out").model
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)
    assert (tmp_path / "out/README.md").read_text() == (folder / "README.md").read_text()


@pytest.mark.parametrize("to", ["hf", "sentence-transformers"])
def test_a_head_that_judges_pairs_is_in_nobodys_way(tmp_path: Path, to: str):
    """It stays where there is a class for it, and is left out elsewhere."""
    pytest.importorskip("transformers" if to == "hf" else "sentence_transformers")
    folder = write_model(tmp_path / "model", NATIVE["bert"], judges_pairs=True)
    assert export(folder, to, tmp_path / "out").comparison.largest <= 1e-5
    if to == "hf":
        assert open_model(tmp_path / "out").model.pair_head is not None


@pytest.mark.parametrize("to", ["hf", "sentence-transformers"])
def test_what_transformers_does_not_compute_is_refused_with_the_reason(tmp_path: Path, to: str):
    folder = write_model(tmp_path / "model", OWN)
    with pytest.raises(ExportError, match=r"no class of transformers .*qk_norm = True.*to onnx"):
        export(folder, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_class_whose_code_is_on_the_hub_is_not_loaded(tmp_path: Path):
    folder = write_model(tmp_path / "model", {"preset": "neobert"})
    with pytest.raises(ExportError, match=r"NeoBERTLMHead is in chandar-lab/NeoBERT .*to onnx"):
        export(folder, "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("preset", NATIVE)
def test_sentence_transformers_gives_the_same_vectors(
    tmp_path: Path, preset: str, capfd: pytest.CaptureFixture[str]
):
    library = pytest.importorskip("sentence_transformers")
    folder = write_model(tmp_path / "model", NATIVE[preset])
    capfd.readouterr()
    report = export(folder, "sentence-transformers", tmp_path / "out")
    assert report.comparison.largest <= 1e-6
    model = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert model.max_seq_length == LONGEST
    vectors = model.encode(["the cat sat", "a bird flew under the tree " * 20])
    assert torch.tensor(vectors).norm(dim=1).tolist() == pytest.approx([1.0, 1.0])
    assert "MISSING" not in capfd.readouterr().err
    card = (tmp_path / "out/README.md").read_text()
    assert "library_name: sentence-transformers" in card
    assert "fine-tune it if vectors should show similarity" in card
    with pytest.raises(ModelFolderError, match="no head"):
        open_model(tmp_path / "out")


def test_the_card_of_a_model_of_vectors_says_so(tmp_path: Path):
    pytest.importorskip("sentence_transformers")
    folder = write_model(tmp_path / "model", NATIVE["bert"])
    (folder / "README.md").write_text("---\npipeline_tag: sentence-similarity\n---\n# Vectors\n")
    write_dimensions(folder, [8, 32])
    export(folder, "sentence-transformers", tmp_path / "out")
    assert read_dimensions(tmp_path / "out") == [8, 32]
    card = (tmp_path / "out/README.md").read_text()
    assert "similar vectors to texts that belong together" in card
    assert "fine-tune it" not in card


def test_text_embeddings_inference_finds_its_fields_of_modernbert(tmp_path: Path):
    """Those without a default in its ``backends/candle/src/models/modernbert.rs``."""
    pytest.importorskip("sentence_transformers")
    folder = write_model(tmp_path / "model", NATIVE["modernbert"])
    export(folder, "sentence-transformers", tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    sizes = ("vocab", "hidden", "intermediate")
    ids = (f"{role}_token_id" for role in ("pad", "eos", "bos", "cls", "sep"))
    needed = {
        *(f"{name}_size" for name in sizes), "num_hidden_layers", "num_attention_heads", *ids,
        "hidden_activation", "max_position_embeddings", "initializer_range", "norm_eps",
        "initializer_cutoff_factor", "norm_bias", "global_rope_theta", "attention_bias",
        "attention_dropout", "global_attn_every_n_layers", "local_attention", "local_rope_theta",
        "classifier_activation",
    }  # fmt: skip
    assert needed <= config.keys()
    assert config["architectures"] == ["ModernBertModel"]  # by which vLLM finds its class


def damage(model: MaskedLanguageModel) -> None:
    """One number of one matrix in the middle."""
    with torch.no_grad():
        model.get_parameter("encoder.blocks.0.mlp.output.weight")[3, 5] += 1.0


@pytest.mark.parametrize("to", ["hf", "sentence-transformers"])
def test_another_function_is_noticed_and_nothing_of_it_stays(
    bert: Path, tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
):
    def save_damaged(folder: Path, model: Any, tokenizer: Any, **options: Any) -> None:
        copy = open_model(bert).model
        damage(copy)
        save_model(folder, copy, tokenizer, **options)

    for module in (masked_model, vector_source):
        monkeypatch.setattr(module, "save_model", save_damaged)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ExportError, match=r"differ by up to .* is allowed. Nothing was written"):
        export(bert, to, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_other_ids_are_noticed(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def save_other_tokenizer(folder: Path, *arguments: Any, **options: Any) -> None:
        save_model(folder, *arguments, **options)
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace('"Lowercase"', '"StripAccents"'))

    monkeypatch.setattr(masked_model, "save_model", save_other_tokenizer)
    with pytest.raises(ExportError, match="returns other ids for 'The"):
        export(bert, "hf", tmp_path / "out")


def test_a_tensor_that_transformers_would_make_up_is_noticed(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def save_without_a_tensor(folder: Path, *arguments: Any, **options: Any) -> None:
        save_model(folder, *arguments, **options)
        path = folder / "model.safetensors"
        tensors = load_file(path)
        del tensors["cls.predictions.transform.dense.weight"]
        save_file(tensors, path, metadata={"format": "pt"})

    monkeypatch.setattr(masked_model, "save_model", save_without_a_tensor)
    with pytest.raises(ExportError, match=r"missing keys: cls\.predictions\.transform"):
        export(bert, "hf", tmp_path / "out")


@pytest.mark.parametrize("largest", [1.1e-4, float("nan"), float("inf")])
def test_what_is_no_rounding_does_not_pass(largest: float):
    with pytest.raises(ExportError, match="logits differ"):
        OutputComparison("logits", largest, 1e-4, 1, 1).check("a library")
    OutputComparison("logits", 1e-4, 1e-4, 1, 1).check("a library")


def test_nothing_is_replaced(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "out"
    out.mkdir()
    assert export(bert, "hf", out).folder == out  # an empty folder is as good as none
    before = {path: path.read_bytes() for path in out.iterdir()}
    monkeypatch.setattr(to_transformers, "load_whole", None)  # it does not come that far
    for taken in (out, bert, out / "README.md"):
        with pytest.raises(InputError, match=r"exists already\. Choose another folder"):
            export(bert, "hf", taken)
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize(
    ("to", "package", "extra"),
    [
        ("hf", "transformers", "sentence-transformers"),
        ("sentence-transformers", "sentence_transformers", "sentence-transformers"),
        ("onnx", "onnxscript", "onnx"),
        ("openvino", "openvino", "openvino"),
    ],
)
def test_a_missing_package_names_its_extra(
    bert: Path, tmp_path: Path, to: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("maskwright.interop.export.find_version", lambda name: None)
    message = rf"needs the package {package}.*{re.escape(how_to_install(extra))}"
    with pytest.raises(MissingPackageError, match=message):
        export(bert, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_int8_without_held_out_text_is_refused(bert: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"needs held-out text .* --data"):
        export(bert, "onnx-int8", tmp_path / "out")


def test_unknown_targets_and_folders_are_refused(bert: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"--to = tflite must be one of .*hf, onnx"):
        export(bert, "tflite", tmp_path / "out")
    with pytest.raises(ModelFolderError, match="is not a folder"):
        export(tmp_path / "nowhere", "hf", tmp_path / "out")
    onnx = {"onnx", "onnx-int8", "openvino", "transformers-js"}
    assert set(TARGETS) == {"gguf", "hf", "sentence-transformers", *onnx}


def test_a_target_is_one_file_and_one_line_of_registration(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    toy = Target("tests.interop.toy_target:write", ("torch",))
    monkeypatch.setitem(TARGETS, "toy", toy)
    said = cli("export", bert, "--to", "toy", "--out", tmp_path / "out").splitlines()
    assert said[0].endswith("for toy")
    assert said[1].startswith("torch ")
    assert said[2:] == ["a toy"]
    record = json.loads((tmp_path / "out/export.json").read_text())
    assert (record["to"], record["compared"]["what"]) == ("toy", "logits")
