"""Matrix products in int8: smaller and faster, and measured instead of hoped for.

Weights are quantized once, with a scale for each output. Activations are quantized while the graph
runs (``onnxruntime.quantization.quantize_dynamic``), with one scale for a whole tensor: one huge
number in one token leaves little precision to all others, and the answer for a sentence depends on
its neighbors in the batch. So every row is divided by its largest number before the product, and
multiplied by it afterwards, which gives every token a scale of its own. (Dettmers et al.,
"LLM.int8()", 2022, call it row-wise quantization.) Embeddings stay in fp32, where int8 would save
memory and no time.

What was measured on AVX2 without VNNI, on 2,358 masks and a model of 25 % accuracy; "same" is the
share of masks with the same best word as in fp32:

=================================  ================  =============
weights; in fp32                   scale of a tensor  of each row
=================================  ================  =============
8 bits, signed                               91.3 %         95.9 %
7 bits, signed                               93.5 %         97.5 %
7 bits, signed; MLP output                   97.4 %         97.9 %
7 bits, signed; MLP output, qkv              97.9 %         98.3 %
8 bits, unsigned                             93.6 %         98.3 %
8 bits, unsigned; MLP output, qkv            98.4 %         99.0 %
=================================  ================  =============

The instruction for signed weights adds pairs of products in 16 bits, which overflow unless the
weights have 7 bits; that for unsigned ones does not, and is a tenth slower. The MLP's second
product is the most sensitive one, because products of two numbers come into it, and it is small;
queries, keys and values are next.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.errors import ExportError
from maskwright.interop.libraries import import_library, quiet

QUANTIZED = "model_quantized.onnx"
_NEEDED_BY = "an export to ONNX"
_SMALLEST, _LAST_AXIS = "smallest divisor of a row", "last axis"


@dataclass(frozen=True)
class Recipe:
    """A way to quantize: the weights' type and range, and the layers whose products stay fp32."""

    weight_type: str
    reduce_range: bool
    in_fp32: tuple[str, ...]

    def describe(self) -> str:
        """The same in words."""
        bits = 7 if self.reduce_range else 8
        return f"{self.weight_type} weights of {bits} bits; in fp32: {', '.join(self.in_fp32)}"


# From the fastest to the most faithful.
RECIPES = (
    Recipe("QInt8", True, ("mlp.output",)),
    Recipe("QInt8", True, ("mlp.output", "attention.qkv")),
    Recipe("QUInt8", False, ("mlp.output", "attention.qkv")),
)


def quantize(source: Path, target: Path, recipe: Recipe) -> None:
    """Writes the graph `source` with most of its matrix products in int8.

    Raises:
        ExportError: the graph has no such products, as of another exporter.
    """
    onnx: Any = import_library("onnx", "onnx", _NEEDED_BY)
    with quiet():
        library: Any = import_library("onnxruntime.quantization", "onnx", _NEEDED_BY)
        model = onnx.load(source)
        for old in (target, target.with_name(f"{target.name}.data")):
            old.unlink(missing_ok=True)  # weights are added to a file that is there
        library.quantize_dynamic(
            model,
            target,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=rewrite_products(onnx, model.graph, recipe.in_fp32),
            per_channel=True,
            reduce_range=recipe.reduce_range,
            weight_type=library.QuantType[recipe.weight_type],
            use_external_data_format=source.with_name(f"{source.name}.data").exists(),
        )


def rewrite_products(onnx: Any, graph: Any, in_fp32: Sequence[str]) -> list[str]:
    """Makes of every ``Gemm`` with weights a ``MatMul``, with its rows scaled; returns their names.

    onnxruntime could do without scales, but turns a matrix around for all of its users, and the
    decoder's may be the word embeddings.

    Args:
        in_fp32: layers whose products are not scaled, and not among the names.
    """
    weights = {weight.name: weight for weight in graph.initializer}
    endings = tuple(f"{layer}.weight" for layer in in_fp32)
    names: list[str] = []
    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type != "Gemm" or node.input[1] not in weights:
            nodes.append(node)
            continue
        scaled = not node.input[1].endswith(endings)
        turned = onnx.numpy_helper.to_array(weights[node.input[1]]).T.copy()
        graph.initializer.append(onnx.numpy_helper.from_array(turned, f"{node.name} weight"))
        nodes += _write_product(onnx, node, scaled)
        names += [f"{node.name} product"] * scaled
    if not names:
        raise ExportError("the graph has no matrix products to quantize; export it to onnx.")
    for name, value in ((_SMALLEST, np.float32(1e-9)), (_LAST_AXIS, np.array([-1]))):
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [weight for weight in graph.initializer if weight.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return names


def _write_product(onnx: Any, gemm: Any, scaled: bool) -> Iterator[Any]:
    """The nodes for ``(x / s) W s + b`` with s the largest number of each row, or ``x W + b``."""

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
