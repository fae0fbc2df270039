"""A slow text keeps no other thread from running: the library releases the interpreter for it."""

import json
import threading
import time

import pytest

from maskwright.tokenizer import tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.finetuning.helpers import TOKENIZER

SLOW = ("a" * 17 + "!") * 24  # which takes about half a second to match


def make_hostile(monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    """A tokenizer with a regular expression that takes exponential time, which is refused else."""
    monkeypatch.setattr(tokenizer, "check_bounds", lambda description: 2_000_000)
    description = json.loads(json.dumps(TOKENIZER.description))
    pattern = {"Regex": "(a+)+$"}
    description["pre_tokenizer"] = {
        "type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False
    }  # fmt: skip
    return Tokenizer(description, TOKENIZER.special_tokens)


@pytest.mark.parametrize("name", ["encode", "encode_prompt", "encode_with_offsets"])
def test_other_threads_run_while_a_text_is_encoded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = make_hostile(monkeypatch)
    encode, stop, beats = getattr(hostile, name), threading.Event(), list[float]()

    def beat() -> None:
        while not stop.wait(0.001):
            beats.append(time.perf_counter())

    thread = threading.Thread(target=beat)
    thread.start()
    began = time.perf_counter()
    encode(SLOW)
    ended = time.perf_counter()
    stop.set()
    thread.join()
    # Near the beginning and the end some fall within even where the text holds all others up.
    inner = (ended - began) / 4
    assert any(began + inner < beat < ended - inner for beat in beats)
