"""Export to ONNX in int8, by the first of several recipes that keeps the fp32 graph's score.

``onnxruntime.quantization`` quantizes the products: their weights once, with a scale for each
output, and their inputs while the graph runs, with one scale for all tokens of a batch (dynamic),
or with the ranges of a text for calibration (static).

Tables, and weights of products in fp32, are stored in int8 here. The library has one scale for a
table, a second copy of it for a tied decoder, and leaves those weights in fp32: with 3 layers of
192 and 8,192 tokens 5.9 MB instead of 3.3. onnxruntime converts them when it loads the graph.

The instruction for signed weights adds pairs of products in 16 bits, which overflow unless the
weights have 7 bits; the instruction for unsigned weights does not overflow and is 10 % slower. The
second product of the MLP is the most sensitive one, because its inputs are products of two numbers;
it is small. Queries, keys and values are next.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from maskwright.errors import ExportError
from maskwright.interop.classifier_source import Judge, Source
from maskwright.interop.onnx import GRAPH, OnnxModel, write_frame, write_graph
from maskwright.interop.targets import Int8Scores, Written, import_library, quiet
from maskwright.interop.vector_source import VectorSource, need_logits

QUANTIZED = "model_quantized.onnx"
_NEEDED_BY = "an export to ONNX"
MIN_AGREEMENT = 0.90  # smallest agreement of the predictions; the score can stay while many change
_REPETITIONS = 9


@dataclass(frozen=True)
class QuantizationRecipe:
    """A recipe: the type of the weights, and the layers whose products stay in fp32.

    Attributes:
        is_static: activations have fixed ranges, which are those of a text for calibration.
    """

    weight_type: str
    in_fp32: tuple[str, ...]
    is_static: bool = False

    @property
    def bits(self) -> int:
        """The bits of a weight: 7 if signed, so that no sum overflows."""
        return 7 if self.weight_type == "QInt8" else 8

    def describe(self) -> str:
        """Return the recipe in words."""
        kind = "static" if self.is_static else "dynamic"
        weights = f"{self.weight_type} weights of {self.bits} bits"
        return f"{kind}, {weights}; in fp32: {', '.join(self.in_fp32)}"


# From the fastest to the most accurate.
DYNAMIC_RECIPES = (
    QuantizationRecipe("QInt8", ("mlp.output",)),
    QuantizationRecipe("QUInt8", ("mlp.output", "attention.qkv")),
)
STATIC_RECIPES = (
    QuantizationRecipe("QInt8", ("mlp.output",), is_static=True),
    QuantizationRecipe("QInt8", ("mlp.output", "attention.qkv"), is_static=True),
)


def write(folder: Path, source: Source) -> Written:
    """Write the graph, compare its logits, and quantize it (see `search_recipe`).

    Raises:
        ExportError: the outputs of the fp32 graph differ from the model's, or every recipe loses
            more than `Int8Options.max_loss` of the score, or changes too many predictions.
        InputError: there is no text to measure the score on.
        CorpusError, ShardError: the text for calibration cannot be read.
    """
    need_logits(source, "onnx-int8")
    assert not isinstance(source, VectorSource)
    judge, options = source.judge(), source.int8
    calibration = list(source.calibration(options.calibrate)) if options.calibrate else None
    write_frame(folder, source, QUANTIZED)
    graph = folder / "fp32" / GRAPH
    graph.parent.mkdir()
    write_graph(graph, source.model)
    comparison = source.compare(OnnxModel(graph))
    comparison.check("onnxruntime")
    scores = search_recipe(graph, folder / QUANTIZED, judge, options.max_loss, calibration)
    shutil.rmtree(graph.parent)
    return Written(comparison, scores)


Inputs = tuple[Tensor, ...]  # of a graph, in its order: [B, L] each


def search_recipe(
    source: Path,
    target: Path,
    judge: Judge,
    max_loss: float,
    calibration: Sequence[Inputs] | None = None,
) -> Int8Scores:
    """Quantize by the first recipe that loses at most `max_loss`; raise ExportError if none does.

    Args:
        calibration: the inputs to calibrate on, for static recipes; None for dynamic ones.
    """
    fp32 = OnnxModel(source)
    before = judge.answer(fp32)
    score, tried = judge.score(before), list[tuple[float, float]]()
    for recipe in STATIC_RECIPES if calibration else DYNAMIC_RECIPES:
        quantize(source, target, recipe, calibration or ())
        after = judge.answer(OnnxModel(target))
        tried.append((judge.score(after), judge.agree(before, after)))
        if score - tried[-1][0] <= max_loss and tried[-1][1] >= MIN_AGREEMENT:
            break
    else:
        best, same = max(tried)
        other = "without --calibrate" if calibration else "with --calibrate TEXT"
        raise ExportError(
            f"int8 loses too much. {judge.questions}: {judge.metric} {score:.4f} in fp32, "
            f"{best:.4f} in int8 (--max-loss = {max_loss:g}); {judge.agreement} {same:.1%}, of "
            f"which {MIN_AGREEMENT:.0%} must be. Nothing was written. Raise --max-loss, or export "
            f"{other}, or to onnx."
        )
    inputs, int8 = judge.timed_batch(), OnnxModel(target)
    num_rows, num_slots = map(int, inputs[0].shape)
    slow, fast = time_interleaved([lambda: fp32(*inputs), lambda: int8(*inputs)])
    return Int8Scores(
        recipe.describe(),
        judge.questions,
        judge.metric,
        score,
        tried[-1][0],
        judge.agreement,
        tried[-1][1],
        1e3 * slow,
        1e3 * fast,
        num_rows,
        num_slots,
        _size_of(source),
        _size_of(target),
    )


def time_interleaved(programs: list[Callable[[], object]]) -> list[float]:
    """Return the median time of each in seconds, measured in turns after one warm-up, so that other
    load on the machine affects all of them.
    """
    seconds: list[list[float]] = [[] for _ in programs]
    for repetition in range(_REPETITIONS + 1):
        for times, program in zip(seconds, programs, strict=True):
            started = time.perf_counter()
            program()
            if repetition:
                times.append(time.perf_counter() - started)
    return [statistics.median(times) for times in seconds]


def _size_of(graph: Path) -> int:
    return sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))


def quantize(
    source: Path, target: Path, recipe: QuantizationRecipe, calibration: Sequence[Inputs] = ()
) -> None:
    """Write a graph with int8 matrices and products; a static recipe needs `calibration`."""
    onnx: Any = import_library("onnx", "onnx", _NEEDED_BY)
    with quiet():
        library: Any = import_library("onnxruntime.quantization", "onnx", _NEEDED_BY)
        model = onnx.load(source)
        names = _store_in_int8(onnx, model.graph, tuple(f"{one}.weight" for one in recipe.in_fp32))
        options: dict[str, Any] = {
            "per_channel": True,
            "reduce_range": recipe.bits < 8,
            "weight_type": library.QuantType[recipe.weight_type],
            "use_external_data_format": source.with_name(f"{source.name}.data").exists(),
        }
        for old in target.parent.glob(f"{target.name}*"):  # onnx appends to an existing file
            old.unlink()
        if recipe.is_static:
            # Results stay in fp32: fixed ranges of them change twice as many predictions.
            options["extra_options"] = {"OpTypesToExcludeOutputQuantization": ["Gemm"]}
            options |= {"op_types_to_quantize": ["Gemm"], "nodes_to_quantize": names}
            library.quantize_static(model, target, _feed(model.graph, calibration), **options)
        else:
            wrapped = library.onnx_model.ONNXModel(model)
            wrapped.replace_gemm_with_matmul()  # which has integers while the graph runs
            options["extra_options"] = {"MatMulConstBOnly": False}  # a table is no constant
            options["nodes_to_quantize"] = [f"{name}_MatMul" for name in names]
            library.quantize_dynamic(
                wrapped.model, target, op_types_to_quantize=["MatMul"], **options
            )


def _feed(graph: Any, calibration: Sequence[Inputs]) -> SimpleNamespace:
    """Return a reader of calibration data: each call returns named inputs, None at the end."""
    names = [one.name for one in graph.input]
    feeds = (
        {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=False)}
        for tensors in calibration
    )
    return SimpleNamespace(get_next=lambda: next(feeds, None))


def _store_in_int8(onnx: Any, graph: Any, in_fp32: tuple[str, ...]) -> list[str]:
    """Store tables, and the weights of products in fp32, in int8 with a scale for each row.

    Args:
        in_fp32: endings of the weights whose products stay in fp32.

    Returns:
        The names of the other products.
    """
    del graph.value_info[:]  # the library transposes weights without them
    weights = {one.name: one for one in graph.initializer if len(one.dims) == 2}
    products = {
        node.name: node.input[1]
        for node in graph.node
        if node.op_type == "Gemm" and node.input[1] in weights
    }
    tables = weights.keys() & {node.input[0] for node in graph.node if node.op_type == "Gather"}
    stored = tables | {name for name in products.values() if name.endswith(in_fp32)}
    nodes: list[Any] = []

    def add(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        nodes.append(onnx.helper.make_node(operator, inputs, [output], output, **attributes))

    for name in sorted(stored):
        values = onnx.numpy_helper.to_array(weights[name])
        scales = np.maximum(np.abs(values).max(1, keepdims=True), 1e-9) / np.float32(127)
        graph.initializer.remove(weights[name])
        for what, one in (("rows", np.rint(values / scales).astype(np.int8)), ("scales", scales)):
            graph.initializer.append(onnx.numpy_helper.from_array(one, f"{name} {what}"))
        add("Cast", [f"{name} rows"], f"{name} numbers", to=onnx.TensorProto.FLOAT)
        add("Mul", [f"{name} numbers", f"{name} scales"], name)
    for node in graph.node:
        if node.op_type != "Gather" or node.input[0] not in stored:
            nodes.append(node)
            continue
        (table, ids), [found] = node.input, node.output
        add("Gather", [f"{table} rows", ids], f"{found} rows")
        add("Gather", [f"{table} scales", ids], f"{found} scales")
        add("Cast", [f"{found} rows"], f"{found} numbers", to=onnx.TensorProto.FLOAT)
        add("Mul", [f"{found} numbers", f"{found} scales"], found)
    del graph.node[:]
    graph.node.extend(nodes)
    return [name for name, weight in products.items() if not weight.endswith(in_fp32)]
