"""Export to ONNX in int8, by the first of several recipes that keeps the fp32 graph's score.

Weights are quantized once, with a scale for each output. Activations are quantized in one of two
ways:

- Dynamic, while the graph runs (``onnxruntime.quantization.quantize_dynamic``), with one scale for
  a whole tensor: one outlier in one token leaves little precision for all others, and the
  predictions for a sentence depend on its neighbors in the batch. So every row is divided by its
  largest number before the product, and multiplied by it afterwards, which gives every token its
  own scale (row-wise quantization in Dettmers et al., "LLM.int8()", 2022).
- Static, with the range of each tensor in a text for calibration (``quantize_static``). The graph
  does less and is faster, but tensors with outliers lose precision.

All matrices are stored in int8 (`compress`), because most bytes of a small model are embeddings.
These have a scale for each token; if the decoder is tied to them, both use one matrix. Weights of
products that stay in fp32 are stored in int8 too, and onnxruntime converts them when it loads the
graph.

The instruction for signed weights adds pairs of products in 16 bits, which overflow unless the
weights have 7 bits; the instruction for unsigned weights does not overflow and is 10 % slower. The
second product of the MLP is the most sensitive one, because its inputs are products of two numbers;
it is small. Queries, keys and values are next.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from maskwright.errors import ExportError
from maskwright.interop.int8 import Int8Scores
from maskwright.interop.libraries import import_library, quiet
from maskwright.interop.onnx import GRAPH, OnnxModel, write_frame, write_graph
from maskwright.interop.targets import Judge, Source, Target, Written

QUANTIZED = "model_quantized.onnx"
_NEEDED_BY = "an export to ONNX"
_SMALLEST, _LAST_AXIS = "smallest divisor of a row", "last axis"
FLOOR = 0.90  # smallest agreement of the predictions; the score can stay while many change
_REPETITIONS = 9


@dataclass(frozen=True)
class QuantizationRecipe:
    """A recipe: the weights' type and range, and the layers whose products stay in fp32.

    Attributes:
        is_static: activations have fixed ranges, which are those of a text for calibration.
    """

    weight_type: str
    reduce_range: bool
    in_fp32: tuple[str, ...]
    is_static: bool = False

    def describe(self) -> str:
        """Return the recipe in words."""
        bits = 7 if self.reduce_range else 8
        kind = "static" if self.is_static else "dynamic"
        weights = f"{self.weight_type} weights of {bits} bits"
        return f"{kind}, {weights}; in fp32: {', '.join(self.in_fp32)}"


# From the fastest to the most accurate.
DYNAMIC_RECIPES = (
    QuantizationRecipe("QInt8", True, ("mlp.output",)),
    QuantizationRecipe("QInt8", True, ("mlp.output", "attention.qkv")),
    QuantizationRecipe("QUInt8", False, ("mlp.output", "attention.qkv")),
)
# Sums with the residual stream are in fp32: onnxruntime fuses a product and a sum into a ``Gemm``,
# which it computes in integers only if what is added is a constant.
STATIC_RECIPES = tuple(
    QuantizationRecipe("QInt8", True, ("mlp.output", "attention.output", *more), is_static=True)
    for more in ((), ("attention.qkv",))
)


def write(folder: Path, source: Source) -> Written:
    """Write the graph, compare its logits, and quantize it (see `search_recipe`).

    Raises:
        ExportError: the outputs of the fp32 graph differ from the model's, or every recipe loses
            more than `Int8Options.max_loss` of the score, or changes too many predictions.
        InputError: there is no text to measure the score on.
        CorpusError, ShardError: the text for calibration cannot be read.
    """
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
        if score - tried[-1][0] <= max_loss and tried[-1][1] >= FLOOR:
            break
    else:
        best, same = max(tried)
        loses = not score - best <= max_loss
        limit = f"--max-loss = {max_loss:g}" if loses else f"an agreement of at least {FLOOR:.0%}"
        remedy = "Raise --max-loss, or export" if loses else "Export"
        other = "without --calibrate" if calibration else "with --calibrate TEXT"
        raise ExportError(
            f"int8 misses {limit}. {judge.questions}: {judge.metric} {score:.4f} in fp32, "
            f"{best:.4f} in int8; {judge.agreement} {same:.1%}. Nothing was written. {remedy} "
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
    """Return the size of a graph in bytes, with its separate weights."""
    return sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))


def quantize(
    source: Path, target: Path, recipe: QuantizationRecipe, calibration: Sequence[Inputs] = ()
) -> None:
    """Write a graph with int8 matrices and products; raise ExportError if it has no products.

    Args:
        calibration: inputs of the graph for a static recipe.
    """
    onnx: Any = import_library("onnx", "onnx", _NEEDED_BY)
    with quiet():
        library: Any = import_library("onnxruntime.quantization", "onnx", _NEEDED_BY)
        model = onnx.load(source)
        data = target.with_name(f"{target.name}.data")
        is_large = source.with_name(f"{source.name}.data").exists()
        names = rewrite_products(onnx, model.graph, recipe.in_fp32, recipe.is_static)
        tied = _find_tied(model.graph, names)
        _remove(target, data)
        options: dict[str, Any] = {
            "op_types_to_quantize": ["MatMul"],
            "nodes_to_quantize": names,
            "per_channel": True,
            "reduce_range": recipe.reduce_range,
            "weight_type": library.QuantType[recipe.weight_type],
            "use_external_data_format": is_large,
        }
        if recipe.is_static:
            # Results stay in fp32: fixed ranges of them change twice as many predictions.
            options["extra_options"] = {"OpTypesToExcludeOutputQuantization": ["MatMul"]}
            options["activation_type"] = library.QuantType.QUInt8
            library.quantize_static(model, target, _feed(model.graph, calibration), **options)
        else:
            library.quantize_dynamic(model, target, **options)
        model = onnx.load(target)
        compress(onnx, model.graph, tied)
        _remove(target, data)
        onnx.save(model, target, save_as_external_data=is_large, location=data.name)


def _feed(graph: Any, calibration: Sequence[Inputs]) -> SimpleNamespace:
    """Return a reader of calibration data: each call returns named inputs, None at the end."""
    names = [one.name for one in graph.input]
    feeds = (
        {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=False)}
        for tensors in calibration
    )
    return SimpleNamespace(get_next=lambda: next(feeds, None))


def _remove(*paths: Path) -> None:
    """Remove files, because onnx appends weights to an existing file."""
    for path in paths:
        path.unlink(missing_ok=True)


def rewrite_products(
    onnx: Any, graph: Any, in_fp32: Sequence[str], is_static: bool = False
) -> list[str]:
    """Replace every ``Gemm`` with weights by a ``MatMul``, and return the names of those for int8.

    onnxruntime also does this, without scales, but it transposes a matrix for all of its users,
    and the decoder's matrix may be the word embeddings.

    Args:
        in_fp32: layers whose products are not quantized, and not returned.
        is_static: leave the rows of inputs as they are, instead of scaling them.
    """
    weights = {weight.name: weight for weight in graph.initializer}
    endings = tuple(f"{layer}.weight" for layer in in_fp32)
    names: list[str] = []
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type != "Gemm" or node.input[1] not in weights:
            nodes.append(node)
            continue
        is_int8 = not node.input[1].endswith(endings)
        turned = onnx.numpy_helper.to_array(weights[node.input[1]]).T.copy()
        weight = onnx.numpy_helper.from_array(turned, f"{node.name} weight")
        weight.doc_string = node.input[1]
        graph.initializer.append(weight)
        nodes += _write_product(onnx, node, is_int8 and not is_static)
        names += [f"{node.name} product"] * is_int8
    if not names:
        raise ExportError("the graph has no matrix products to quantize; export it to onnx.")
    for name, value in ((_SMALLEST, np.float32(1e-9)), (_LAST_AXIS, np.array([-1]))):
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    _replace_nodes(graph, nodes)
    return names


def _replace_nodes(graph: Any, nodes: Sequence[Any]) -> None:
    """Replace all nodes by `nodes`, and remove unused weights."""
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [weight for weight in graph.initializer if weight.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _find_tied(graph: Any, names: Sequence[str]) -> dict[str, str]:
    """Return the embedding tables that a product also uses -> the product's weights."""
    products = {node.input[1] for node in graph.node if node.name in names}
    return {
        weight.doc_string: weight.name for weight in graph.initializer if weight.name in products
    }


