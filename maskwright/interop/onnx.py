"""Export to ONNX, a graph with dynamic sizes, and from it to OpenVINO and transformers.js.

Inputs: ``input_ids`` and ``attention_mask`` (int64 [B, L]), and ``token_type_ids`` for classifiers
with token types. Output: ``logits`` (fp32 [B, L, V]; of classifiers [B, K] for texts, [B, L, K] for
tokens); of encoders ``token_embeddings`` [B, L, D] and ``sentence_embedding`` [B, D], with pooling
and normalization. Optimum and transformers.js require these names.

The encoder takes packed tokens here too: B padded rows are flattened to B * L tokens in rows of L,
in which padding is a separate segment. Shapes: B rows of L positions, D width, V vocabulary, K
labels.
"""

import html
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.errors import ExportError
from maskwright.files import write_text
from maskwright.interop.classifier_source import Source
from maskwright.interop.comparison import Compute, OutputComparison
from maskwright.interop.masked_lm_source import MaskedModelSource
from maskwright.interop.targets import Written, import_library, quiet
from maskwright.interop.transformers import check_family, compare_vectors
from maskwright.interop.vector_source import VECTORS, PooledEncoder, VectorSource, need_logits
from maskwright.model.classifier import Classifier
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import adapt_card
from maskwright.model_folder.weights import WEIGHTS

GRAPH = "model.onnx"
# The first opset with attention and RMSNorm as operators: on long rows 10 to 25 % faster than 18 or
# 20 in onnxruntime, which supports it since 1.23.
OPSET = 23
# The file of a graph cannot exceed 2 GiB; larger weights than this are stored in a second file.
MAX_BYTES_WITHIN = 1 << 30
_NEEDED_BY = "an export to ONNX"
_GRAPH_CARD = """
A graph for LIBRARY with dynamic sizes. Inputs: {inputs} [batch, length]. Output: `{output}`
{shape}. The tokenizer is in the same folder.{more}

```python
import numpy, LIBRARY, tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
tokenizer.enable_truncation({longest})
encoded = tokenizer.encode("{text}")
inputs = {{{encodings}}}
inputs = {{name: numpy.array([ids]) for name, ids in inputs.items()}}
RUN
```
"""
_CARD = _GRAPH_CARD.replace("LIBRARY", "onnxruntime").replace(
    "RUN", '[{variable}] = onnxruntime.InferenceSession("{graph}").run(["{output}"], inputs)'
)
OPENVINO = "openvino_model.xml"  # and openvino_model.bin, the weights
_OPENVINO_OPSET = 20  # the latest without operators that OpenVINO cannot read
_OPENVINO_CARD = _GRAPH_CARD.replace("LIBRARY", "openvino").replace(
    "RUN",
    'precision = {{"INFERENCE_PRECISION_HINT": "f32"}}  # CPUs with AMX compute in bf16 otherwise\n'
    '{variable} = openvino.Core().compile_model("{graph}", "CPU", precision)(inputs)["{output}"]',
)
PAGE_FOLDER, PAGE = "onnx", "index.html"
# The types that AutoModelForMaskedLM of transformers.js 4 knows.
MODEL_TYPES = (
    *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "esm"),
    *("modernbert", "eurobert"),
)
_PAGE_CARD = """
An ONNX graph for transformers.js, and `index.html`, which fills masks in the browser:

```sh
python -m http.server 8000   # in this folder; then open http://localhost:8000
```

```js
import {{ pipeline }} from "@huggingface/transformers";

const fill = await pipeline("fill-mask", "OWNER/NAME", {{ dtype: "fp32" }});
console.log(await fill("{text}"));
```
"""
_ENCODINGS = {
    "input_ids": "encoded.ids",
    "attention_mask": "encoded.attention_mask",
    "token_type_ids": "encoded.type_ids",
}


def write(folder: Path, source: Source) -> Written:
    """Write the graph with configuration, tokenizer and card, and compare its output in
    onnxruntime.
    """
    write_frame(folder, source, GRAPH)
    write_graph(folder / GRAPH, source.model)
    return Written(_compare(source, OnnxModel(folder / GRAPH)))


def _compare(source: Source, compute: Compute) -> OutputComparison:
    of_vectors = isinstance(source, VectorSource)
    return compare_vectors(source, compute) if of_vectors else source.compare(compute)


