"""``maskwright``, whose rank 1 kills itself when it begins its fifth checkpoint of the first run.

A checkpoint of all ranks is finished by then, and a process that resumes from it lives on.
"""

import os
import signal
import sys
from itertools import count

from maskwright.cli.main import main
from maskwright.train.trainer import Trainer

_FIFTH = 5
_save, _saves = Trainer.save, count(1)


def _save_or_die(self: Trainer) -> None:
    if os.environ["RANK"] == "1" and next(_saves) == self.state.step == _FIFTH:
        os.kill(os.getpid(), signal.SIGKILL)
    _save(self)


if __name__ == "__main__":
    Trainer.save = _save_or_die
    sys.exit(main())
