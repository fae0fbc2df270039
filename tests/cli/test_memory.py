"""A device without enough memory: one line that names what to lower, and exit code 2."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import maskwright.cli.main
from maskwright.cli.main import main
from maskwright.train import step
from tests.command import Cli
from tests.workplace import SMALL, data_of

ON_GPU = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of …"


def run_out(_arguments: Sequence[str]) -> int:
    raise torch.OutOfMemoryError(ON_GPU)


def run_out_on_cpu(_arguments: Sequence[str]) -> int:
    return len(torch.empty(2**58))


@pytest.mark.parametrize("job", [run_out, run_out_on_cpu])
@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("pretrain", ("train.micro_batch_tokens", "train.activation_checkpointing")),
        ("finetune", ("--batch_size", "--max_length")),
        ("embed", ("--batch-tokens",)),
        ("evaluate", ("CUDA_VISIBLE_DEVICES",)),
    ],
)
def test_every_command_names_what_to_lower(
    command: str,
    fields: tuple[str, ...],
    job: Callable[[Sequence[str]], int],
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
):
    monkeypatch.setattr(maskwright.cli.main, "load", lambda _: job)
    line = cli.refuse(command)
    assert line.startswith("DeviceMemoryError: ")
    places = [line.index(field) for field in fields]
    assert places == sorted(places)


def test_other_errors_of_torch_keep_their_traceback(monkeypatch: pytest.MonkeyPatch):
    def fail(_arguments: Sequence[str]) -> int:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(maskwright.cli.main, "load", lambda _: fail)
    with pytest.raises(RuntimeError, match="shapes"):
        main(["pretrain"])


def test_a_run_out_of_memory_resumes_from_its_last_checkpoint(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    compute, steps = step.compute_gradients, list[int]()

    def run_out_in_step_7(*arguments: Any) -> Any:
        steps.append(1)
        if len(steps) == 7:
            raise torch.OutOfMemoryError(ON_GPU)
        return compute(*arguments)

    flags = ["--train.checkpoint_every_minutes", "1e-9", "--train.max_steps", "9"]
    place = ["--runs-dir", str(tmp_path), "--name", "run"]
    with monkeypatch.context() as patch:
        patch.setattr(step, "compute_gradients", run_out_in_step_7)
        error = cli.refuse("pretrain", data_of(workplace), *SMALL, *flags, *place)
    assert "train.micro_batch_tokens" in error
    again = ["--resume", str(tmp_path / "run"), "--train.micro_batch_tokens", "128"]
    assert "at step 6" in cli("pretrain", *again)
