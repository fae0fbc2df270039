"""Load tokenizers that try to exhaust time or memory, each in a process of its own.

What is not refused encodes texts of 100,000 characters: running text, runs of one character, and
the characters that its steps and tables look for. Shown are the seconds of a processor
of loading and of the slowest text, and the peak memory; a process may take 60 seconds and 8 GB.
"""

import argparse
import base64
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import write_result

Json = dict[str, Any]
_SIZE = 100_000
_SECONDS, _BYTES = 60, 8 << 30
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RUNS = ("a", " ", "[", "<", "x", "1", "\ufdfa", "日", "a ", "[MASK]a", "ab")


def _list(field: str, *steps: Json) -> Json:
    return {field: {"type": "Sequence", _PARTS[field]: list(steps)}}


_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def _replace(content: str, text: str = "a") -> Json:
    return {"type": "Replace", "pattern": {"String": text}, "content": content}


def _pattern(pattern: str, content: str = "") -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _split(pattern: str) -> Json:
    kind = {"type": "Split", "behavior": "Isolated", "invert": False}
    return {"pre_tokenizer": {**kind, "pattern": {"Regex": pattern}}}


def _table(length: int) -> Json:
    table = (8).to_bytes(4, "little") + bytes(8) + b"x" * length + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def _vocabulary(count: int, length: int = 1) -> Json:
    return {token: number for number, token in enumerate(_name(n, length) for n in range(count))}


def _name(number: int, length: int) -> str:
    return f"t{number:x}".ljust(length, "a")


def _model(kind: str, **fields: Any) -> Json:
    return {"model": {"type": kind, "unk_token": "[UNK]", **fields}}


def _word(longest: int) -> Json:
    fixed = {"type": "FixedLength", "length": longest}
    return {"pre_tokenizer": fixed, "longest": longest}


def _byte(times: int) -> Json:
    step = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return _list("pre_tokenizer", *[step] * times)


_UNIGRAM = [[token, 0.0] for token in _SPECIAL]
HOSTILE: dict[str, Callable[[], Json]] = {
    "7 replacements by 10": lambda: _list("normalizer", *[_replace("a" * 10)] * 7),
    "9 replacements by 10": lambda: _list("normalizer", *[_replace("a" * 10)] * 9),
    "replacement by 16": lambda: _list("normalizer", _replace("a" * 16)),
    "replacement by 16 words": lambda: _list("normalizer", _replace("b " * 8)),
    "4 replacements by 2": lambda: _list("normalizer", *[_replace("aa")] * 4),
    "replacement of nothing": lambda: _list("normalizer", _pattern("", "x" * 99)),
    "replacement before every character": lambda: _list("normalizer", _pattern("x*", "y" * 50)),
    "64 prepended characters": lambda: {"normalizer": {"type": "Prepend", "prepend": "x" * 64}},
    "compatibility and replacement": lambda: _list(
        "normalizer", {"type": "NFKC"}, _replace("a" * 16)
    ),
    "10 compatibility forms": lambda: _list("normalizer", *[{"type": "NFKD"}] * 10),
    "table to 19": lambda: {"normalizer": _table(19)},
    "table to 1,000,000": lambda: {"normalizer": _table(1_000_000)},
    "10,000 steps": lambda: _list("normalizer", *[{"type": "Lowercase"}] * 10_000),
    "60 steps": lambda: _list("normalizer", *[{"type": "NFD"}] * 60),
    "40 bytes of bytes": lambda: _byte(40),
    "5 bytes of bytes": lambda: _byte(5),
    "decoder to 10,000,000": lambda: _list("decoder", *[_replace("a" * 10)] * 7),
    "exponential (a+)+b": lambda: _split("(a+)+b"),
    "exponential (a|a)*b": lambda: _split("(a|a)*b"),
    "exponential in a look": lambda: _split("(?=(a+)+b)"),
    "cubic a+a+b": lambda: _split("a+a+b"),
    "quartic": lambda: _split("a+a+a+b"),
    "quadratic a+b": lambda: _split("a+[bc]"),
    "quadratic \\s+$": lambda: _split(r"\s+$"),
    "quadratic look": lambda: _split("(?=.*[!?])"),
    "quadratic markup": lambda: _split("<[^>]*>"),
    "program of 10^9": lambda: _split("((a{1000}){1000}){1000}"),
    "program of 10^15": lambda: _split("(((((a{999}){999}){999}){999}){999})"),
    "ways a?^30": lambda: _split("a?" * 30 + "a" * 30),
    "reference": lambda: _split(r"(a*)\1b"),
    "recursion": lambda: _split(r"(?<x>a\g<x>?b)"),
    "nested groups": lambda: _split("(" * 5_000 + "a" + ")" * 5_000),
    "32 linear patterns": lambda: _list("normalizer", *[_pattern(r"\s+", " ")] * 32),
    "words of 1,000,000": lambda: _word(1_000_000),
    "words of 256": lambda: _word(256),
    "prefix of 1,000,000": lambda: _model("WordPiece", continuing_subword_prefix="#" * 1_000_000),
    "an id of 2^31": lambda: _model("WordLevel", vocab={"x": 2**31}),
    "an added id of 2^31": lambda: {"added_tokens": [{"id": 2**31, "content": "x"}]},
    "1,000,000 tokens": lambda: _model("WordLevel", vocab=_vocabulary(1_000_000)),
    "2,500,000 tokens": lambda: _model("WordLevel", vocab=_vocabulary(2_500_000)),
    "a piece of 30,000,000": lambda: _model("Unigram", vocab=[*_UNIGRAM, ["a" * 30_000_000, 0.0]]),
    "pieces of 128": lambda: _model(
        "Unigram", unk_id=1, vocab=[*_UNIGRAM, *(["a" * n, -1.0] for n in range(1, 129))]
    ),
    "75,000 pieces of 128": lambda: _model(
        "Unigram", unk_id=1, vocab=[*_UNIGRAM, *([_name(n, 128), -1.0] for n in range(75_000))]
    ),
    "30,000 pieces of 128": lambda: _model(
        "Unigram", unk_id=1, vocab=[*_UNIGRAM, *([_name(n, 128), -1.0] for n in range(30_000))]
    ),
    "30,000,000 lists": lambda: {"normalizer": {"type": "Sequence", "normalizers": "lists"}},
    "1,000,000 added tokens": lambda: {"added": 1_000_000},
    "40,000 added tokens": lambda: {"added": 40_000},
    "an added token of 10,000,000": lambda: {
        "added_tokens": [{"id": 0, "content": "a" * 10_000_000}]
    },
    "nested 100,000 times": lambda: {"normalizer": "nested"},
}


