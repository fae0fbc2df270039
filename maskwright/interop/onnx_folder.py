"""Folders for onnxruntime, optimum and transformers.js: in fp32, or mostly in int8."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from maskwright.artifact.folder import LoadedModel
from maskwright.errors import ExportError
from maskwright.interop.comparison import Difference, batch_rows, compare_logits, pad_rows
from maskwright.interop.folders import adapt_card, write_model_folder
from maskwright.interop.held_out import MaskedRow, all_labels, predict
from maskwright.interop.onnx_graph import GRAPH, OnnxModel, write_graph
from maskwright.interop.quantization import QUANTIZED, RECIPES, Recipe, quantize
from maskwright.interop.sentences import Sentences

AIM = 0.98  # share of masks with the same best word that ends the search for a recipe
FLOOR = 0.90  # what is below it is not the same model any more
_TIMED_ROWS, _REPETITIONS = 8, 9
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


@dataclass(frozen=True)
class Int8Scores:
    """What quantization changed, on masks of held-out text and on this machine.

    Attributes:
        recipe: how it was done.
        num_masks: how many masks were predicted.
        accuracy_fp32, accuracy_int8: share of them with the hidden token as the best word.
        same_top1: share with the same best word before and after.
        milliseconds_fp32, milliseconds_int8: of one batch, median of interleaved repetitions.
        batch_rows, batch_slots: of that batch.
        bytes_fp32, bytes_int8: size of the graphs.
    """

    recipe: str
    num_masks: int
    accuracy_fp32: float
    accuracy_int8: float
    same_top1: float
    milliseconds_fp32: float
    milliseconds_int8: float
    batch_rows: int
    batch_slots: int
    bytes_fp32: int
    bytes_int8: int

    def describe(self) -> list[str]:
        """The same in two lines."""
        speed_up = self.milliseconds_fp32 / self.milliseconds_int8
        return [
            f"{self.num_masks:,} masks of held-out text: accuracy {self.accuracy_fp32:.4f} in fp32,"
            f" {self.accuracy_int8:.4f} in int8; the same best word for {self.same_top1:.1%} "
            f"({self.recipe})",
            f"{self.batch_rows} rows of {self.batch_slots}: {self.milliseconds_fp32:.1f} ms in "
            f"fp32, {self.milliseconds_int8:.1f} ms in int8 ({speed_up:.2f} x) on this machine; "
            f"{self.bytes_fp32 / 1e6:.1f} MB, then {self.bytes_int8 / 1e6:.1f} MB",
        ]


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
    scores = _search_recipe(source, folder / QUANTIZED, loaded, rows)
    for path in work.iterdir():
        path.unlink()
    work.rmdir()
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


def _search_recipe(
    source: Path, target: Path, loaded: LoadedModel, rows: list[MaskedRow]
) -> Int8Scores:
    """Quantizes by the first recipe that reaches `AIM`, or else by the best of them."""

    def predict_with(model: OnnxModel) -> Tensor:
        return predict(rows, model, loaded.model.config.vocab_size, loaded.tokenizer.pad_id)

    fp32 = OnnxModel(source)
    before = predict_with(fp32)
    tried: list[_Candidate] = []
    for recipe in RECIPES:
        quantize(source, target, recipe)
        after = predict_with(OnnxModel(target))
        tried.append(_Candidate(recipe, after, _share(after == before)))
        if tried[-1].same_top1 >= AIM:
            break
    best = max(tried, key=lambda candidate: candidate.same_top1)
    if best.same_top1 < FLOOR:
        raise ExportError(
            f"int8 gives another best word for {1 - best.same_top1:.1%} of {len(before):,} masks, "
            f"and {1 - FLOOR:.0%} is the most that passes. Nothing was written; export it to onnx."
        )
    if best is not tried[-1]:
        quantize(source, target, best.recipe)
    labels = all_labels(rows)
    accuracies = (_share(before == labels), _share(best.top1 == labels))
    return Int8Scores(
        best.recipe.describe(),
        len(labels),
        *accuracies,
        best.same_top1,
        *_time(fp32, OnnxModel(target), loaded, rows),
        *(_size_of(path) for path in (source, target)),
    )


@dataclass(frozen=True)
class _Candidate:
    recipe: Recipe
    top1: Tensor  # [M], the best word of every mask
    same_top1: float


def _share(true: Tensor) -> float:
    return true.float().mean().item()


def _time(
    fp32: OnnxModel, int8: OnnxModel, loaded: LoadedModel, rows: list[MaskedRow]
) -> tuple[float, float, int, int]:
    """Milliseconds of either for the longest rows, and the shape of their batch."""
    longest = sorted((row.ids for row in rows), key=len)[-_TIMED_ROWS:]
    batch = pad_rows(longest, loaded.tokenizer.pad_id)
    inputs = (batch.input_ids, batch.attention_mask)
    slow, fast = time_interleaved([lambda: fp32(*inputs), lambda: int8(*inputs)])
    num_rows, num_slots = batch.input_ids.shape
    return 1e3 * slow, 1e3 * fast, num_rows, num_slots


def time_interleaved(programs: list[Callable[[], object]]) -> list[float]:
    """The median time in seconds of each, measured in turns after a first one that does not count.

    What slows the machine for a while slows all of them.
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
    """Bytes of a graph and of the weights beside it."""
    return sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*"))
