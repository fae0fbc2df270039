"""Export a trained model to other libraries, and measure sentences per second in each.

It exports the model to every target, which compares the outputs, and measures filling one mask per
sentence, tokenization included, with `FillMask`, the ONNX graphs in fp32 and int8, and the pipeline
of transformers. All run in one process, in turns.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import race, write_result
from maskwright import export
from maskwright.inference.fill_mask import FillMask
from maskwright.interop.comparison import pad_rows
from maskwright.interop.onnx import GRAPH, OnnxModel
from maskwright.interop.onnx_int8 import QUANTIZED
from maskwright.interop.targets import TARGETS, quiet_transformers
from maskwright.interop.transformers import import_transformers
from maskwright.model_folder.folder import LoadedModel, open_model
from maskwright.shards.reader import TokenStore

SHORTEST, LONGEST = 8, 64  # tokens of a sentence
BATCH_SIZES = {1: 64, 32: 256}  # and the sentences that are filled with each
ROUNDS = 9
TOP_K = 5

Fill = Callable[[list[str], int], Any]


def cut_sentences(loaded: LoadedModel, data: Path, number: int) -> list[str]:
    """Return pieces of held-out documents of ragged lengths, one word of each masked."""
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
    """Return functions of sentences and the size of a batch."""
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
    """Return the likeliest words for the one mask of each text."""
    found: list[list[str]] = []
    tokenizer = loaded.tokenizer
    for first in range(0, len(texts), size):
        prompts = (tokenizer.encode_prompt(text) for text in texts[first : first + size])
        rows = [loaded.wrap(prompt.ids.tolist()) for prompt in prompts]
        input_ids, attention_mask = pad_rows(rows, tokenizer.pad_id)
        logits = graph(input_ids, attention_mask)
        scores = logits[input_ids == tokenizer.mask_id].softmax(-1)
        found += [tokenizer.tokens(ids) for ids in scores.topk(TOP_K).indices.tolist()]
    return found


def time_fill(fill: Fill, sentences: list[str], size: int) -> float:
    """Return the sentences a second."""
    started = time.perf_counter()
    fill(sentences, size)
    return len(sentences) / (time.perf_counter() - started)


def measure(fills: dict[str, Fill], sentences: list[str]) -> dict[str, dict[str, float]]:
    """Return the sentences a second of each by batch size: the median of rounds in turns."""
    found: dict[str, dict[str, float]] = {}
    for size, number in BATCH_SIZES.items():
        contenders = {
            name: partial(time_fill, fill, sentences[:number], size) for name, fill in fills.items()
        }
        speeds = race(contenders, ROUNDS + 1, "sentences/s")  # the first round warms up
        medians = {name: statistics.median(each[1:]) for name, each in speeds.items()}
        found[f"batch {size}"] = {name: round(speed, 1) for name, speed in medians.items()}
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, required=True, help="a model folder")
    parser.add_argument("--data", type=Path, required=True, help="its prepared data")
    parser.add_argument("--name", default="wiki_en", help="name of the result [wiki_en]")


def main(arguments: argparse.Namespace) -> None:
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
        fills = build_fills(arguments.model, loaded, graphs)
        sentences = cut_sentences(loaded, arguments.data, max(BATCH_SIZES.values()))
        throughput = measure(fills, sentences)
    result = {
        "exports": reports,
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
