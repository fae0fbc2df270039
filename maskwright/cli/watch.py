"""``maskwright watch``: follows a run that another process trains."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from maskwright.cli.flags import Parser
from maskwright.console import Console
from maskwright.logs import Record, read_training
from maskwright.runs.run_directory import (
    METRICS_NAME,
    MODEL_NAME,
    check_pretraining,
    load_run_config,
)
from maskwright.train.config import TrainConfig
from maskwright.train.panel import Panel

_EPILOG = """examples:
  maskwright watch runs/NAME
  maskwright watch runs/NAME --once     what it has come to, and back
"""
_SECONDS = 1.0


def build_parser() -> Parser:
    """The command line of ``maskwright watch``."""
    parser = Parser("watch", "Follow a run.", _EPILOG)
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--once", action="store_true", help="show it as it is and stop")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    run: Path = arguments.run
    check_pretraining(run)
    train, console = load_run_config(run, {}).train, Console()
    with Panel(console) as panel:
        for record in follow(run, once=arguments.once):
            # The panel leaves the last scores of a run to whoever ends it; here nobody does.
            panel.show({**record, "final": False}, find_progress(record, train))
    if console.is_terminal:  # where the panel is gone by now
        console.print(panel.draw())
    return 0


def follow(run: Path, *, once: bool = False) -> Iterator[Record]:
    """The records of a run: those that there are, and new ones until it has its model.

    A run that is resumed cuts off lines that it writes again; they are then shown again.
    """
    shown = 0
    while True:
        is_finished = once or (run / MODEL_NAME).is_dir()
        records = read_training(run / METRICS_NAME)
        shown = min(shown, len(records))
        yield from records[shown:]
        shown = len(records)
        if is_finished:
            return
        time.sleep(_SECONDS)


def find_progress(record: Record, train: TrainConfig) -> float:
    """The share of the budget that is used; of epochs, which tokens alone do not tell, none."""
    shares = [
        record["step"] / train.max_steps if train.max_steps else 0.0,
        record["tokens"] / train.max_tokens if train.max_tokens else 0.0,
        record["seconds"] / (60 * train.max_minutes) if train.max_minutes else 0.0,
    ]
    return min(max(shares), 1.0)
