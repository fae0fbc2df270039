"""A run in its directory: train to the end or to a signal, save the models, show the result."""

import shlex
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.text import Text

from maskwright.config import to_mapping
from maskwright.console import Console
from maskwright.distributed.world import World
from maskwright.logs import Record, read_metrics
from maskwright.model_folder.card import add_example
from maskwright.model_folder.folder import save_model
from maskwright.objectives.build import count_parameters_of
from maskwright.objectives.objective import Objective, TrainedModel
from maskwright.pretraining.build import build_trainer, consolidate
from maskwright.pretraining.init_from import InitialModel
from maskwright.pretraining.micro_batch import choose_micro_batch
from maskwright.pretraining.prepared_data import PreparedData, describe_sources, objective_of
from maskwright.pretraining.run_summary import describe_training, list_results
from maskwright.pretraining.training_suites import HEADLINES
from maskwright.provenance import find_version
from maskwright.report.facts import gather_facts
from maskwright.report.run_page import write_report
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import (
    CHECKPOINTS_NAME,
    METRICS_NAME,
    MICRO_BATCH,
    MODEL_NAME,
    REPORT_NAME,
    Origin,
)
from maskwright.tokenizer.token_text import make_examples
from maskwright.train.device import describe_computation
from maskwright.train.panel import color_sample
from maskwright.train.reporting import SILENT, RunReporter
from maskwright.train.trainer import Trainer


def open_console(world: World) -> Console:
    """Return the console of this process; only the first rank prints."""
    # Brackets in paths and messages are not markup.
    return Console(highlight=False, soft_wrap=True, markup=False, quiet=not world.is_first)


