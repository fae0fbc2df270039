"""A checkpoint that was damaged after it was written is found, named, and never used."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from maskwright.cli.main import main
from tests.reliability.small import cut_back, flip_a_bit, weights_of

NEWEST = "step_00000004"


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A run that was killed after its fourth step."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    cut_back(run, 4)
    return run


def resume(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["pretrain", "--resume", str(run)])
    said = capsys.readouterr()
    return code, said.out, said.err


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def change_manifest(change: Callable[[dict[str, str]], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        change(manifest)
        path.write_text(json.dumps(manifest), encoding="utf-8")

    return edit


LIES = {
    "another hash": lambda manifest: manifest.update({"state.json": 64 * "0"}),
    "a file that is not there": lambda manifest: manifest.update({"more.safetensors": 64 * "0"}),
    "a file left out": lambda manifest: manifest.pop("state.json"),
    "nothing": lambda manifest: manifest.clear(),
}


def check_fallback(
    run: Path, whole: Path, capsys: pytest.CaptureFixture[str], named: str = NEWEST
) -> None:
    code, out, err = resume(run, capsys)
    assert (code, err) == (0, "")
    [warning] = [line for line in out.splitlines() if line.startswith("warning:")]
    assert NEWEST in warning
    assert named in warning
    assert "the checkpoint before it is used" in warning
    assert "at step 3" in out
    assert weights_of(run) == weights_of(whole)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        *(("*.safetensors", damage) for damage in (flip_a_bit, truncate, empty, Path.unlink)),
        *(("state.json", damage) for damage in (flip_a_bit, Path.unlink)),
        *(("manifest.json", damage) for damage in (truncate, empty)),
    ],
)
def test_the_checkpoint_before_a_damaged_one_is_used(
    run: Path,
    whole: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    damage: Callable[[Path], None],
) -> None:
    files = sorted((run / "checkpoints" / NEWEST).glob(kind))
    assert files
    damage(files[0])
    check_fallback(run, whole, capsys, NEWEST if kind == "manifest.json" else files[0].name)


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_is_not_believed(
    run: Path, whole: Path, capsys: pytest.CaptureFixture[str], lie: str
) -> None:
    change_manifest(LIES[lie])(run / "checkpoints" / NEWEST / "manifest.json")
    check_fallback(run, whole, capsys)


def test_when_all_are_damaged_nothing_is_done(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for checkpoint in (run / "checkpoints").iterdir():
        flip_a_bit(next(checkpoint.glob("*.safetensors")))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, out, err = resume(run, capsys)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert err.startswith("CheckpointError")
    assert "warning" not in out
    assert err.count("is damaged") == 4
    assert f"remove {run}, or give another --name, and start it again" in err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_checkpoint_of_another_model_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = {"config.yaml": "num_hidden_layers", "provenance.json": '"num_hidden_layers"'}
    for name, key in layers.items():
        text = (run / name).read_text(encoding="utf-8")
        assert f"{key}: 1" in text
        (run / name).write_text(text.replace(f"{key}: 1", f"{key}: 2"))
    code, _, err = resume(run, capsys)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert err.startswith("CheckpointError")
