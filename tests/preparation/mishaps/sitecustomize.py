"""Python imports this at its start if this folder is on its path: small blocks, and mishaps.

``BLOCK_BYTES`` is the size of small blocks. ``MISHAP`` is ``STAGE:NUMBER:SIGNAL:WHO``: when that
task is about to be reported as done, WHO (worker or coordinator) gets the signal of that number.
"""

import os
import signal
import sys

from maskwright.corpus import blocks
from maskwright.preparation.work import Facts, Work

_report_done = Work.report_done


def _report_unless_hit(self: Work, stage: str, number: int, facts: Facts) -> None:
    at_stage, at_number, signum, who = os.environ["MISHAP"].split(":")
    if (stage, str(number)) == (at_stage, at_number):
        os.kill(os.getpid() if who == "worker" else os.getppid(), int(signum))
        signal.pause()  # workers end with their coordinator
    _report_done(self, stage, number, facts)


if "resource_tracker" not in " ".join(sys.orig_argv):
    # A shell that starts the tests in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    blocks.__dict__["_MIN_BYTES"] = int(os.environ["BLOCK_BYTES"])
    os.fsync = lambda fd: None  # a killed process loses nothing that it has written
    if os.environ.get("MISHAP"):
        Work.report_done = _report_unless_hit
