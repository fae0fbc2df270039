"""A trained model in other libraries: the same answers, and how many sentences a second.

    python -m benchmarks.interop --model runs/NAME/model --data data/NAME

Exports the model to every target, compares the best words of ONNX int8 and fp32 on the first 1,000
validation masks, and measures filling one mask a sentence, tokenization included, with `FillMask`,
both graphs, and transformers' own pipeline. All run in one process, in turns.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import write_result
from maskwright import export
from maskwright.inference.fill_mask import FillMask
from maskwright.interop.comparison import PaddedBatch, encode, pad_rows
from maskwright.interop.hugging_face import import_transformers
from maskwright.interop.libraries import quiet_transformers
from maskwright.interop.masked_model import (
    MaskedRow,
    all_labels,
    predict_masks,
    read_masked_rows,
)
from maskwright.interop.onnx import GRAPH, OnnxModel
from maskwright.interop.onnx_int8 import QUANTIZED
from maskwright.interop.targets import TARGETS
from maskwright.model_folder.folder import LoadedModel, open_model
from maskwright.shards.reader import TokenStore

NUM_MASKS = 1_000
SLOTS_READ = 16_384
SHORTEST, LONGEST = 8, 64  # tokens of a sentence
BATCH_SIZES = {1: 64, 32: 256}  # and the sentences that are filled with each
ROUNDS = 9
TOP_K = 5

Fill = Callable[[list[str], int], Any]


def main() -> None:
    arguments = parse()
    torch.set_num_threads(os.cpu_count() or 1)
    loaded = open_model(arguments.model)
    with tempfile.TemporaryDirectory() as folder:
        exports = {to: Path(folder) / to for to in TARGETS}
        reports: dict[str, Any] = {}
        for to, out in exports.items():
            report = export(arguments.model, to, out, arguments.data)
            reports[to] = report.to_json()
            print("\n".join(report.describe()))
        graphs = {
            "ONNX fp32": OnnxModel(exports["onnx"] / GRAPH),
            "ONNX int8": OnnxModel(exports["onnx-int8"] / QUANTIZED),
        }
        agreement = compare_top1(loaded, graphs, arguments.data)
        print(agreement)
        fills = build_fills(arguments.model, loaded, graphs)
        sentences = cut_sentences(loaded, arguments.data, max(BATCH_SIZES.values()))
        throughput = measure(fills, sentences)
    result = {
        "exports": reports,
        "top1_of_validation_masks": agreement,
        "sentences_per_second": throughput,
        "conditions": {
            "sentences": f"held-out text, {SHORTEST} to {LONGEST} tokens, one mask in each",
            "sentences_in_a_round": BATCH_SIZES,
            "rounds": ROUNDS,
            "threads": torch.get_num_threads(),
            "measured": "text in, the five likeliest words out; median of rounds, in turns",
        },
    }
    write_result(f"interop-{arguments.name}", result)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a model folder")
    parser.add_argument("--data", type=Path, required=True, help="its prepared data")
    parser.add_argument("--name", default="wiki_en", help="of the result file")
    return parser.parse_args()


def compare_top1(
    loaded: LoadedModel, graphs: dict[str, OnnxModel], data: Path
) -> dict[str, float | int]:
    """Shares of the same best word, and of the right one, on the first masks of a validation."""
    rows = first_masks(read_masked_rows(loaded, data, SLOTS_READ), NUM_MASKS)

    @torch.no_grad()
    def compute(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        batch = PaddedBatch(input_ids, attention_mask.sum(1).tolist())
        return loaded.model.head(encode(loaded, batch))

    labels = all_labels(rows)
    sizes = (loaded.model.config.vocab_size, loaded.tokenizer.pad_id)
    words = {name: predict_masks(rows, graph, *sizes) for name, graph in graphs.items()}
    words["torch"] = predict_masks(rows, compute, *sizes)
    found: dict[str, float | int] = {"masks": len(labels)}
    for name, word in words.items():
        found[f"{name}: accuracy"] = (word == labels).float().mean().item()
    same = (words["ONNX int8"] == words["ONNX fp32"]).float().mean().item()
    found["ONNX int8: same as ONNX fp32"] = same
    same = (words["torch"] == words["ONNX fp32"]).float().mean().item()
    return {**found, "ONNX fp32: same as torch": same}


def first_masks(rows: Sequence[MaskedRow], number: int) -> list[MaskedRow]:
    """The rows with the first `number` masks; of the last row only as many as are wanted."""
    chosen: list[MaskedRow] = []
    for row in rows:
        if number > 0:
            chosen.append(MaskedRow(row.ids, row.positions[:number], row.labels[:number]))
        number -= len(row.positions)
    return chosen


def cut_sentences(loaded: LoadedModel, data: Path, number: int) -> list[str]:
    """Pieces of held-out documents of ragged lengths, each with a mask for one of its words."""
    tokenizer, draw = loaded.tokenizer, np.random.default_rng(0)
    store = TokenStore.open(data, "valid", "sizes")
    most = min(LONGEST, loaded.model.config.max_position_embeddings - 2)
    sentences: list[str] = []
    starts = np.cumsum(store.document_lengths) - store.document_lengths
    while len(sentences) < number:
        document = int(draw.integers(store.num_documents))
        length = min(int(draw.integers(SHORTEST, most)), int(store.document_lengths[document]))
        begin = int(starts[document] + draw.integers(store.document_lengths[document] - length + 1))
        words = tokenizer.decode(store.tokens(begin, begin + length).tolist()).split(" ")
        words[int(draw.integers(len(words)))] = tokenizer.mask_token
        text = " ".join(words)
        ids = loaded.wrap(tokenizer.encode_prompt(text).ids.tolist())
        if ids.count(tokenizer.mask_id) == 1 and len(ids) <= most + 2:
            sentences.append(text)
    return sentences


def build_fills(model: Path, loaded: LoadedModel, graphs: dict[str, OnnxModel]) -> dict[str, Fill]:
    """Each a function of sentences and the size of a batch."""
    fill_mask = FillMask(model, device="cpu")
    transformers = import_transformers()
    with quiet_transformers(transformers):
        pipeline = transformers.pipeline("fill-mask", model=str(model), device="cpu")
    fills: dict[str, Fill] = {
        "maskwright FillMask (torch)": lambda texts, size: [
            fill_mask(texts[first : first + size], top_k=TOP_K)
            for first in range(0, len(texts), size)
        ],
        "transformers pipeline (torch)": lambda texts, size: pipeline(
            texts, top_k=TOP_K, batch_size=size
        ),
    }
    for name, graph in graphs.items():
        fills[name] = lambda texts, size, graph=graph: fill_with_graph(loaded, graph, texts, size)
    return fills


def fill_with_graph(
    loaded: LoadedModel, graph: OnnxModel, texts: list[str], size: int
) -> list[list[str]]:
    """The likeliest words for the one mask of each text."""
    found: list[list[str]] = []
    tokenizer = loaded.tokenizer
    for first in range(0, len(texts), size):
        prompts = (tokenizer.encode_prompt(text) for text in texts[first : first + size])
        rows = [loaded.wrap(prompt.ids.tolist()) for prompt in prompts]
        batch = pad_rows(rows, tokenizer.pad_id)
        logits = graph(batch.input_ids, batch.attention_mask)
        scores = logits[batch.input_ids == tokenizer.mask_id].softmax(-1)
        found += [tokenizer.tokens(ids) for ids in scores.topk(TOP_K).indices.tolist()]
    return found


def measure(fills: dict[str, Fill], sentences: list[str]) -> dict[str, dict[str, float]]:
    """Sentences a second of each, by the size of a batch: the median of rounds in turns."""
    found: dict[str, dict[str, float]] = {}
    for size, number in BATCH_SIZES.items():
        seconds: dict[str, list[float]] = {name: [] for name in fills}
        for round_number in range(ROUNDS + 1):
            for name, fill in fills.items():
                started = time.perf_counter()
                fill(sentences[:number], size)
                if round_number:  # the first one warms up
                    seconds[name].append(time.perf_counter() - started)
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        found[f"batch {size}"] = {name: round(number / s, 1) for name, s in medians.items()}
        print(f"batch {size}: {found[f'batch {size}']}")
    return found


if __name__ == "__main__":
    main()
