"""Python in a process of its own, whose memory is measured and whose time ends."""

import sys

from tests.forked import Forked

MOST_MEGABYTES = 1_000
_LIMITS = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
"""
# What the system counts as a process's peak may be that of the one that started it; not VmHWM.
_TELL_PEAK = """
import re, pathlib
print(re.search("VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""
_READ = """
import sys
from collections import Counter
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.sources import stream_corpus
from maskwright.errors import MaskwrightError
counts, characters = Counter(), 0
try:
    for document in stream_corpus(sys.argv[1:], CorpusConfig(), counts):
        characters += len(document.text)
except MaskwrightError as error:
    print(type(error).__name__, error)
print(characters, dict(counts))
"""


def run_limited(code: str, *arguments: str) -> str:
    """The output of `code`, which sees `arguments` in ``sys.argv``.

    It must not fail, nor take more than half a minute or a gigabyte.
    """
    with Forked([sys.executable, "-c", _LIMITS + code + _TELL_PEAK, *arguments]) as process:
        output, error = process.communicate()
    assert process.returncode == 0, output + error
    *lines, kilobytes = output.splitlines()
    assert int(kilobytes) < 1_000 * MOST_MEGABYTES, output
    return "\n".join(lines)


def read_limited(*paths: object) -> str:
    """What reading a corpus says: an error if there was one, the characters, the counts."""
    return run_limited(_READ, *map(str, paths))
