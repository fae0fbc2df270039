"""Matrix products in int8: smaller and faster, and measured instead of hoped for.

Weights are quantized once, one scale for each output; activations while the graph runs, one scale
for each tensor (``onnxruntime.quantization.quantize_dynamic``). Embeddings stay in fp32, where
int8 would save memory and no time. What was measured on AVX2 without VNNI, 2,358 masks of a model
of 25 % accuracy; "same" is the share of masks with the same best word as in fp32:

- everything in int8: same 91 %. The instruction adds pairs of products in 16 bits, which saturate.
- weights of 7 bits, which cannot saturate: same 93.5 %, no slower.
- the second product of each MLP in fp32: same 97.4 %, and hardly slower, for it is small. What
  comes into it are products of two numbers, a few of them huge.
- then queries, keys and values in fp32, too: same 97.9 %, a tenth slower.
- then unsigned weights of 8 bits, whose instruction does not saturate: same 98.4 %, slower again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.interop.libraries import import_library, quiet

QUANTIZED = "model_quantized.onnx"


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

    Args:
        source: of a model whose decoder is not tied (see `padded_model.untie`): onnxruntime would
            turn a shared matrix around for both of its users.
    """
    onnx: Any = import_library("onnx", "onnx", "an export to ONNX")
    with quiet():
        library: Any = import_library("onnxruntime.quantization", "onnx", "an export to ONNX")
        graph = onnx.load(source)
        # Shapes that the exporter noted are wrong once a Gemm has become a MatMul.
        del graph.graph.value_info[:]
        library.quantize_dynamic(
            graph,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=recipe.reduce_range,
            weight_type=library.QuantType[recipe.weight_type],
            nodes_to_exclude=_find_products(graph, recipe.in_fp32),
            use_external_data_format=source.with_name(f"{source.name}.data").exists(),
        )


def _find_products(graph: Any, layers: Sequence[str]) -> list[str]:
    """The names of the products with these layers' weights, before and after that change."""
    endings = tuple(f"{layer}.weight" for layer in layers)
    found = [
        node.name
        for node in graph.graph.node
        if node.op_type in ("Gemm", "MatMul") and node.input[1].endswith(endings)
    ]
    return [*found, *(f"{name}_MatMul" for name in found)]
