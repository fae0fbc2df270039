"""``maskwright inspect``: counts and rows of prepared data; the very batches of a run."""

import html
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.cli.main import main
from maskwright.data.batch import Batch
from maskwright.data.loader import LoadedStep, Prefetcher
from maskwright.data.masking import IGNORED
from tests.command import Cli
from tests.workplace import SMALL, data_of

SCHEDULES = [
    "--data.max_seq_length", "32", "--train.seq_length_schedule", "0:16,0.4:32",
    "--masking.rate", "0.3", "--masking.final_rate", "0.13", "--masking.strategy", "words",
    "--train.batch_tokens", "2048", "--train.micro_batch_tokens", "512", "--seed", "7",
    "--model.num_hidden_layers", "1", "--train.max_steps", "40", "--train.num_validations", "1",
]  # fmt: skip


@pytest.fixture
def data(workplace: Path) -> str:
    return str(data_of(workplace))


def inspect_rows(cli: Cli, *arguments: object) -> list[dict]:
    return [json.loads(line) for line in cli("inspect", *arguments, "--json").splitlines()]


@pytest.fixture(scope="module")
def trained(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list]:
    """A run over several epochs with two row lengths, and every step that it took."""
    root = tmp_path_factory.mktemp("runs")
    steps: list[LoadedStep] = []
    take = Prefetcher.take

    def take_and_keep(self: Prefetcher, *arguments: Any) -> LoadedStep:
        steps.append(take(self, *arguments))
        return steps[-1]

    data = str(data_of(workplace))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Prefetcher, "take", take_and_keep)
        flags = [*SMALL, *SCHEDULES, "--runs-dir", str(root), "--name", "scheduled"]
        assert main(["pretrain", data, *flags]) == 0
    return str(root / "scheduled"), steps


