"""Compare logits with transformers' after loading, training, saving and a round trip.

For every family that the installed transformers has, it takes models of a few configurations with
random parameters, and measures the largest difference of the logits of padded and packed rows.

load        a folder of transformers, loaded by maskwright
continue    the same, trained for three steps, saved, loaded by transformers
save        a folder of transformers, loaded and saved by maskwright, loaded by transformers
round trip  our folder, loaded and saved by transformers, loaded by maskwright
"""

import argparse
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.common import write_result
from maskwright import export
from maskwright.config import from_mapping
from maskwright.data.loader import RowSource
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import Parallel
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.families import FAMILIES, list_native
from maskwright.model_folder.folder import load_model, save_model
from maskwright.objectives.mlm import MaskedTokensLoss
from maskwright.optim.build import build_optimizers
from maskwright.optim.config import OptimConfig
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.pipeline import prepare_folder
from maskwright.pretraining.build import build_row_source, build_schedule
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.schedule import Schedule
from maskwright.train.step import (
    clip_gradients,
    compute_gradients,
    count_predictions,
    seed_dropout,
)
from tests.hostile.fuzzing.seeds import documents
from tests.twins import (
    PACKED,
    TOLERANCE,
    TWINS,
    build_twin,
    largest_difference,
    list_twins,
    our_logits,
)

WAYS = ("load", "continue", "save", "round trip")
ONNX = "ONNX"  # run by onnxruntime; `export` says itself how far it may be off
_STEPS, _ROW_LENGTH, _TOKENS = 3, 24, 240


class Workshop(NamedTuple):
    """The data and schedule that all families are measured with."""

    data: Path
    tokenizer: Tokenizer
    rows: RowSource
    schedule: Schedule

    @classmethod
    def open(cls, folder: Path) -> "Workshop":
        """Write a corpus and a tokenizer of 64 tokens into `folder`."""
        (folder / "words.txt").write_text("\n\n".join(documents()), encoding="utf-8")
        small = TokenizerConfig(vocab_size=64, min_frequency=1)
        config = PrepareConfig(tokenizer=small, block_megabytes=1, workers=1)
        prepare_folder([str(folder / "words.txt")], folder / "data", config)
        data = PreparedData(folder / "data")
        train = {"max_steps": _STEPS, "batch_tokens": _TOKENS, "micro_batch_tokens": _TOKENS}
        sections = {"train": train, "data": {"max_seq_length": _ROW_LENGTH}}
        three_steps = from_mapping(PretrainConfig, sections)
        rows = build_row_source(three_steps, data)
        schedule = build_schedule(three_steps, data.tokenizer.vocab_size)
        return cls(data.folder, data.tokenizer, rows, schedule)

    def train(self, model: MaskedLanguageModel) -> None:
        """Train a few steps, as `maskwright pretrain` does."""
        objective, device = MaskedTokensLoss(model.train()), torch.device("cpu")
        parallel, terms = Parallel(objective), objective.terms
        num_stacked, position = count_stacked_matrices(model), DataPosition(_ROW_LENGTH)
        optimizers = build_optimizers(OptimConfig(), model.named_parameters(), num_stacked)
        for step in range(_STEPS):
            seed_dropout(0, step)
            plan = self.schedule.step_at(step / _STEPS)
            loaded = self.rows.load(plan.request, position)
            counts = count_predictions(loaded, terms)
            compute_gradients(parallel, loaded, terms, counts, device, "fp32")
            clip_gradients(model, 1.0, parallel)
            optimizers.step()
            optimizers.zero_grad()
            position = loaded.next_position
        model.eval()


def read_by_transformers(folder: Path) -> Any:
    """Return the model in a folder; end the program if transformers reports a tensor."""
    from transformers import AutoModelForMaskedLM

    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    wrong = {key: found for key, found in info.items() if found}
    if wrong:
        sys.exit(f"{type(model).__name__}: {wrong}")
    return model


def measure(name: str, workshop: Workshop, folder: Path) -> dict[str, float]:
    """Return the largest differences of one twin, by way."""
    theirs = build_twin(name)
    theirs.save_pretrained(folder / "theirs")
    workshop.tokenizer.save(folder / "theirs", max_length=_ROW_LENGTH)
    ours, tokenizer = load_model(folder / "theirs")
    differences = {"load": largest_difference(ours, theirs)}

    save_model(folder / "ours", ours, tokenizer)
    read = read_by_transformers(folder / "ours")
    differences["save"] = largest_difference(ours, read)
    read.save_pretrained(folder / "back")
    tokenizer.save(folder / "back", max_length=_ROW_LENGTH)
    back, _ = load_model(folder / "back")
    moved = our_logits(back, PACKED) - our_logits(ours, PACKED)
    differences["round trip"] = moved.abs().max().item()

    workshop.train(ours)
    if torch.equal(our_logits(ours), our_logits(back)):
        raise RuntimeError("training changed nothing")
    save_model(folder / "trained", ours, tokenizer)
    differences["continue"] = largest_difference(ours, read_by_transformers(folder / "trained"))
    return differences


def measure_all(names: list[str]) -> list[dict[str, Any]]:
    """Return the class of each family, its twins, and the worst of them by way."""
    twins: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="maskwright-interchange-") as temporary:
        root = Path(temporary)
        workshop = Workshop.open(root)
        for number, name in enumerate(names):
            folder = root / str(number)
            twins[name] = measure(name, workshop, folder)
            report = export(folder / "trained", "onnx", folder / "onnx", workshop.data)
            twins[name][ONNX] = report.comparison.largest
            print(name, {way: f"{value:.1e}" for way, value in twins[name].items()})
    families: list[dict[str, Any]] = []
    for family in list_native():
        own = {n: found for n, found in twins.items() if TWINS[n].model_type == family.model_type}
        if own:
            worst = {way: max(found[way] for found in own.values()) for way in (*WAYS, ONNX)}
            facts = {"family": family.model_type, "class": family.architecture}
            families.append({**facts, "configurations": list(own), "differences": worst})
    return families


def main(arguments: argparse.Namespace) -> None:
    families = measure_all(list(list_twins()))
    facts = {"transformers": version("transformers"), "tolerance": TOLERANCE, "steps": _STEPS}
    write_result("interchange", {**facts, "families": families})
    worst = max(family["differences"][way] for family in families for way in WAYS)
    if worst > TOLERANCE or any(family["differences"]["round trip"] for family in families):
        sys.exit(f"the largest difference is {worst}, more than {TOLERANCE}")
    missing = FAMILIES.keys() - {family["family"] for family in families} - {"maskwright"}
    if missing:
        print(f"not measured, since the installed transformers lacks them: {sorted(missing)}")
