"""The tokenizer of a prepared folder: trained on the text, taken from elsewhere, or extended."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from maskwright.corpus.progress import ReadProgress
from maskwright.errors import ShardError
from maskwright.files import read_json, replacing_folder, write_json
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import Report
from maskwright.preparation.splits import split_corpus
from maskwright.progress import Pulse
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.tokenizer.extension import extend_tokenizer
from maskwright.tokenizer.stats import measure_tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, train_tokenizer

EXTENSION_NAME = "extension.json"
EXTENSION_KEY = "tokenizer_extension"  # in the manifest's description of its source
_MAX_EXTENSION_BYTES = 1 << 20
_MEASURED_CHARACTERS = 4_000_000  # of held-out text
_NUM_SHOWN = 12


def obtain_tokenizer(
    paths: Sequence[str],
    out: Path,
    config: PrepareConfig,
    seed: int,
    report: Report,
) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer in `out`, stored there by an earlier run or now.

    Returns:
        It, and what is known of its extension; nothing if it is none.
    """
    folder = out / TOKENIZER_NAME
    if folder.is_dir():
        return Tokenizer.load(folder), _read_extension(folder)
    described: dict[str, Any] = {}
    start = time.monotonic()
    if config.tokenizer.path is None:
        report(f"training a {config.tokenizer.kind} tokenizer on the text")
        texts = _read_training_text(paths, config, [], report)
        tokenizer = train_tokenizer(texts, config.tokenizer, seed)
        seconds = time.monotonic() - start
        report(f"tokenizer: {tokenizer.vocab_size:,} tokens, {seconds:.1f} seconds")
        if line := describe_shortage(tokenizer, config.tokenizer):
            report(line)
    elif config.tokenizer.extend_vocab:
        tokenizer, described = _extend(paths, config, seed, report)
    else:
        tokenizer = Tokenizer.load(config.tokenizer.path)
    with replacing_folder(folder) as temporary:
        tokenizer.save(temporary)
        if described:
            write_json(temporary / EXTENSION_NAME, described)
    return tokenizer, described


def _extend(
    paths: Sequence[str], config: PrepareConfig, seed: int, report: Report
) -> tuple[Tokenizer, dict[str, Any]]:
    """Add tokens and measure their effect on text that they were not learned from."""
    assert config.tokenizer.path is not None
    start = time.monotonic()
    base = Tokenizer.load(config.tokenizer.path)
    report(f"adding {config.tokenizer.extend_vocab:,} tokens to that of {config.tokenizer.path}")
    held_out: list[str] = []
    texts = _read_training_text(paths, config, held_out, report)
    tokenizer = extend_tokenizer(base, texts, config.tokenizer, seed)
    before, after = (measure_tokenizer(which, held_out) for which in (base, tokenizer))
    shown = tokenizer.tokens(range(base.vocab_size, tokenizer.vocab_size)[:_NUM_SHOWN])
    saved = 1 - after.num_tokens / max(before.num_tokens, 1)
    report(
        f"tokenizer: {base.vocab_size:,} tokens before, {tokenizer.vocab_size:,} now "
        f"({time.monotonic() - start:.1f} seconds); new are {' '.join(shown)} …"
    )
    report(
        f"tokens a word on held-out text: {before.fertility:.3f} before, {after.fertility:.3f} now "
        f"({saved:.1%} fewer tokens)"
    )
    return tokenizer, {
        "base": config.tokenizer.path,
        "base_fingerprint": base.fingerprint,
        "base_vocab_size": base.vocab_size,
        "vocab_size": tokenizer.vocab_size,
        "held_out_words": before.num_words,
        "fertility_before": before.fertility,
        "fertility": after.fertility,
    }


def _read_training_text(
    paths: Sequence[str], config: PrepareConfig, held_out: list[str], report: Report
) -> Iterator[str]:
    """Yield the texts to train on; add some of those that are held out to `held_out`."""
    pulse, progress, num_read, num_characters = Pulse(report), ReadProgress(), 0, 0
    for split, text in split_corpus(paths, config.corpus, Counter(), progress):
        num_read += len(text)
        if pulse.is_due:
            pulse.say(f"{num_read / 1e6:,.0f} million characters read for the tokenizer{progress}")
        if split == "train":
            yield text
        elif num_characters < _MEASURED_CHARACTERS:
            held_out.append(text)
            num_characters += len(text)


def _read_extension(folder: Path) -> dict[str, Any]:
    file = folder / EXTENSION_NAME
    if not file.is_file():
        return {}
    try:
        described: dict[str, Any] = dict(read_json(file, _MAX_EXTENSION_BYTES))
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ShardError(f"{file} is damaged ({reason}): remove {folder.parent}.") from None
    return described