def describe(name: str) -> str:
    """Return the ``tokenizer.json`` of a hostile tokenizer."""
    changes = HOSTILE[name]()
    vocabulary = {token: number for number, token in enumerate([*_SPECIAL, "a", "##a", "b", "##b"])}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    model: Json = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    model |= {"max_input_chars_per_word": changes.pop("longest", 100), "vocab": vocabulary}
    model |= changes.pop("model", {})
    if isinstance(model["vocab"], dict):
        others = [token for token in model["vocab"] if token not in _SPECIAL]
        ids = {token: n for n, token in enumerate([*_SPECIAL, *others])}
        model["vocab"] = ids | {t: n for t, n in model["vocab"].items() if n > 1 << 24}
    number = changes.pop("added", 0)
    added = [
        {"id": n, "content": token, **flags, "special": True} for n, token in enumerate(_SPECIAL)
    ]
    added += [
        {"id": 9 + n, "content": _name(n, 1), **flags, "special": False} for n in range(number)
    ]
    extra = [{**flags, "special": False, **one} for one in changes.pop("added_tokens", [])]
    description: Json = {"version": "1.0", "truncation": None, "padding": None, "model": model}
    description |= {"added_tokens": [*added, *extra], "normalizer": None, "post_processor": None}
    description |= {"pre_tokenizer": {"type": "Whitespace"}, "decoder": None, **changes}
    text = json.dumps(description)
    text = text.replace('"lists"', "[" + "[]," * 20_000_000 + "[]]")
    return text.replace('"nested"', "[" * 100_000 + "]" * 100_000)


def measure(folder: str) -> Json:
    """Load the tokenizer in `folder` and encode all texts; return what happened."""
    from maskwright.errors import MaskwrightError
    from maskwright.tokenizer.tokenizer import Tokenizer

    result: Json = {"outcome": "encoded", "slowest_text_seconds": 0.0}
    began = time.process_time()
    try:
        tokenizer = Tokenizer.load(folder)
    except MaskwrightError as error:
        result = {"outcome": "refused", "line": str(error).replace(folder, "")[:200]}
        return {**result, "load_seconds": round(time.process_time() - began, 2)}
    result["load_seconds"] = round(time.process_time() - began, 2)
    prose = "The old horse, which nobody had fed, went back to the garden. "
    for unit in (prose, *_RUNS):
        began = time.process_time()
        text = unit * (_SIZE // len(unit)) + "!"
        try:
            ids = tokenizer.encode(text).ids
            tokenizer.decode(ids.tolist())
            tokenizer.encode_prompt(text[:1_000])
        except MaskwrightError as error:
            result["failed"] = str(error)[:200]
        seconds = time.process_time() - began
        if seconds > result["slowest_text_seconds"]:
            result |= {"slowest_text": unit, "slowest_text_seconds": round(seconds, 2)}
    return result


def run(name: str) -> Json:
    """Return the result of one tokenizer, loaded in a process with limits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(describe(name))
        command = [sys.executable, "-m", "benchmarks", "hostile-tokenizers", "--folder", folder]
        done = subprocess.run(
            command, preexec_fn=limit, stdout=subprocess.PIPE, text=True, check=False
        )
    if done.returncode:
        return {"outcome": "killed", "status": done.returncode}
    return json.loads(done.stdout)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", help="measure the tokenizer in it, and print the result")


def main(arguments: argparse.Namespace) -> None:
    if arguments.folder:
        result = measure(arguments.folder)
        peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
        print(json.dumps({**result, "peak_megabytes": round(peak / 1000)}))
        return
    results: dict[str, Json] = {}
    for name in HOSTILE:
        results[name] = run(name)
        print(name, results[name], flush=True)
    done = [one for one in results.values() if one["outcome"] != "killed"]
    figures = {
        "seconds_are": "of a processor",
        "characters_of_a_text": _SIZE,
        "tokenizers": len(results),
        "refused": sum(one["outcome"] == "refused" for one in done),
        "encoded": sum(one["outcome"] == "encoded" for one in done),
        "killed": len(results) - len(done),
        "most_load_seconds": max(one["load_seconds"] for one in done),
        "most_text_seconds": max(one.get("slowest_text_seconds", 0.0) for one in done),
        "most_megabytes": max(one["peak_megabytes"] for one in done),
    }
    write_result("hostile-tokenizers", {**figures, "each": results})
