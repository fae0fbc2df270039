"""``torchrun``, whose ranks are forked from it, as it has imported torch.

Its agent, the meeting of the ranks and the restarts are torchrun's, the start of a rank is not;
``python -m benchmarks ranks`` kills ranks of a real one.

Rank 1 kills itself when it begins its third checkpoint of the first run: a checkpoint of all ranks
is finished by then, and a process that resumes from it lives on.
"""

import os
import signal
import sys
from collections.abc import Callable
from itertools import count

from torch.distributed import run
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from maskwright.cli.main import main
from maskwright.train.trainer import Trainer

_THIRD = 3
_save, _saves = Trainer.save, count(1)


def _save_or_die(self: Trainer) -> None:
    if os.environ["RANK"] == "1" and next(_saves) == self.state.step == _THIRD:
        os.kill(os.getpid(), signal.SIGKILL)
    _save(self)


def work(*arguments: str) -> None:
    """Run ``maskwright ARGUMENTS`` as a rank."""
    Trainer.save = _save_or_die
    if code := main(arguments):
        sys.exit(code)


def launch(config: LaunchConfig, entrypoint: str) -> Callable[..., object]:
    """Return what starts the ranks, given their arguments: ``-u -m maskwright``, and its own."""
    config.start_method = "fork"

    def call(*given: str) -> object:
        assert given[:3] == ("-u", "-m", "maskwright"), given
        return elastic_launch(config, work)(*given[3:])

    return call


if __name__ == "__main__":
    run.__dict__["elastic_launch"] = launch
    run.main()