def write_frame(
    folder: Path, source: Source, graph: str, library: str = "onnx", card: str = _CARD
) -> None:
    """Write a model folder without the weights, with a card that names the file of the graph and
    the format, `library`.
    """
    source.save(folder)
    (folder / WEIGHTS).unlink()
    padded = build_padded(source.model)
    names, output = padded.inputs, padded.outputs[-1]
    of_vectors = isinstance(source, VectorSource)
    more = f" A vector is {source.description}. {source.aim}" if of_vectors else ""
    text = card.format(
        output=output,
        variable="vectors" if output == VECTORS else "logits",
        more=more,
        longest=source.max_length,
        inputs=", ".join(f"`{name}`" for name in names),
        shape=source.output_shape,
        text=source.example_text,
        encodings=", ".join(f'"{name}": {_ENCODINGS[name]}' for name in names),
        graph=graph,
    )
    metadata = source.metadata
    tags = [*metadata["tags"], library]
    adapt_card(folder, {**metadata, "library_name": library, "tags": tags}, text)


Graphed = MaskedLanguageModel | Classifier | PooledEncoder


def write_graph(path: Path, model: Graphed, opset: int = OPSET) -> None:
    """Write the graph of `model`; very large weights go into ``PATH.data``.

    Raises:
        MissingPackageError: a package of the extra `onnx` is missing.
    """
    for module in ("onnx", "onnxscript"):
        import_library(module, "onnx", _NEEDED_BY)
    size = sum(parameter.nbytes for parameter in model.parameters())
    padded = build_padded(model)
    # Different tensors, because the trace would treat the same tensor as one input.
    example = tuple(torch.ones((3, 5), dtype=torch.int64) for _ in padded.inputs)
    sizes = {0: torch.export.Dim("batch_size"), 1: torch.export.Dim("sequence_length")}
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            padded.eval(),
            example,
            input_names=padded.inputs,
            output_names=list(padded.outputs),
            opset_version=opset,
            dynamo=True,
            dynamic_shapes=dict.fromkeys(padded.inputs, sizes),
            verbose=False,
        )
        assert program is not None  # torch returns None only if it writes the file itself
        program.save(path, external_data=size > MAX_BYTES_WITHIN)


class OnnxModel:
    """A graph that runs on the CPU: ``model(input_ids, attention_mask, token_type_ids)`` -> logits,
    or the vectors of texts.

    A graph without token types ignores them.

    Raises:
        MissingPackageError: onnxruntime is not installed.
    """

    def __init__(self, path: Path) -> None:
        runtime = import_library("onnxruntime", "onnx", _NEEDED_BY)
        options: Any = runtime.SessionOptions()
        options.log_severity_level = 3  # errors
        self.session: Any = runtime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.inputs: list[str] = [one.name for one in self.session.get_inputs()]
        self.output: str = self.session.get_outputs()[-1].name

    def __call__(self, *tensors: Tensor) -> Tensor:
        inputs = {name: one.numpy() for name, one in zip(self.inputs, tensors, strict=False)}
        [found] = self.session.run([self.output], inputs)
        return torch.from_numpy(found)


@dataclass(frozen=True)
class PaddedContext(AttentionContext):
    """A context without conditions on its sizes, so that a traced graph has dynamic sizes."""

    def attention_mask(self, window: int | None) -> Tensor:
        """Return the attention mask; a window is applied even if it is as wide as the row."""
        attention_mask = super().attention_mask(None)
        if window is None:
            return attention_mask
        position = torch.arange(self.row_length, device=attention_mask.device)
        return attention_mask & ((position[:, None] - position[None, :]).abs() <= window)


class PaddedModel(nn.Module):
    """``logits = model(input_ids, attention_mask)``: [B, L], [B, L] -> [B, L, V].

    Logits of padding are undefined, and so are those of a row's first token if tokens are predicted
    from the previous one. Positions are counted within a row, as in transformers.
    """

    inputs = ("input_ids", "attention_mask")
    outputs = ("logits",)

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        rows, length = input_ids.shape
        hidden = self.model.encoder(input_ids.reshape(-1), _describe_rows(attention_mask))
        if self.model.config.next_token_prediction:
            hidden = hidden[self.model.predictors(torch.arange(rows * length))]
        return self.model.head(hidden).unflatten(0, (rows, length))


