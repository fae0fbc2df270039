"""The readable twin and the library do the same, step for step."""

import json
import re
import runpy
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from examples import mlm_in_one_file as twin
from maskwright.data.batch import Batch
from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import StepRequest
from maskwright.data.rows import WINDOW_SEGMENTS, DataPosition, segments_per_row
from maskwright.logs import Record
from maskwright.pretraining.build import build_row_source, build_trainer, resolve_model
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.shards.manifest import Manifest, ShardInfo, SplitInfo, write_manifest
from maskwright.shards.writer import write_array
from maskwright.train.trainer import Reporter
from tests.helpers import VOCAB_SIZE, SyntheticCorpus, random_corpus
from tests.model_folder.helpers import tiny_tokenizer
from tests.shards.helpers import write_shard

STEPS = 20
SMALL = twin.Settings(
    num_rows=16, row_length=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=96,
)  # fmt: skip
# Steps 1 to 3 on this corpus. They are here so that twin and library cannot drift together;
# whoever changes the algorithm on purpose changes them too.
GOLDEN_LOSSES = [4.13287, 4.16331, 4.12581]


def small_config() -> PretrainConfig:
    """The recipe `tiny` with the sizes of `SMALL`."""
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    train = {
        "max_steps": STEPS, "batch_tokens": SMALL.num_rows * SMALL.row_length,
        "log_every_steps": 1, "num_validations": 1,
        "compile": "off", "precision": "fp32", "device": "cpu",
    }  # fmt: skip
    overrides = {
        "data": {"max_seq_length": SMALL.row_length},
        "model": {name: getattr(SMALL, name) for name in sizes},
        "train": train,
    }
    return resolve("tiny", overrides=overrides)


