"""Training a WordPiece tokenizer beside `tokenizers` alone, on the same text.

    MASKWRIGHT_DATA=… python -m benchmarks.tokenizer_speed [--megabytes 150]

Both read the same list of articles, and both learn 8,192 tokens of BERT's normalised words; ours is
told that its sample may hold them all.
"""

import argparse
import time
from functools import partial
from itertools import accumulate, takewhile

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from benchmarks.common import read_wikipedia, write_result
from benchmarks.races import divide, race
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer
from maskwright.tokenizer.vocabulary import SPECIAL_TOKENS

VOCAB_SIZE = 8192


def train_theirs(texts: list[str]) -> None:
    """As the documentation of `tokenizers` does it for BERT."""
    learner = Tokenizer(models.WordPiece(unk_token=SPECIAL_TOKENS["unk"]))
    learner.normalizer = normalizers.BertNormalizer()
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS.values()],
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)


def train_ours(texts: list[str], megabytes: float) -> None:
    """As `maskwright prepare` does it."""
    train_tokenizer(
        texts,
        TokenizerConfig(vocab_size=VOCAB_SIZE, lowercase=True, sample_megabytes=2 * megabytes),
    )


def time_training(train: "partial[None]", megabytes: float) -> float:
    """Megabytes a second."""
    began = time.perf_counter()
    train()
    return megabytes / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
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
    print(ratio)
    result = {"megabytes": round(megabytes, 1), "megabytes_per_second": found, "ratio": ratio}
    write_result("tokenizer-speed", result)


if __name__ == "__main__":
    main()