def compress(onnx: Any, graph: Any, tied: Mapping[str, str]) -> None:
    """Store in int8 the tables and matrices of a quantized graph that are still in fp32.

    Args:
        tied: embedding tables that a quantized product also uses -> its weights, which replace the
            table.
    """
    weights = {weight.name: weight for weight in graph.initializer}
    matrices = {
        weight.name
        for weight in graph.initializer
        if len(weight.dims) == 2 and weight.data_type == onnx.TensorProto.FLOAT
    }
    store = _Int8Store(onnx, graph)
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in matrices:
            table = tied.get(node.input[0])
            if table:
                nodes += store.share(weights, table)
            else:
                table = node.input[0]
                store.add(table, onnx.numpy_helper.to_array(weights[table]), axis=1)
            nodes += store.gather(table, node)
        elif node.op_type == "MatMul" and node.input[1] in matrices:
            name = node.input[1]
            store.add(name, onnx.numpy_helper.to_array(weights[name]), axis=0)
            graph.initializer.remove(weights[name])
            matrices.remove(name)
            nodes += [*store.convert(name), node]
        else:
            nodes.append(node)
    _replace_nodes(graph, nodes)


class _Int8Store:
    """The int8 matrices of a graph, and the nodes that read them.

    Each has the initializers ``NAME rows`` (int8), ``NAME row scales`` and, if its numbers are
    unsigned, ``NAME row zeros``.
    """

    def __init__(self, onnx: Any, graph: Any) -> None:
        self.onnx, self.graph = onnx, graph
        self.with_zeros: set[str] = set()

    def _write(self, values: NDArray[Any], name: str) -> None:
        self.graph.initializer.append(self.onnx.numpy_helper.from_array(values, name))

    def _node(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
        return self.onnx.helper.make_node(operator, inputs, [output], name=output, **attributes)

    def add(self, name: str, values: NDArray[np.float32], axis: int) -> None:
        """Add a matrix with a scale for each row (`axis` 1) or each column (0)."""
        largest = np.abs(values).max(axis=axis, keepdims=True)
        scales = (np.where(largest > 0, largest, 1) / 127).astype(np.float32)
        self._write(np.rint(values / scales).astype(np.int8), f"{name} rows")
        self._write(scales, f"{name} row scales")

    def share(self, weights: Mapping[str, Any], name: str) -> list[Any]:
        """Add the transposed weights of a quantized product; return the node that transposes them.

        onnxruntime computes this node when it loads the graph.
        """
        read = self.onnx.numpy_helper.to_array
        quantized, zeros = f"{name}_quantized", read(weights[f"{name}_zero_point"])
        self._write(read(weights[quantized]).T.copy(), f"{name} rows")
        self._write(read(weights[f"{name}_scale"])[:, None].copy(), f"{name} row scales")
        if zeros.any():
            self.with_zeros.add(name)
            self._write(zeros.astype(np.float32)[:, None], f"{name} row zeros")
        turn = self._node("Transpose", [f"{name} rows"], quantized, perm=[1, 0])
        self.graph.initializer.remove(weights[quantized])
        return [turn]

    def gather(self, name: str, node: Any) -> Iterator[Any]:
        """Return the nodes for ``(rows[ids] - zeros[ids]) scales[ids]``."""
        [found], ids = node.output, node.input[1]
        yield self._node("Gather", [f"{name} rows", ids], f"{found} int8")
        yield self._node(
            "Cast", [f"{found} int8"], f"{found} numbers", to=self.onnx.TensorProto.FLOAT
        )
        numbers = f"{found} numbers"
        if name in self.with_zeros:
            yield self._node("Gather", [f"{name} row zeros", ids], f"{found} zeros")
            yield self._node("Sub", [numbers, f"{found} zeros"], f"{found} centered")
            numbers = f"{found} centered"
        yield self._node("Gather", [f"{name} row scales", ids], f"{found} scales")
        yield self._node("Mul", [numbers, f"{found} scales"], found)

    def convert(self, name: str) -> Iterator[Any]:
        """Return the nodes that convert a matrix to fp32, which are computed once, on loading."""
        yield self._node(
            "Cast", [f"{name} rows"], f"{name} numbers", to=self.onnx.TensorProto.FLOAT
        )
        yield self._node("Mul", [f"{name} numbers", f"{name} row scales"], name)


def _write_product(onnx: Any, gemm: Any, scaled: bool) -> Iterator[Any]:
    """Yield the nodes for ``(x / s) W s + b``, s the maximum of each row, or for ``x W + b``."""

    def write(operator: str, inputs: Sequence[str], what: str, **attributes: Any) -> Any:
        output = gemm.output[0] if what == last else f"{gemm.name} {what}"
        return onnx.helper.make_node(
            operator, inputs, [output], name=f"{gemm.name} {what}", **attributes
        )

    x, [*bias] = gemm.input[0], gemm.input[2:]
    last = "sum" if bias else "scaled product" if scaled else "product"
    if scaled:
        yield write("Abs", [x], "sizes")
        yield write("ReduceMax", [f"{gemm.name} sizes", _LAST_AXIS], "largest", keepdims=1)
        yield write("Max", [f"{gemm.name} largest", _SMALLEST], "scales")
        yield write("Div", [x, f"{gemm.name} scales"], "rows")
        x = f"{gemm.name} rows"
    yield write("MatMul", [x, f"{gemm.name} weight"], "product")
    found = "product"
    if scaled:
        yield write("Mul", [f"{gemm.name} product", f"{gemm.name} scales"], "scaled product")
        found = "scaled product"
    if bias:
        yield write("Add", [f"{gemm.name} {found}", *bias], "sum")


TARGET = Target(("onnxruntime", "torch"), write)
