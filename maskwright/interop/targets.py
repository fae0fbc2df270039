"""The export targets and their interface.

To add a target, write a module with a `Target` named ``TARGET`` and register it in `TARGETS`. The
command line imports this module before torch, so torch appears in annotations only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from maskwright.interop.int8 import Int8Scores

if TYPE_CHECKING:
    from maskwright.interop.classifier_source import ClassifierSource, ExampleJudge
    from maskwright.interop.comparison import OutputComparison
    from maskwright.interop.masked_lm_source import MaskedModelSource, MaskJudge

TARGETS = {
    "gguf": "maskwright.interop.gguf",
    "hf": "maskwright.interop.transformers",
    "onnx": "maskwright.interop.onnx",
    "onnx-int8": "maskwright.interop.onnx_int8",
    "openvino": "maskwright.interop.openvino",
    "sentence-transformers": "maskwright.interop.sentence_transformers",
    "transformers-js": "maskwright.interop.transformers_js",
}


class Written(NamedTuple):
    """The result of a target: the comparison, int8 scores if any, and further lines to print."""

    comparison: "OutputComparison"
    int8: Int8Scores | None = None
    notes: tuple[str, ...] = ()


# The first of each pair documents the interface; the second has the same attributes.
Source: TypeAlias = "MaskedModelSource | ClassifierSource"
Judge: TypeAlias = "MaskJudge | ExampleJudge"


@dataclass(frozen=True)
class Target:
    """An export target.

    Attributes:
        packages: packages whose versions are recorded; the first one computes the comparison.
        write: writes a model to a new folder, loads it with the library, and compares outputs.
    """

    packages: tuple[str, ...]
    write: Callable[[Path, Source], Written]