class PaddedClassifier(nn.Module):
    """A classifier of K labels with padded rows: -> [B, K] for texts, [B, L, K] for tokens.

    A model with token types, or one that compares two texts, has a third input ``token_type_ids``
    [B, L].
    """

    outputs = PaddedModel.outputs

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model
        is_typed = model.config.type_vocab_size > 1 or model.head_config.pooling == "bi"
        types = ("token_type_ids",) if is_typed else ()
        self.inputs = (*PaddedModel.inputs, *types)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        types = None if token_type_ids is None else token_type_ids.reshape(-1)
        logits = self.model(input_ids.reshape(-1), _describe_rows(attention_mask), types)
        of_tokens = self.model.head_config.level == "token"
        return logits.unflatten(0, input_ids.shape) if of_tokens else logits


class PaddedVectors(nn.Module):
    """The encoder and its pooling: -> [B, L, D] vectors of tokens, [B, D] vectors of texts."""

    inputs = PaddedModel.inputs
    outputs = ("token_embeddings", VECTORS)

    def __init__(self, model: PooledEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.model.encoder(input_ids.reshape(-1), _describe_rows(attention_mask))
        hidden = hidden.unflatten(0, input_ids.shape)
        return hidden, self.model.pool(hidden, attention_mask)


def build_padded(model: Graphed) -> PaddedModel | PaddedClassifier | PaddedVectors:
    """Return a module that takes padded rows."""
    if isinstance(model, PooledEncoder):
        return PaddedVectors(model)
    return PaddedClassifier(model) if isinstance(model, Classifier) else PaddedModel(model)


def _describe_rows(attention_mask: Tensor) -> PaddedContext:
    rows, length = attention_mask.shape
    return PaddedContext(
        positions=torch.arange(length).expand(rows, length).reshape(-1),
        segment_ids=1 - attention_mask.reshape(-1),
        cu_seqlens=torch.zeros(1, dtype=torch.int32),  # for kernels that are not traced
        max_seqlen=length,
        row_length=length,
    )


def write_openvino(folder: Path, source: Source) -> Written:
    """Write files with the names of optimum-intel, in fp32, and compare the output in OpenVINO.

    Raises:
        MissingPackageError: a package of the extra `openvino` is missing.
    """
    library: Any = import_library("openvino", "openvino", "an export to openvino")
    write_frame(folder, source, OPENVINO, "openvino", _OPENVINO_CARD)
    graph = folder / GRAPH
    write_graph(graph, source.model, _OPENVINO_OPSET)
    with quiet():
        library.save_model(library.convert_model(graph), folder / OPENVINO, compress_to_fp16=False)
    for path in folder.glob(f"{GRAPH}*"):
        path.unlink()
    # CPUs with AMX compute in bf16 by default.
    precision = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = library.Core().compile_model(folder / OPENVINO, "CPU", precision)
    padded = build_padded(source.model)

    def compute(*tensors: Tensor) -> Tensor:
        inputs = {name: one.numpy() for name, one in zip(padded.inputs, tensors, strict=False)}
        return torch.from_numpy(compiled(inputs)[padded.outputs[-1]].copy())

    return Written(_compare(source, compute))


def write_page(folder: Path, source: Source) -> Written:
    """Write the graph in the layout of transformers.js, with a page, and compare logits.

    The page needs files only, from any place that serves them: the browser computes the model.

    Raises:
        ExportError: the model is a classifier, is too large, or no class of transformers.js has
            its architecture.
    """
    need_logits(source, "transformers-js")
    if not isinstance(source, MaskedModelSource):
        raise ExportError("the page of transformers-js fills masks. Export a classifier to onnx.")
    check_family(source)
    family, _ = source.find_family()
    if family is None or family.model_type not in MODEL_TYPES:
        raise ExportError(
            f"transformers.js does not know model_type = {family and family.model_type}, only "
            f"{', '.join(MODEL_TYPES)}. Export it to onnx."
        )
    size = sum(parameter.nbytes for parameter in source.model.parameters())
    if size > MAX_BYTES_WITHIN:
        raise ExportError(f"{size / 1e9:.1f} GB of weights are too many for a browser.")
    write_frame(folder, source, f"{PAGE_FOLDER}/{GRAPH}", "transformers.js", _PAGE_CARD)
    graph = folder / PAGE_FOLDER / GRAPH
    graph.parent.mkdir()
    write_graph(graph, source.model)
    page = files("maskwright.interop").joinpath("transformers_js.html").read_text("utf-8")
    write_text(
        folder / PAGE, page.replace("{{mask}}", html.escape(source.loaded.tokenizer.mask_token))
    )
    note = f"{PAGE} needs a place that serves files: python -m http.server -d DIR"
    return Written(source.compare(OnnxModel(graph)), notes=(note,))
