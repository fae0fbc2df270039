"""Folders for onnxruntime, optimum and transformers.js: in fp32, or mostly in int8."""

import shutil
from pathlib import Path

from maskwright.interop.comparison import Difference, batch_rows, compare_logits
from maskwright.interop.folders import adapt_card, write_model_folder
from maskwright.interop.held_out import MaskedRow, MaskJudge
from maskwright.interop.int8 import Int8Scores, search_recipe
from maskwright.interop.onnx_graph import GRAPH, OnnxModel, write_graph
from maskwright.interop.quantization import QUANTIZED
from maskwright.interop.sentences import Sentences
from maskwright.model_folder.folder import LoadedModel

_CARD = """
An ONNX graph with open sizes: `input_ids` and `attention_mask` [batch, length] in, `logits`
[batch, length, vocabulary] out. The tokenizer is beside it.

```python
import numpy, onnxruntime, tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
encoded = tokenizer.encode("A sentence with a {mask} in it.")
inputs = {{"input_ids": [encoded.ids], "attention_mask": [encoded.attention_mask]}}
inputs = {{name: numpy.array(ids) for name, ids in inputs.items()}}
[logits] = onnxruntime.InferenceSession("{graph}").run(["logits"], inputs)
```
"""
_METADATA = {
    "library_name": "onnx",
    "pipeline_tag": "fill-mask",
    "tags": ["maskwright", "masked-language-model", "onnx"],
}


def write_onnx(
    folder: Path, loaded: LoadedModel, sentences: Sentences, card: str | None
) -> Difference:
    """Writes the graph, runs it with onnxruntime, and compares logits.

    Raises:
        ExportError: they differ.
    """
    _write_frame(folder, loaded, card, GRAPH)
    write_graph(folder / GRAPH, loaded.model)
    return _compare(folder / GRAPH, loaded, sentences)


def write_onnx_int8(
    folder: Path,
    loaded: LoadedModel,
    sentences: Sentences,
    card: str | None,
    rows: list[MaskedRow],
) -> tuple[Difference, Int8Scores]:
    """Writes the quantized graph, and scores it beside the one in fp32 that it was made from.

    Raises:
        ExportError: the graph in fp32 computes something else than the model, or no recipe leaves
            the best word of `FLOOR` of the masks as it was.
    """
    _write_frame(folder, loaded, card, QUANTIZED)
    work = folder / "fp32"
    work.mkdir()
    source = work / GRAPH
    write_graph(source, loaded.model)
    difference = _compare(source, loaded, sentences)
    difference.check("onnxruntime")
    judge = MaskJudge(rows, loaded.model.config.vocab_size, loaded.tokenizer.pad_id)
    scores = search_recipe(source, folder / QUANTIZED, judge)
    shutil.rmtree(work)
    return difference, scores


def _write_frame(folder: Path, loaded: LoadedModel, card: str | None, graph: str) -> None:
    """All but the graph."""
    write_model_folder(folder, loaded, with_weights=False)
    text = _CARD.format(mask=loaded.tokenizer.mask_token, graph=graph)
    adapt_card(folder, card, _METADATA, text)


def _compare(graph: Path, loaded: LoadedModel, sentences: Sentences) -> Difference:
    config, pad_id = loaded.model.config, loaded.tokenizer.pad_id
    batches = batch_rows(sentences.rows, config.vocab_size, pad_id)
    return compare_logits(loaded, batches, OnnxModel(graph))
