import json
import re
import shutil
from ast import literal_eval
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from transformers import AutoModelForMaskedLM

from maskwright.attention_context import context_from_lengths
from maskwright.errors import ExportError
from maskwright.interop import onnx
from maskwright.interop.comparison import pad_rows
from maskwright.interop.export import ExportResult, export
from maskwright.interop.onnx import GRAPH, OnnxModel, PaddedModel
from maskwright.interop.onnx_int8 import (
    DYNAMIC_RECIPES,
    STATIC_RECIPES,
    QuantizationRecipe,
    quantize,
)
from maskwright.model_folder.folder import open_model
from maskwright.tokenizer.config import TokenizerKind
from tests.interop.models import LONGEST, PRESETS, encode, write_model
from tests.models import small_model
from tests.tokenizer.helpers import trained

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
KINDS = dict(zip(PRESETS, get_args(TokenizerKind), strict=True))  # a tokenizer for each model
LENGTHS = ([1], [LONGEST], [2, 7, 1], [LONGEST, 3, 30, 9])  # none is of the shape that was traced


@pytest.fixture(scope="module", params=PRESETS)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, traced_once: None
) -> tuple[str, Path, ExportResult]:
    """A model folder and its export. A graph has no head that judges pairs."""
    preset, folder = request.param, tmp_path_factory.mktemp(request.param)
    tokenizer, pairs = trained(KINDS[preset]), preset == "bert"
    with pytest.MonkeyPatch.context() as patch:
        if preset == "own":
            patch.setattr(onnx, "MAX_BYTES_WITHIN", 0)  # as if it had gigabytes
        fields = PRESETS[preset]
        write_model(folder / "model", fields, "# Larvae", judges_pairs=pairs, tokenizer=tokenizer)
        report = export(folder / "model", "onnx", folder / "out")
    return preset, folder, report


