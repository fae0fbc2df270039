"""`FillMask` and `Embedder` against transformers and sentence-transformers, on the same weights.

python -m benchmarks.inference [--model small base runs/NAME/model …] [--text FILE …]

Ours and theirs take turns in one process, with torch's threads as they are, on real sentences of
ragged length with one masked word each; what they say is compared first. Speed does not depend on
what weights hold, so ``small`` (256 wide, 6 layers) and ``base`` (BERT-base) have random ones.
"""

import argparse
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import find_corpus, write_result
from maskwright.attention_context import context_from_lengths
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.stream import stream_corpus
from maskwright.inference.embed import Embedder
from maskwright.inference.fill_mask import FillMask
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.init import initialize
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.model_folder.folder import save_model
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer

_BATCH_SIZE = 32
_SMALL = ModelConfig(
    preset="eurobert",
    hidden_size=256,
    num_hidden_layers=6,
    num_attention_heads=4,
    intermediate_size=704,
    tie_word_embeddings=True,
)
_BASE = ModelConfig(
    preset="bert",
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
)
# Architecture, vocabulary, longest input, sentences.
_SHAPES = {"small": (_SMALL, 8192, 128, 1000), "base": (_BASE, 30_522, 512, 100)}
_LATENCY_CALLS = 50
_MOST_DIFFERENCE = 1e-4
_LEAST_AGREEMENT = 0.995

Times = dict[str, list[float]]


@dataclass(frozen=True)
class Peers:
    """The two models of a folder in the libraries of others, and ours."""

    fill: FillMask
    embed: Embedder
    pipeline: Any
    sentence_transformer: Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["small", "base"])
    parser.add_argument("--text", nargs="+", default=None)
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    documents = read_documents(arguments.text)
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.model:
            folder, count = Path(name), arguments.sentences or 1000
            if name in _SHAPES:
                folder, count = Path(scratch) / name, arguments.sentences or _SHAPES[name][3]
                make_model(folder, name, documents)
            measured[Path(name).name] = measure(load(folder), documents, count, arguments.rounds)
    write_result("inference", {"threads": torch.get_num_threads(), "models": measured})


def read_documents(paths: Sequence[str] | None) -> list[str]:
    """The texts in `paths`; without any, held-out Wikipedia, or else the built-in corpus."""
    if paths is None and "MASKWRIGHT_DATA" in os.environ:
        paths = [str(find_corpus("wiki_en") / "wiki_en.valid.txt.gz")]
    stream = stream_corpus(paths or ["pydocs"], CorpusConfig(valid_fraction=0.0), Counter())
    return [document.text for _, document in stream]


def make_model(folder: Path, name: str, documents: Sequence[str]) -> None:
    """Writes a model of this shape with random weights, and a tokenizer of these documents."""
    architecture, vocab_size, longest, _ = _SHAPES[name]
    tokenizer = train_tokenizer(documents, TokenizerConfig(vocab_size=8192))
    config = resolve_config(architecture, vocab_size=vocab_size, max_seq_length=longest)
    model = MaskedLanguageModel(config)
    initialize(model, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.05)
        if model.head.decoder.bias is not None:  # words that the tokenizer does not have
            model.head.decoder.bias[tokenizer.vocab_size :] = -100
    save_model(folder, model, tokenizer)


def load(folder: Path) -> Peers:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import pipeline
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    name = str(folder)
    transformer = Transformer(name)
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    return Peers(
        FillMask(folder, "cpu"),
        Embedder(folder, "cpu", normalize=False),
        pipeline("fill-mask", model=name, tokenizer=name, device="cpu"),
        SentenceTransformer(modules=[transformer, pooling], device="cpu"),
    )


def measure(peers: Peers, documents: Sequence[str], count: int, rounds: int) -> dict[str, Any]:
    """Compares what the peers say, then how long they take; prints both."""
    plain = pick_sentences(documents, peers.fill.tokenizer, peers.fill.longest, count)
    masked = hide_words(plain, peers.fill.tokenizer.mask_token)
    lengths = [2 + len(encoded.ids) for encoded in peers.fill.tokenizer.encode_batch(plain)]
    result: dict[str, Any] = {
        "parameters": sum(p.numel() for p in peers.fill.model.parameters()),
        "sentences": len(plain),
        "tokens": {"mean": round(statistics.mean(lengths), 1), "longest": max(lengths)},
        "agreement": compare(peers, plain, masked),
        "fill_mask": race(
            rounds,
            lambda: peers.fill(masked),
            lambda: peers.pipeline(masked, batch_size=_BATCH_SIZE),
            len(masked),
        ),
        "embed": race(
            rounds,
            lambda: peers.embed(plain),
            lambda: peers.sentence_transformer.encode(plain, batch_size=_BATCH_SIZE),
            len(plain),
        ),
        "one_sentence": measure_latency(peers, masked[0]),
    }
    for key, value in result.items():
        print(f"{key}: {value}", flush=True)
    return result


