"""What a model can be exported to; a command line reads it before it imports torch."""

from typing import Literal, get_args

Target = Literal["hf", "onnx", "onnx-int8", "sentence-transformers"]
TARGETS: tuple[Target, ...] = get_args(Target)
