"""One target under atheris, in a process of its own; libFuzzer's options follow the name.

python -m tests.hostile.fuzzing.worker TARGET [-max_total_time=60 …] [FOLDER OF INPUTS]
"""

import importlib
import sys
from random import Random
from typing import Any

atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["maskwright"]):
    from tests.hostile.fuzzing.targets import TARGETS

_PLAIN_SHARE = 4  # every fourth new input is made by libFuzzer's own mutations


def work(program: str, name: str, *options: str) -> None:
    """Run a target until its time is over."""
    target = TARGETS[name]

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        if seed % _PLAIN_SHARE == 0:
            return atheris.Mutate(content, most)
        return target.mutate(content, Random(seed))[:most]

    for seed in target.seeds():
        target.run(seed)  # a target that fails on valid input tests nothing
    atheris.Setup([program, *options], target.run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    work(*sys.argv)