def pick_sentences(
    documents: Sequence[str], tokenizer: Tokenizer, longest: int, count: int
) -> list[str]:
    """Sentences of at least four words, short enough for the model, in a random order."""
    found = [
        " ".join(sentence.split())
        for document in documents
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])|\n", document)
    ]
    found = [sentence for sentence in found if len(sentence.split()) >= 4]
    random.Random(0).shuffle(found)
    fits = (s for s in found if len(tokenizer.encode(s).ids) + 2 <= min(longest, 128))
    picked = [sentence for sentence, _ in zip(fits, range(count), strict=False)]
    if len(picked) < count:
        sys.exit(f"the text has only {len(picked)} sentences that fit, not {count}")
    return picked


def hide_words(sentences: Sequence[str], mask: str) -> list[str]:
    """The sentences with one word of each masked."""
    draw = random.Random(1)
    hidden: list[str] = []
    for sentence in sentences:
        words = sentence.split()
        words[draw.randrange(len(words))] = mask
        hidden.append(" ".join(words))
    return hidden


def compare(peers: Peers, plain: list[str], masked: list[str]) -> dict[str, float]:
    """How far apart the answers are; ends the program if that is too far."""
    ours, theirs = peers.fill(masked), peers.pipeline(masked, batch_size=_BATCH_SIZE)
    best = [result.masks[0][0] for result in ours]
    same = [mine.token_id == his[0]["token"] for mine, his in zip(best, theirs, strict=True)]
    scores = [abs(mine.score - his[0]["score"]) for mine, his in zip(best, theirs, strict=True)]
    vectors = np.abs(peers.embed(plain) - peers.sentence_transformer.encode(plain))
    found = {
        "same_top_1": statistics.mean(same),
        "largest_difference_of_scores": max(scores),
        "largest_difference_of_vectors": float(vectors.max()),
    }
    largest = max(found["largest_difference_of_scores"], found["largest_difference_of_vectors"])
    if found["same_top_1"] < _LEAST_AGREEMENT or largest > _MOST_DIFFERENCE:
        sys.exit(f"ours and theirs do not say the same: {found}")
    return found


def race(
    rounds: int, ours: Callable[[], object], theirs: Callable[[], object], count: int
) -> dict[str, Any]:
    """Both in turn; how many times as long theirs takes, by the clock and by processor time."""
    wall: Times = {"ours": [], "theirs": []}
    processor: Times = {"ours": [], "theirs": []}
    for _ in range(rounds):
        for name, run in (("ours", ours), ("theirs", theirs)):
            started = time.perf_counter(), time.process_time()
            run()
            wall[name].append(time.perf_counter() - started[0])
            processor[name].append(time.process_time() - started[1])
    ratios = divide(wall)
    return {
        "ratio": round(statistics.median(ratios), 2),
        "ratio_lowest": round(min(ratios), 2),
        "ratio_highest": round(max(ratios), 2),
        "ratio_of_processor_time": round(statistics.median(divide(processor)), 2),
        "sentences_per_second": {
            name: round(count / statistics.median(seconds), 1) for name, seconds in wall.items()
        },
        "seconds": {name: [round(s, 3) for s in seconds] for name, seconds in wall.items()},
    }


def divide(times: Times) -> list[float]:
    return [his / mine for mine, his in zip(times["ours"], times["theirs"], strict=True)]


def measure_latency(peers: Peers, text: str) -> dict[str, float]:
    """Milliseconds (median) for one sentence, and how much of ours is not the model itself."""
    fill = peers.fill
    row = fill.wrap(fill.tokenizer.encode_prompt(text).ids.tolist())
    ids, context = torch.tensor(row), context_from_lengths([len(row)])
    place = torch.tensor([row.index(fill.tokenizer.mask_id)])

    @torch.inference_mode()
    def run_model() -> object:
        return fill.model.head(fill.model.encoder(ids, context, output_positions=place))

    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: fill(text),
        "theirs": lambda: peers.pipeline(text),
        "model_alone": run_model,
    }
    seconds: Times = {name: [] for name in ways}
    for _ in range(_LATENCY_CALLS):
        for name, run in ways.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    milliseconds = {name: 1000 * statistics.median(found) for name, found in seconds.items()}
    milliseconds["overhead"] = milliseconds["ours"] - milliseconds["model_alone"]
    return {name: round(value, 2) for name, value in milliseconds.items()}


if __name__ == "__main__":
    main()