def write_split(folder: Path, corpus: SyntheticCorpus) -> SplitInfo:
    """The documents of `corpus` in two shards of unequal size."""
    ends = np.cumsum(corpus.document_lengths).tolist()
    lengths = corpus.document_lengths.tolist()
    spans = [(end - n, end) for end, n in zip(ends, lengths, strict=True) if n]
    shards: list[ShardInfo] = []
    for number, part in enumerate((spans[: len(spans) // 3], spans[len(spans) // 3 :])):
        documents = [(corpus.tokens(*span), corpus.word_starts(*span)) for span in part]
        shards.append(write_shard(folder, f"{number:05}", documents))
    return SplitInfo(len(corpus.ids), len(spans), 0, 0, 0, tuple(shards))


def write_prepared(folder: Path, corpus: SyntheticCorpus) -> Path:
    """A prepared folder as `maskwright prepare` would write it, with `corpus` as both splits."""
    manifest = Manifest(
        vocab_size=VOCAB_SIZE,
        dtype="uint16",
        tokenizer_fingerprint=tiny_tokenizer(folder / "tokenizer").fingerprint,
        fingerprint="",
        source={},
        splits={split: write_split(folder / split, corpus) for split in ("train", "valid")},
        unigram_counts=write_array(folder / "unigram.counts", corpus.unigram_counts.astype("<u8")),
        dropped={},
    )
    write_manifest(folder, manifest)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows for about a dozen steps, so that a second epoch begins."""
    return write_prepared(tmp_path_factory.mktemp("prepared"), random_corpus(200, 60))


class Recorder(Reporter):
    """Keeps the losses of a run."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def report(self, record: Record, progress: float) -> None:
        if record["split"] == "train":
            self.losses.append(record["loss"])


def test_losses_equal_the_library_s_and_the_golden_ones(folder: Path) -> None:
    recorder = Recorder()
    trainer, _ = build_trainer(small_config(), PreparedData(folder), folder / "checkpoints")
    trainer.validate = lambda number, final, is_asked_to_stop: {}
    trainer.reporter = recorder
    trainer.fit()
    losses = list(twin.train(twin.Corpus(folder, SMALL.row_length), SMALL, STEPS))
    assert trainer.state.position.epoch == 1
    assert losses == pytest.approx(recorder.losses, abs=1e-5, rel=0)
    assert losses[:3] == pytest.approx(GOLDEN_LOSSES, abs=2e-4, rel=0)


def load_first_batch(folder: Path) -> Batch:
    """The library's first batch at the initial mask rate."""
    request = StepRequest(SMALL.row_length, SMALL.num_rows, SMALL.num_rows, SMALL.mask_rate)
    source = build_row_source(small_config(), PreparedData(folder))
    (batch,) = source.load(request, DataPosition(SMALL.row_length)).micro_batches
    return batch


def build_first_batch(corpus: twin.Corpus) -> torch.Tensor:
    """The twin's first batch, [4, R, L]."""
    rows = islice(twin.plan_rows(corpus, SMALL.seed), SMALL.num_rows)
    built = [twin.build_row(*row, corpus, SMALL.mask_rate) for row in rows]
    return torch.tensor(built).transpose(0, 1)


def test_the_first_batch_of_text_without_some_tokens_equals_the_library_s(tmp_path: Path) -> None:
    corpus = random_corpus(200, 60)
    corpus.ids[:] = 5 + corpus.ids % 7  # so most random tokens are drawn a second time
    test_the_first_batch_equals_the_library_s(write_prepared(tmp_path, corpus))


def test_the_first_batch_equals_the_library_s(folder: Path) -> None:
    batch = load_first_batch(folder)
    labels = torch.full_like(batch.input_ids, -100)
    used = batch.masked_labels != -100
    labels[batch.masked_positions[used]] = batch.masked_labels[used]
    expected = [batch.input_ids, labels, batch.context.positions, batch.context.segment_ids.long()]
    built = build_first_batch(twin.Corpus(folder, SMALL.row_length))
    for ours, theirs in zip(built.flatten(1), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_initial_weights_equal_the_library_s(folder: Path) -> None:
    trainer, _ = build_trainer(small_config(), PreparedData(folder), folder / "checkpoints")
    encoder = twin.Encoder(SMALL, twin.Corpus(folder, SMALL.row_length))
    for theirs, ours in zip(trainer.model.parameters(), encoder.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_gradients_with_large_weights_equal_the_library_s(folder: Path) -> None:
    """Initial weights are so small that gelu and softmax are nearly linear; these are not."""
    trainer, _ = build_trainer(small_config(), PreparedData(folder), folder / "checkpoints")
    corpus = twin.Corpus(folder, SMALL.row_length)
    encoder, generator = twin.Encoder(SMALL, corpus), torch.Generator().manual_seed(1)
    pairs = list(zip(trainer.model.parameters(), encoder.parameters(), strict=True))
    with torch.no_grad():
        for theirs, ours in pairs:
            ours.copy_(theirs.normal_(1.0 if theirs.ndim == 1 else 0.0, 0.2, generator=generator))
    batch = load_first_batch(folder)
    sums = trainer.parallel.loss(batch)
    sums["mlm"].loss.backward()
    ids, labels, positions, numbers = build_first_batch(corpus)
    logits = encoder(ids, positions, numbers, labels != -100)
    F.cross_entropy(logits, labels[labels != -100], reduction="sum").backward()
    for theirs, ours in pairs:
        assert theirs.grad is not None
        assert ours.grad is not None
        assert (ours.grad - theirs.grad).norm() < 1e-5 * theirs.grad.norm()


def test_rows_equal_the_library_s_over_windows_and_epochs(tmp_path: Path) -> None:
    # The short documents fill rows up to the limit of segments in a row.
    lengths = [n for short in range(1800) for n in (1 + short % 2, short % 60)]
    folder = write_prepared(tmp_path, SyntheticCorpus(lengths))
    corpus = twin.Corpus(folder, SMALL.row_length)
    assert len(corpus.segments) > WINDOW_SEGMENTS
    source = build_row_source(small_config(), PreparedData(folder))
    position = DataPosition(SMALL.row_length)
    rows, _ = source.planner(SMALL.row_length).plan_rows(position, len(corpus.segments))
    assert {row.epoch for row in rows} >= {0, 1}
    assert max(len(row.segments) for row in rows) == segments_per_row(SMALL.row_length)
    for row, (key, segments) in zip(rows, twin.plan_rows(corpus, SMALL.seed), strict=False):
        assert key == derive_keys(SMALL.seed, row.epoch, row.number)[0]
        assert segments == list(row.segments)


def test_settings_are_the_recipe_s(folder: Path) -> None:
    config, settings = resolve("tiny"), twin.Settings()._asdict()
    sizes = vars(resolve_model(config, PreparedData(folder).tokenizer))
    named_alike = {**sizes, **vars(config.optim), "seed": config.seed}
    named_otherwise = {
        "num_rows": config.train.batch_tokens // config.data.max_seq_length,
        "row_length": config.data.max_seq_length,
        "mask_rate": config.masking.rate_at(0.0),
        "final_mask_rate": config.masking.rate_at(1.0),
    }
    assert settings == {
        **{name: value for name, value in named_alike.items() if name in settings},
        **named_otherwise,
    }
    assert config.optim.muon_weight_decay == settings["weight_decay"]


def test_the_twin_runs_by_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(twin.__file__)
    assert re.search(r"^(import|from) maskwright", file.read_text(), re.MULTILINE) is None
    monkeypatch.setattr(sys, "argv", [file.name, str(folder), "--steps", "1"])
    runpy.run_path(str(file), run_name="__main__")
    assert re.fullmatch(r"step 1  loss \d\.\d{4}\n", capsys.readouterr().out)


def run_twin(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["twin", *arguments])
    twin.main()


def test_the_twin_reads_a_text_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "text.txt"
    file.write_text("The cat eats fish.\nIt is old.\n\nThe horse eats grass.\n" * 20)
    corpus = twin.Corpus(file, 16)
    assert corpus.vocab_size == 5 + len(corpus.ordinary_ids) == 5 + 10
    assert len(corpus.segments) == 21
    monkeypatch.setattr(twin, "Settings", lambda: SMALL)
    run_twin(monkeypatch, str(file), "--steps", "2")
    assert capsys.readouterr().out.count("loss") == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), (b"", "no text"), (b"\xff\xfe\x00", "UTF-8"), ({}, "vocab_size")],
)
def test_the_twin_refuses_bad_input_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | dict[str, int] | None,
    reason: str,
) -> None:
    path = tmp_path / "input"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
        (path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(SystemExit, match="2"):
        run_twin(monkeypatch, str(path))
    [line] = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert reason in line
