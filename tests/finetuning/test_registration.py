"""A new task is one class and one line: a toy task goes through both commands and the page."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from maskwright.cli.finetune import finetune_parser
from maskwright.cli.main import main
from maskwright.errors import ConfigError
from maskwright.finetuning.config import TASKS
from maskwright.finetuning.task import Labels, choose_metrics, load_label_task
from maskwright.finetuning.text_tasks import Classification
from tests.cli.test_finetune import FAST, write_table
from tests.command import Cli


class Focal(Classification):
    """Classification by focal loss, which attends to what is wrong; of accuracy alone."""

    name = "focal"
    metrics = ("accuracy",)
    other_metrics = ()
    unused = ("class_weights",)
    mistakes_note = "What focal loss could not learn."

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        right = logits.log_softmax(1).gather(1, targets[:, None])[:, 0]
        return (-((1 - right.exp()) ** 2) * right).mean()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "focal", (f"{__name__}:Focal", "one label, by focal loss"))


@pytest.mark.usefixtures("registered")
def test_a_registered_task_is_fine_tuned_and_answers(workplace: Path, tmp_path: Path, cli: Cli):
    table, out = write_table(tmp_path / "train.tsv"), tmp_path / "run"
    model = str(workplace / "runs" / "small")
    command = ["finetune", model, "--task", "focal", "--train", str(table), "--out", str(out)]
    command += ["--columns", "sentence1=text", "label=right", *FAST]
    assert "accuracy" in cli(*command)
    results = json.loads((out / "results.json").read_text())
    assert (results["task"], results["deciding_metric"]) == ("focal", "accuracy")
    assert results["scores"].keys() == {"accuracy", "valid_loss"}
    assert Focal.mistakes_note in (out / "report.html").read_text()
    assert cli("predict", out, "The cat eats fish.").split("\t")[0] in ("yes", "no")
    assert "--class_weights has no effect with --task focal" in cli.refuse(
        *command, "--class_weights", "true"
    )
    assert main(["finetune", "--resume", str(out)]) == 0


@pytest.mark.usefixtures("registered")
def test_a_registered_task_is_known_by_its_name():
    assert "one label, by focal loss" in finetune_parser().format_help()
    task = load_label_task("focal")
    assert task.loss(torch.tensor([[9.0, 0.0]]), torch.tensor([0])) < 1e-6
    with pytest.raises(ConfigError, match="macro_f1 is not a metric of focal"):
        choose_metrics(task, Labels(("a", "b")), "macro_f1")
