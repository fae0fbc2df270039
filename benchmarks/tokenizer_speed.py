"""Compare WordPiece training with the `tokenizers` library alone, on the same text.

Both read the same list of articles and learn 8,192 tokens of BERT's normalized words; our sample is
large enough for all of the text.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate, takewhile

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from benchmarks.common import divide, race, read_wikipedia, write_result
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.files import SPECIAL_TOKENS
from maskwright.tokenizer.train import train_tokenizer

SIZE = 8192


def train_theirs(texts: list[str]) -> None:
    """Train as the documentation of `tokenizers` does it for BERT."""
    learner = Tokenizer(models.WordPiece(unk_token=SPECIAL_TOKENS["unk"]))
    learner.normalizer = normalizers.BertNormalizer()
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [*SPECIAL_TOKENS.values()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=SIZE, min_frequency=2, special_tokens=special, show_progress=False
    )
    learner.train_from_iterator(texts, trainer)


def train_ours(texts: list[str], megabytes: float) -> None:
    """Train as `maskwright prepare` does it."""
    config = TokenizerConfig(vocab_size=SIZE, lowercase=True, sample_megabytes=2 * megabytes)
    train_tokenizer(texts, config)


def time_training(train: Callable[[], None], megabytes: float) -> float:
    """Return the megabytes a second."""
    began = time.perf_counter()
    train()
    return megabytes / (time.perf_counter() - began)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--megabytes", type=float, default=150)
    parser.add_argument("--rounds", type=int, default=5)


def main(arguments: argparse.Namespace) -> None:
    texts = list(read_wikipedia())
    sizes = accumulate(len(text.encode()) for text in texts)
    texts = texts[: len(list(takewhile(lambda size: size <= arguments.megabytes * 1e6, sizes)))]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    contenders = {
        "ours": partial(time_training, partial(train_ours, texts, megabytes), megabytes),
        "tokenizers": partial(time_training, partial(train_theirs, texts), megabytes),
    }
    found = race(contenders, arguments.rounds, "MB/s")
    ratio = divide(found["ours"], found["tokenizers"])
    result = {"megabytes": round(megabytes, 1), "megabytes_per_second": found, "ratio": ratio}
    write_result("tokenizer-speed", result)