def test_onnx_gives_the_same_logits_for_sizes_that_were_not_traced(
    exported: tuple[str, Path, ExportResult],
):
    preset, folder, report = exported
    assert report.comparison.largest <= 1e-5
    assert report.comparison.num_texts > 20
    names = {"config.json", "tokenizer.json", "tokenizer_config.json", "README.md", GRAPH}
    names |= {f"{GRAPH}.data"} if preset == "own" else set()
    assert set(report.files) == names
    assert json.loads((folder / "out/export.json").read_text())["to"] == "onnx"
    card = (folder / "out/README.md").read_text()
    assert card.startswith("---\nlibrary_name: onnx\n")
    assert "\n# Larvae\n" in card
    assert "AutoModelForMaskedLM" not in card
    loaded, graph = open_model(folder / "model"), OnnxModel(folder / "out" / GRAPH)
    for lengths in LENGTHS:
        batch = pad_rows([[5 + position % 50 for position in range(n)] for n in lengths], 0)
        real = batch[1].bool()
        ours = loaded.model.head(encode(loaded, batch)[real])
        theirs = graph(*batch)[real]
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_another_graph_is_noticed_and_nothing_of_it_stays(
    exported: tuple[str, Path, ExportResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, folder, _ = exported
    write_other_graph(folder / "out" / GRAPH, tmp_path / "other.onnx")
    monkeypatch.setattr(
        onnx, "write_graph", lambda path, model: shutil.copy(tmp_path / "other.onnx", path)
    )
    with pytest.raises(ExportError, match=r"onnxruntime computes .* differ by up to .* Nothing"):
        export(folder / "model", "onnx", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["other.onnx"]


def write_other_graph(source: Path, target: Path) -> None:
    """The same graph with one number of one matrix changed."""
    library: Any = pytest.importorskip("onnx")
    graph = library.load(source)
    [weight] = [w for w in graph.graph.initializer if w.name.endswith("0.mlp.output.weight")]
    values = library.numpy_helper.to_array(weight).copy()
    values[3, 5] += 1.0
    weight.CopyFrom(library.numpy_helper.from_array(values, weight.name))
    library.save(graph, target)


def test_int8_is_near_and_has_its_weights_beside_it_where_fp32_has(
    exported: tuple[str, Path, ExportResult], tmp_path: Path
):
    source = exported[1] / "out" / GRAPH
    inputs = pad_rows([[5, 6, 7, 8, 9], [10, 11, 3]], 0)
    plain = OnnxModel(source)(*inputs)
    for recipe in (DYNAMIC_RECIPES[-1], STATIC_RECIPES[0]):
        quantize(source, tmp_path / "int8.onnx", recipe, [inputs])
        assert (tmp_path / "int8.onnx.data").exists() == (exported[0] == "own")
        int8 = OnnxModel(tmp_path / "int8.onnx")(*inputs)
        assert 0 < (plain - int8).abs().mean() < 0.05 * plain.std()


def test_padding_on_the_left_is_masked_in_fp32_and_int8(
    exported: tuple[str, Path, ExportResult], tmp_path: Path
):
    """A fused attention that takes the lengths of rows, not the mask, would see padding."""
    source = exported[1] / "out" / GRAPH
    right = pad_rows([[5, 6, 7, 8, 9, 10, 11], [10, 11, 3], [4]], 0)
    ids, mask = (torch.zeros_like(one) for one in right)
    for row, length in enumerate((7, 3, 1)):
        ids[row, 7 - length :], mask[row, 7 - length :] = right[0][row, :length], 1
    inputs = (ids, mask)
    plain = OnnxModel(source)(*inputs)[mask.bool()]
    if exported[0] != "own":
        theirs = AutoModelForMaskedLM.from_pretrained(exported[1] / "model").eval()
        with torch.no_grad():
            expected = theirs(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        torch.testing.assert_close(plain, expected, atol=1e-5, rtol=0)
    for recipe in (*DYNAMIC_RECIPES, *STATIC_RECIPES):
        quantize(source, tmp_path / "int8.onnx", recipe, [inputs])
        int8 = OnnxModel(tmp_path / "int8.onnx")(*inputs)[mask.bool()]
        assert (plain - int8).abs().mean() < 0.05 * plain.std()


@pytest.mark.parametrize("recipe", [DYNAMIC_RECIPES[0], STATIC_RECIPES[0]])
def test_int8_is_what_is_stored_and_what_onnxruntime_computes_in(
    exported: tuple[str, Path, ExportResult], tmp_path: Path, recipe: QuantizationRecipe
):
    """A tied decoder has no matrix of its own, and no product of integers is done in fp32."""
    library: Any = pytest.importorskip("onnx")
    runtime: Any = pytest.importorskip("onnxruntime")
    source, target = exported[1] / "out" / GRAPH, tmp_path / "int8.onnx"
    quantize(source, target, recipe, [(torch.ones(2, 5).long(), torch.ones(2, 5).long())])
    before, after = library.load(source).graph, library.load(target).graph
    floats, integers = library.TensorProto.FLOAT, library.TensorProto.INT8
    assert count_matrices(before, floats) == count_matrices(after, integers)
    assert count_matrices(after, floats) == 0
    options = runtime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    runtime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    nodes = library.load(tmp_path / "optimized.onnx", load_external_data=False).graph.node
    in_fp32 = len(open_model(exported[1] / "model").model.encoder.blocks)  # one in each block
    products = sum(node.op_type == "Gemm" for node in before.node) - in_fp32
    computed = ("QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
    assert sum(node.op_type in computed for node in nodes) == products > 2


def count_matrices(graph: Any, kind: int) -> int:
    matrices = (one for one in graph.initializer if len(one.dims) == 2 and min(one.dims) > 1)
    return sum(one.data_type == kind for one in matrices)


def test_the_padded_model_predicts_from_the_token_before():
    model = small_model(next_token_prediction=True).eval()
    input_ids, attention_mask = pad_rows([[2, 9, 10, 11, 3], [2, 12, 3]], 0)
    logits = PaddedModel(model)(input_ids, attention_mask)
    context = context_from_lengths([5, 3])
    expected = model(input_ids.flatten(), context, torch.tensor([1, 4, 6, 7]))
    theirs = logits.flatten(0, 1)[[1, 4, 6, 7]]
    torch.testing.assert_close(theirs, expected, atol=1e-5, rtol=0)


def test_the_program_of_the_docs_fills_masks_of_every_tokenizer(
    exported: tuple[str, Path, ExportResult], capsys: pytest.CaptureFixture[str]
):
    page = Path(__file__).parents[2].joinpath("docs", "interchange.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    (program,) = (block for block in blocks if "InferenceSession" in block)
    exec(program.replace("exports/NAME", str(exported[1] / "out")), {})
    assert len(literal_eval(capsys.readouterr().out)) == 3
