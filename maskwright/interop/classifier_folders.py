"""Folders of a fine-tuned model for transformers and for onnxruntime."""

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.errors import ExportError, InputError
from maskwright.files import write_text
from maskwright.interop.comparison import Difference
from maskwright.interop.folders import adapt_card
from maskwright.interop.hugging_face import check_version, import_transformers, load_whole
from maskwright.interop.int8 import Int8Scores, search_recipe
from maskwright.interop.libraries import quiet_transformers
from maskwright.interop.onnx_graph import GRAPH, OnnxModel, write_graph
from maskwright.interop.padded_model import PaddedClassifier
from maskwright.interop.quantization import QUANTIZED
from maskwright.interop.targets import Target
from maskwright.interop.task_examples import (
    ExampleJudge,
    TaskExamples,
    compare_classifier,
    iterate_plain,
)
from maskwright.model_folder.card import describe_labels
from maskwright.model_folder.classifier_folder import LoadedClassifier, save_classifier
from maskwright.model_folder.families import classifier_form
from maskwright.model_folder.folder import CARD
from maskwright.model_folder.weights import WEIGHTS

_CLASSES = {
    "text": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}
_CARD = """
An ONNX graph with open sizes: {inputs} [batch, length] in, `logits` {shape} out, in the order of
`id2label` in `config.json`. The tokenizer is beside it.

```python
import numpy, onnxruntime, tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
encoded = tokenizer.encode("A text.")
inputs = {{{encoding}}}
inputs = {{name: numpy.array([ids]) for name, ids in inputs.items()}}
[logits] = onnxruntime.InferenceSession("{graph}").run(["logits"], inputs)
```
"""
_ENCODINGS = {
    "input_ids": "encoded.ids",
    "attention_mask": "encoded.attention_mask",
    "token_type_ids": "encoded.type_ids",
}


def write_classifier(
    folder: Path,
    to: Target,
    loaded: LoadedClassifier,
    examples: TaskExamples,
    card: str | None,
) -> tuple[Difference, Int8Scores | None]:
    """Write a fine-tuned model for another library, and compare logits there.

    Raises:
        ExportError: the outputs differ, no class of transformers computes this architecture, too
            little is left of the model in int8, or sentence vectors are asked for.
        InputError: ``onnx-int8`` without labeled examples.
    """
    if to == "sentence-transformers":
        raise ExportError(
            "this model labels its inputs and has no sentence vectors. Export it to hf: if it "
            "labels texts, CrossEncoder of sentence-transformers loads that folder."
        )
    if to == "hf":
        return _write_hugging_face(folder, loaded, examples, card), None
    if to == "onnx-int8" and not examples.labeled:
        raise InputError(
            "onnx-int8 is judged on labeled examples: name a file of them with --data, or export "
            "from the run directory, whose own files must still be there."
        )
    graph = QUANTIZED if to == "onnx-int8" else GRAPH
    _save(folder, loaded)
    (folder / WEIGHTS).unlink()
    _write_onnx_card(folder, loaded, card, graph)
    if to == "onnx":
        write_graph(folder / GRAPH, loaded.model)
        return compare_classifier(loaded, examples, OnnxModel(folder / GRAPH)), None
    source = folder / "fp32" / GRAPH
    source.parent.mkdir()
    write_graph(source, loaded.model)
    difference = compare_classifier(loaded, examples, OnnxModel(source))
    difference.check("onnxruntime")
    scores = search_recipe(source, folder / QUANTIZED, ExampleJudge(examples))
    shutil.rmtree(source.parent)
    return difference, scores


def _save(folder: Path, loaded: LoadedClassifier) -> None:
    save_classifier(
        folder,
        loaded.model,
        loaded.tokenizer,
        loaded.labels,
        loaded.problem,
        add_special_tokens=loaded.add_special_tokens,
        max_length=loaded.max_length,
        num_texts=loaded.num_texts,
    )


def _write_onnx_card(folder: Path, loaded: LoadedClassifier, card: str | None, graph: str) -> None:
    inputs = PaddedClassifier(loaded.model).inputs
    level = loaded.model.head_config.level
    text = _CARD.format(
        inputs=", ".join(f"`{name}`" for name in inputs),
        shape="[batch, labels]" if level == "text" else "[batch, length, labels]",
        encoding=", ".join(f'"{name}": {_ENCODINGS[name]}' for name in inputs),
        graph=graph,
    )
    metadata = describe_labels(level == "token", "onnx")
    adapt_card(folder, card, {**metadata, "tags": [*metadata["tags"], "onnx"]}, text)


def _write_hugging_face(
    folder: Path, loaded: LoadedClassifier, examples: TaskExamples, card: str | None
) -> Difference:
    level = loaded.model.head_config.level
    form, reason = classifier_form(loaded.model.config, level)
    if reason:
        raise ExportError(
            f"no class of transformers computes this architecture: {reason}. Export it to onnx, "
            "which takes every architecture."
        )
    transformers = import_transformers()
    check_version(form.family, loaded.model.config)
    _save(folder, loaded)
    if card is not None:
        write_text(folder / CARD, card)
    takes_types = loaded.model.config.type_vocab_size > 1
    with quiet_transformers(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        _check_ids(tokenizer, examples, list(loaded.tokenizer.special_tokens.values()))
        model = load_whole(getattr(transformers, _CLASSES[level]), folder)

        def compute(*tensors: Tensor) -> Tensor:
            names = ("input_ids", "attention_mask", *["token_type_ids"] * takes_types)
            with torch.no_grad():
                return model(**dict(zip(names, tensors, strict=False))).logits

        return compare_classifier(loaded, examples, compute)


def _check_ids(tokenizer: Any, examples: TaskExamples, special: list[str]) -> None:
    """Raise ExportError unless transformers' tokenizer makes the same inputs of the same texts."""
    for number in iterate_plain(examples, special):
        texts, ours = examples.texts[number], examples.encoded.inputs[number].ids
        found = tokenizer(*(texts or ()), truncation=True)["input_ids"]
        if found != ours:
            raise ExportError(
                f"transformers' tokenizer gives other ids for {(texts or ('',))[0][:60]!r}: "
                f"{found[:8]} … instead of {ours[:8]} …. Nothing was written; this is a bug in "
                "maskwright or there."
            )