@dataclass(frozen=True)
class Session:
    """A trainer in its run directory.

    Attributes:
        reporting: the context in which the trainer reports.
        note: a sentence on whether the trainer compiles.
        origin: the entry of provenance.json on the model that the run began with, if any.
        teacher: the entry on the model that it learns from, if any.
    """

    run: Path
    config: PretrainConfig
    data: PreparedData
    objective: Objective[Any]
    trainer: Trainer
    reporting: AbstractContextManager[object]
    note: str
    console: Console
    origin: Mapping[str, Any] | None = None
    teacher: Origin | None = None

    @property
    def computation(self) -> dict[str, str | int]:
        """The entry of provenance.json on the computation, see `RunFacts`."""
        tokens = self.trainer.planner.train.micro_batch_tokens
        return {
            **describe_computation(self.config.train.precision, self.trainer.device),
            "ranks": self.trainer.world.size,
            "threads": torch.get_num_threads(),
            "compiling": self.note,
            **({MICRO_BATCH: tokens} if isinstance(tokens, int) else {}),
        }

    def train(self) -> signal.Signals | None:
        """Train and save; return the signal that stopped the run before its end, or None."""
        trainer, world, place = self.trainer, self.trainer.world, str(self.trainer.device)
        if world.size > 1:
            place = f"{world.size} ranks ({trainer.device.type}, {trainer.config.parallel})"
        with self.reporting:
            size = count_parameters_of(trainer.model)
            self.console.print(f"{self.run}: {size:,} parameters on {place}, {self.note}")
            for line in describe_sources(self.data):
                self.console.print(f"  {line}")
            try:
                stopped_by = trainer.fit(self._save)
            finally:
                trainer.prefetcher.close()
                if trainer.checkpoints is not None:
                    trainer.checkpoints.close()
        if stopped_by is not None:
            return stopped_by
        # A run that had ended already when it was resumed is scored again.
        final = trainer.last_scores or {**trainer.state.to_json(), **trainer.scores(final=True)}
        self._save(final=final)
        self._show_result(final)
        if self.config.train.report and world.is_first:
            self._report()
        return None

    def _report(self) -> None:
        """Write the report page; no error in it may fail the run."""
        try:
            write_report([gather_facts(self.run, self.run.absolute().name)], self.run / REPORT_NAME)
        except Exception as error:
            self.console.print(f"no {REPORT_NAME}: {error} (retry: maskwright report {self.run})")
            return
        self.console.print(f"Report: {self.run / REPORT_NAME}")

    def _save(self, milestone: str = "", final: Record | None = None) -> None:
        """Save the current model: at the end of the run with its scores, or at a milestone."""
        with self.trainer.averaged_weights():
            network = consolidate(self.trainer)
            for trained in self.objective.list_models(network) if network is not None else ():
                name = "-".join(filter(None, (milestone, trained.folder))) or MODEL_NAME
                card = self._describe(trained, final) if final else None
                out, wraps = self.run / name, self.config.data.special_tokens
                save_model(out, trained.model, self.data.tokenizer, card, add_special_tokens=wraps)

    def _describe(self, trained: TrainedModel, final: Record) -> str:
        card = describe_training(
            self.run.name,
            find_version("maskwright") or "from a checkout",
            self.config,
            self.data,
            self.objective,
            trained.title,
            final,
            before=self._read_beginning(),
            origin=self.origin,
            teacher=self.teacher,
        )
        return add_example(card, [self._prompt]) if trained.fills_masks else card

    @cached_property
    def _prompt(self) -> str:
        """Frequent words around a mask."""
        counts = self.data.train.unigram_counts
        before, after = make_examples(self.data.tokenizer, 2, counts)
        return f"{before} {self.data.tokenizer.mask_token} {after}".strip()

    def _read_beginning(self) -> Record | None:
        """Return the scores of the model that the run began with, or None.

        Invalid lines are skipped, because the model must be saved in any case.
        """
        if self.config.init_from is None:
            return None
        records = read_metrics(self.run / METRICS_NAME)
        scored = (r for r in records if r.get("split") == "valid" and r.get("step") == 0)
        names = {line.name for line in self.objective.scores}
        return next((record for record in scored if names & record.keys()), None)

    def _show_result(self, final: Record) -> None:
        """Print the scores beside the baselines, and the next commands."""
        say = self.console.print
        counts = [f"{final[name]:,} {noun}" for name, noun in self.objective.counts]
        say(
            f"\n{final['step']:,} steps, {final['tokens']:,} tokens, "
            f"{final['seconds'] / 60:.1f} minutes. On held-out text, {', '.join(counts)}:"
        )
        for line in list_results(self.objective.scores, final, self._read_beginning()):
            say(line)
        for name in HEADLINES:
            if name in final:
                say(f"  {name:<26} {final[name]:.3f}")
        if final.get("samples"):
            say("\nHeld-out text with words or characters masked:")
        for line in final.get("samples", []):
            say(Text("  ").append_text(color_sample(line)))
        self._show_next()

    def _show_next(self) -> None:
        """Print a command for each model."""
        places, commands = list[str](), list[str]()
        for trained in self.objective.list_models(self.trainer.model):
            folder = self.run if trained.folder is None else self.run / trained.folder
            places.append(f"{trained.name} is in {self.run / (trained.folder or MODEL_NAME)}.")
            if trained.fills_masks:
                prompt = shlex.quote(self._prompt)
                commands.append(f"  maskwright fill {shlex.quote(str(folder))} {prompt}")
            else:
                use = f"{shlex.quote(str(folder))} --file sentences.txt --out vectors.npy"
                commands.append(f"  maskwright embed {use}")
        self.console.print("\n" + "\n".join([*places, "Try", *commands]))


def open_session(
    run: Path,
    config: PretrainConfig,
    data: PreparedData,
    world: World,
    console: Console,
    *,
    initial: InitialModel | None = None,
    teacher: InitialModel | None = None,
    origin: Mapping[str, Any] | None = None,
    last_step: int | None = None,
    kept_tokens: int | None = None,
) -> Session:
    """Build the trainer and the reporter of a run; nothing is written yet.

    Args:
        initial: the model that training begins with; None if a checkpoint replaces its weights.
        teacher: the model that it learns from.
        origin: the entry of provenance.json on the model that the run began with, if any.
        last_step: the step of the checkpoint that the run resumes from.
        kept_tokens: the micro-batch of the run that is resumed, to keep if it fits.

    Raises:
        ConfigError: not one row fits on the GPU.
    """
    objective = objective_of(config)
    reporter = SILENT
    if world.is_first:
        trackers, plain = config.train.trackers, to_mapping(config)
        reporter = RunReporter(run, objective.scores, console, last_step, trackers, plain)
    checkpoints = run / CHECKPOINTS_NAME
    trainer, note = build_trainer(config, data, checkpoints, world, initial, reporter, teacher)
    if config.train.micro_batch_tokens == "auto" and trainer.device.type == "cuda":
        choose_micro_batch(trainer, config, console.print, kept_tokens)
    reporting = reporter if isinstance(reporter, RunReporter) else nullcontext()
    taught_by = teacher.describe() if teacher else None
    return Session(
        run, config, data, objective, trainer, reporting, note, console, origin, taught_by
    )
