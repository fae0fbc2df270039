"""Plans of runs on GPUs, from hours, tokens or a size."""

import math
import shlex
import subprocess
from pathlib import Path

import pytest

from maskwright.cli import pretrain
from maskwright.cli.flags import config_values
from maskwright.cli.main import main
from maskwright.model.config import parse_sizes
from maskwright.pretraining.build import resolve_model
from maskwright.pretraining.plan import Plan, plan
from maskwright.runs.config import resolve
from tests.command import Cli
from tests.workplace import data_of

FIGURES = ("size", "speed", "hours", "tokens", "micro-batch", "memory")
LADDER = [(width, layers) for _, width, layers in parse_sizes(resolve().model.sizes)]


def rank_of(found: Plan) -> int:
    """Return the place of the chosen size in the recipe `auto`."""
    return LADDER.index((found.model.hidden_size, found.model.num_hidden_layers))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--device", "8xH100", "--hours", "24", "--size", "384x12"],
        ["--device", "RTX4090", "--tokens", "2e9"],
        ["--device", "H200", "--hours", "24", "--tokens", "10e9", "--size", "768x22"],
    ],
)
def test_each_figure_is_marked(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    capsys.readouterr()
    assert main(["plan", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    for figure in FIGURES:
        [line] = [line for line in lines if line.startswith(f"{figure} ")]
        assert any(f"({mark}" in line for mark in ("computed", "measured", "given"))
    assert any(line.startswith("epochs ") for line in lines) == ("--tokens" in arguments)
    assert any("(measured" in line for line in lines) == ("768x22" in arguments)


@pytest.mark.parametrize(
    ("size", "device"),
    [("256x3", "4090"), ("384x12", "8xH100"), ("768x22", "16xH200"), ("1024x28", "4090")],
)
def test_the_command_starts_the_run_of_the_plan(size: str, device: str):
    found = plan(device=device, hours=24, size=size)
    launcher, _, command = found.write_command().partition("maskwright pretrain ")
    assert launcher.startswith("torchrun") == (found.cards.count > 1)
    assert ("--nnodes 2" in launcher) == (found.cards.count == 16)
    arguments = pretrain.pretrain_parser().parse(shlex.split(command))
    config = resolve(arguments.recipe, None, config_values(arguments))
    assert config == found.config
    assert resolve_model(config) == found.model
    assert found.size == size
    assert config.train.most_minutes == 24 * 60
    assert found.hours == pytest.approx(24)
    assert found.micro_batch.fits
    assert found.micro_batch.memory.total < found.cards.card.memory


def test_more_hours_are_a_larger_size_and_little_text_is_a_smaller_one():
    short = plan(device="8xH100", hours=1e-4, tokens=1e12)
    large, small = (plan(device="8xH100", hours=1000, tokens=n) for n in (1e12, 1e5))
    assert rank_of(short) < rank_of(large)
    assert rank_of(small) == 0
    assert small.epochs is not None
    assert small.epochs > 40
    assert any(line.startswith("warning") for line in small.describe())
    assert not any(line.startswith("warning") for line in large.describe())


def test_without_hours_it_is_twenty_epochs(workplace: Path):
    found = plan(device="H200", tokens=1e9)
    assert found.epochs == pytest.approx(20)
    assert found.hours < math.inf
    data = plan(data_of(workplace), device="H200", size="128x2")
    assert data.epochs == pytest.approx(20)
    assert data.model.vocab_size == 128 < resolve_model(data.config).vocab_size


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--device", "H20", "--hours", "1"], "device = H20"),
        (["--device", "H200"], "hours"),
        (["--device", "H200", "--hours", "0"], "hours = 0"),
        (["--device", "H200", "--tokens", "nan"], "tokens = nan"),
        (["--device", "H200", "--hours", "1", "--size", "100x2"], "size = 100x2"),
        (["--device", "L4", "--hours", "1", "--size", "4096x48"], "size = 4096x48"),
        (["--device", "L4", "--tokens", "1e9", "corpus/"], "--tokens"),
        (["--device", "L4", "--hours", "1", "nowhere.txt"], "nowhere.txt"),
        (["--hours", "1"], "--device"),
    ],
)
def test_mistakes(arguments: list[str], named: str, cli: Cli):
    assert named in cli.refuse("plan", *arguments)


@pytest.mark.parametrize(("device", "nodes"), [("H200", 1), ("8xH100", 1), ("32xH100", 4)])
def test_the_batch_file_is_bash(device: str, nodes: int, tmp_path: Path):
    script = tmp_path / "train.sh"
    found = plan(device=device, hours=30, size="768x22", sbatch=script)
    first, *lines = script.read_text(encoding="utf-8").splitlines()
    assert first == "#!/bin/bash"
    settings = [line for line in lines if line.startswith("#SBATCH --")]
    assert lines[: len(settings)] == settings
    assert f"#SBATCH --nodes={nodes}" in settings
    assert f"#SBATCH --gpus-per-node={found.cards.count // nodes}" in settings
    assert "#SBATCH --time=30:30:00" in settings
    subprocess.run(["bash", "-n", script], check=True)
    again = ["--device", device, "--hours", "1", "--size", "256x3", "--sbatch", str(script)]
    assert main(["plan", *again]) == 2
    assert script.read_text(encoding="utf-8").startswith(f"{first}\n{settings[0]}")