def rows_of(step: LoadedStep) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Ids, labels and segments of each row that training saw, without fillers."""
    for batch in step.micro_batches:
        labels = np.full(len(batch.input_ids), IGNORED)
        used = batch.masked_labels.numpy() != IGNORED
        labels[batch.masked_positions.numpy()[used]] = batch.masked_labels.numpy()[used]
        columns = (batch.input_ids.numpy(), labels, batch.context.segment_ids.numpy())
        yield from zip(*(cut(column, batch) for column in columns), strict=True)


def cut(column: np.ndarray, batch: Batch) -> list[list[int]]:
    return column.reshape(-1, batch.context.row_length).tolist()


def test_the_rows_of_a_step_are_those_that_training_saw(trained: tuple[str, list], cli: Cli):
    folder, steps = trained
    epochs = {step.position.epoch for step in steps}
    assert {step.request.row_length for step in steps} == {16, 32}
    assert len(epochs) > 3
    in_two_epochs = [s for s in steps if s.next_position.epoch > s.position.epoch]
    chosen = [steps[0], steps[17], steps[-1], in_two_epochs[0], in_two_epochs[-1]]
    for step in chosen:
        request, position = step.request, step.position
        where = ["--epoch", position.epoch, "--first-row", position.row]
        where += ["--row-length", request.row_length, "--mask-rate", request.mask_rate]
        shown = inspect_rows(cli, folder, *where, "--rows", request.num_rows)
        seen = list(rows_of(step))[: request.num_rows]
        assert [(row["ids"], row["labels"], row["segments"]) for row in shown] == seen


def test_a_run_shows_its_first_rows_with_its_own_configuration(trained: tuple[str, list], cli: Cli):
    folder, steps = trained
    shown = inspect_rows(cli, folder, "--rows", "5")
    seen = list(rows_of(steps[0]))[:5]
    assert [(row["ids"], row["labels"], row["segments"]) for row in shown] == seen
    assert "row length 16, mask rate 0.3, seed 7" in cli("inspect", folder)


def test_row_numbers_are_real_ones(trained: tuple[str, list], cli: Cli):
    """Each names its row, also behind the gap at the end of an epoch."""
    folder, _ = trained
    shown = inspect_rows(cli, folder, "--rows", "700", "--row-length", "32")
    places = [(row["epoch"], row["row"]) for row in shown]
    assert places == sorted(set(places))
    beyond = next(i for i, (epoch, _) in enumerate(places) if epoch == 1)
    assert places[beyond] == (1, 0)
    epoch, number = places[beyond - 1]
    where = ["--row-length", "32", "--epoch", epoch, "--first-row", number]
    again = inspect_rows(cli, folder, "--rows", "3", *where)
    assert again == shown[beyond - 1 : beyond + 2]
    text = cli("inspect", folder, "--row-length", "32", "--first-row", number + 1)
    assert "epoch 1, row 0\n" in text
    assert "epoch 1, row 1\n" in text


def test_json_rows_hold_what_a_program_needs(data: str, cli: Cli):
    flags = ["--data.max_seq_length", "32", "--first-row", "4"]
    [row] = inspect_rows(cli, data, *flags, "--rows", "1")
    assert row.keys() == {"epoch", "row", "tokens", "ids", "labels", "segments"}
    assert (row["epoch"], row["row"]) == (0, 4)
    assert {len(row[name]) for name in ("tokens", "ids", "labels", "segments")} == {32}
    assert row["tokens"][0] == "[CLS]"
    hidden = [label for label in row["labels"] if label != IGNORED]
    assert hidden
    assert inspect_rows(cli, data, *flags, "--rows", "0") == []
    many = inspect_rows(cli, data, *flags, "--rows", "130")  # more than are built at once
    assert many[0] == row
    assert len(many) == len({(row["epoch"], row["row"]) for row in many}) == 130


def test_rows_of_the_validation_split(data: str, cli: Cli):
    flags = ["--data.max_seq_length", "32", "--rows", "1"]
    train, valid = (inspect_rows(cli, data, *flags, "--split", s) for s in ("train", "valid"))
    assert train[0]["ids"] != valid[0]["ids"]


@pytest.mark.parametrize(
    "flags",
    [["--config", "run.yaml"], ["--seed", "7"], ["--masking.rate", "0.2"], ["--data.packed", "0"]],
)
def test_a_run_takes_no_other_configuration(trained: tuple[str, list], cli: Cli, flags: list[str]):
    message = cli.refuse("inspect", trained[0], *flags)
    assert message.startswith("InputError")
    assert "has a configuration of its own: leave out --config, --seed" in message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rows", "-1"], "--rows = -1 must be between 0 and"),
        (["--epoch", "-3"], "--epoch = -3 must be"),
        (["--epoch", "99999999999999999999"], "--epoch = 99999999999999999999 must be"),
        (["--first-row", str(2**63)], f"--first-row = {2**63} must be"),
        (["--row-length", "4"], "--row-length = 4 must be between 8 and 32"),
        (["--row-length", "33"], "--row-length = 33 must be between 8 and 32"),
        (["--row-length", "long"], "--row-length"),
        (["--mask-rate", "0"], "--mask-rate = 0 must be between 0 and 0.3"),
        (["--mask-rate", "0.31"], "--mask-rate = 0.31 must be between 0 and 0.3"),
        (["--mask-rate", "nan"], "--mask-rate = nan must be"),
    ],
)
def test_values_that_name_no_rows(
    trained: tuple[str, list], cli: Cli, flags: list[str], message: str
):
    assert message in cli.refuse("inspect", trained[0], *flags)


def test_a_run_whose_data_is_gone_or_other_data(
    trained: tuple[str, list], tmp_path: Path, cli: Cli
):
    shutil.copytree(trained[0], tmp_path / "run")
    path = tmp_path / "run" / "provenance.json"
    provenance = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**provenance, "prepared_data": str(tmp_path / "nowhere")}))
    message = cli.refuse("inspect", tmp_path / "run")
    assert message.startswith("CheckpointError")
    assert "nowhere" in message
    path.write_text(json.dumps({**provenance, "corpus": {"fingerprint": "another"}}))
    message = cli.refuse("inspect", tmp_path / "run")
    assert "is not the data that" in message
    path.unlink()
    assert "provenance.json cannot be read" in cli.refuse("inspect", path.parent)


def read_page(path: Path) -> dict[str, list[list[tuple[str, str, str]]]]:
    """Return the rows of each rate on the page: the shown token, its kind and the clean token."""
    page = html.unescape(path.read_text(encoding="utf-8"))
    found: dict[str, list[list[tuple[str, str, str]]]] = {}
    for section in page.split("<section ")[1:]:
        rate = section.partition('data-rate="')[2].partition('"')[0]
        marks = r'<mark class="(\w+)"[^>]*>(.*?)</mark><small>⟨(.*?)⟩</small>'
        rows = section.split("<h3>")[1:]
        found[rate] = [[(b, a, c) for a, b, c in re.findall(marks, row)] for row in rows]
    return found


@pytest.mark.parametrize("strategy", ["tokens", "words", "spans"])
def test_the_page_shows_the_rows_of_each_rate(strategy: str, data: str, tmp_path: Path, cli: Cli):
    flags = ["--rows", 5, "--masking.strategy", strategy, "--masking.rate", 0.33]
    said = cli("inspect", data, *flags, "--html", tmp_path / "rows.html")
    assert "open it in a browser" in said
    found = read_page(tmp_path / "rows.html")
    assert [*found] == [f"{n}%" for n in (5, 10, 15, 20, 25, 30, 33, 35, 40, 45, 50, 55, 60)]
    for rate, pictured in found.items():
        share = float(rate.rstrip("%")) / 100
        same = ["--rows", 5, "--masking.strategy", strategy, "--masking.rate", share]
        rows = inspect_rows(cli, data, *same)
        assert len(pictured) == len(rows) == 5
        for marks, row in zip(pictured, rows, strict=True):
            masked = [n for n, label in enumerate(row["labels"]) if label != IGNORED]
            assert [shown for shown, _, _ in marks] == [row["tokens"][n] for n in masked]
            for (shown, kind, _), n in zip(marks, masked, strict=True):
                is_kept = row["ids"][n] == row["labels"][n]
                assert kind == ("kept" if is_kept else "masked" if shown == "[MASK]" else "random")
    page = (tmp_path / "rows.html").read_text(encoding="utf-8")
    assert page.count("<section") - page.count(" hidden>") == 1
    assert "<output>33%</output>" in page


def test_a_page_is_a_new_file(data: str, tmp_path: Path, cli: Cli):
    (tmp_path / "rows.html").touch()
    page = ["--html", tmp_path / "rows.html"]
    assert "exists already" in cli.refuse("inspect", data, *page)
    assert "--json has no effect" in cli.refuse("inspect", data, *page, "--json")
