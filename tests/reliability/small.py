"""The smallest text, data and run that the tests of this package damage and interrupt."""

import shutil
from pathlib import Path

from maskwright.cli.main import main
from tests.preparation.helpers import write_corpus

PREPARE = [
    "--tokenizer.vocab_size", "256", "--corpus.valid_fraction", "0.2", "--block_megabytes", "1",
    "--workers", "1",
]  # fmt: skip
# A checkpoint after every step, and all of them kept. No charts, which take longer than all else.
PRETRAIN = [
    "--data.max_seq_length", "32", "--model.hidden_size", "32", "--model.num_hidden_layers", "1",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "48",
    "--train.batch_tokens", "128", "--train.compile", "off", "--train.log_every_steps", "1",
    "--train.valid_tokens", "512", "--train.final_valid_tokens", "512",
    "--train.num_validations", "1", "--train.ema_decay", "0.9", "--train.max_steps", "6",
    "--train.checkpoint_every_minutes", "1e-9", "--train.keep_checkpoints", "9",
    "--train.report", "false",
]  # fmt: skip


def make_text(folder: Path, megabytes: float = 0.05) -> Path:
    return write_corpus(folder / "words.txt", megabytes)


def make_data(folder: Path) -> Path:
    """Prepared data below `folder`."""
    out = folder / "data"
    assert main(["prepare", str(make_text(folder)), "--out", str(out), *PREPARE]) == 0
    return out


def make_run(folder: Path, data: Path, name: str) -> Path:
    """A finished run of six steps below `folder`."""
    arguments = ["pretrain", str(data), "--runs-dir", str(folder), "--name", name, *PRETRAIN]
    assert main(arguments) == 0
    return folder / name


def cut_back(run: Path, step: int) -> None:
    """Makes of a finished run one that was killed after `step`."""
    shutil.rmtree(run / "model")
    for checkpoint in sorted((run / "checkpoints").iterdir())[step:]:
        shutil.rmtree(checkpoint)


def weights_of(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def flip_a_bit(path: Path) -> None:
    """In the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
