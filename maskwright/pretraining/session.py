"""Trains in a run directory to the end of the budget, or to a signal, and saves the model."""

import shlex
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.text import Text

from maskwright.console import Console
from maskwright.distributed.sharding import UNSHARDED
from maskwright.distributed.world import World
from maskwright.inference.samples import HeldOutSamples
from maskwright.logs import Record, read_metrics
from maskwright.model.electra import Discriminator, GeneratorAndDiscriminator, Network
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.model_folder.card import add_example
from maskwright.model_folder.folder import GENERATOR, save_model
from maskwright.objectives.build import count_parameters_of
from maskwright.pretraining.card import DISCRIMINATOR, MODEL, describe_training
from maskwright.pretraining.prepared_data import PreparedData, describe_sources
from maskwright.pretraining.training_suites import HEADLINES
from maskwright.report.gather import gather_facts, write_report
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import METRICS_NAME, MODEL_NAME, REPORT_NAME
from maskwright.train.panel import color_sample, of_sources
from maskwright.train.reporting import RunReporter
from maskwright.train.trainer import Trainer


def open_console(world: World) -> Console:
    """Where this process speaks to the user: only the first does."""
    # Paths and reasons may hold brackets, which are no markup.
    return Console(highlight=False, soft_wrap=True, markup=False, quiet=not world.is_first)


@dataclass(frozen=True)
class Session:
    """A trainer in its run directory.

    Attributes:
        note: a sentence on whether it compiles.
        origin: what provenance.json says of the model that the run began with, if with one.
    """

    run: Path
    config: PretrainConfig
    data: PreparedData
    trainer: Trainer
    note: str
    console: Console
    origin: Mapping[str, Any] | None = None

    def train(self, last_step: int | None = None) -> signal.Signals | None:
        """Trains and saves; returns the signal that stopped it before its end, if one did.

        Args:
            last_step: of the checkpoint that the run goes on from.
        """
        trainer = self.trainer
        with self._reporting(last_step):
            size = count_parameters_of(trainer.model)
            self.console.print(
                f"{self.run}: {size:,} parameters on {_describe_place(trainer)}, {self.note}"
            )
            for line in describe_sources(self.data):
                self.console.print(f"  {line}")
            try:
                stopped_by = trainer.fit()
            finally:
                trainer.prefetcher.close()
                if trainer.checkpoints is not None:
                    trainer.checkpoints.close()
        if stopped_by is not None:
            self.console.print(
                f"stopped at step {trainer.state.step:,}; go on with "
                f"maskwright pretrain --resume {self.run}"
            )
            return stopped_by
        # A run that had ended already when it was resumed is scored again.
        final = trainer.last_scores or {**trainer.state.to_json(), **trainer.scores(final=True)}
        self._save(final)
        self._show_result(final)
        if self.config.train.report and trainer.world.is_first:
            self._report()
        return None

    def _report(self) -> None:
        """A page about the run, which is whole without it, whatever goes wrong with the page."""
        try:
            write_report([gather_facts(self.run, self.run.absolute().name)], self.run / REPORT_NAME)
        except Exception as error:
            self.console.print(f"no {REPORT_NAME}: {error} (then: maskwright report {self.run})")
            return
        self.console.print(f"How it went: {self.run / REPORT_NAME}")

    @contextmanager
    def _reporting(self, last_step: int | None) -> Generator[None]:
        if not self.trainer.world.is_first:
            yield
            return
        with RunReporter(self.run, self.console, last_step) as self.trainer.reporter:
            yield

    def _save(self, final: Record) -> None:
        with self.trainer.averaged_weights():
            network = consolidate(self.trainer)
            if isinstance(network, GeneratorAndDiscriminator):
                self._save_model(GENERATOR, network.generator, final)
                self._save_model(MODEL_NAME, network.discriminator, final)
            elif network is not None:
                self._save_model(MODEL_NAME, network, final)

    def _save_model(
        self, name: str, model: MaskedLanguageModel | Discriminator, final: Record
    ) -> None:
        card = describe_training(
            self.run.name,
            version("maskwright"),
            self.config,
            self.data,
            final,
            before=self._read_beginning(),
            origin=self.origin,
            what=DISCRIMINATOR if isinstance(model, Discriminator) else MODEL,
        )
        prompt = self._prompt
        if prompt is not None and not isinstance(model, Discriminator):
            card = add_example(card, [prompt])
        save_model(
            self.run / name,
            model,
            self.data.tokenizer,
            card,
            add_special_tokens=self.config.data.special_tokens,
        )

    @cached_property
    def _prompt(self) -> str | None:
        """The first of the samples that the run shows, with its mask; None if there is none."""
        longest = self.trainer.model.config.max_position_embeddings
        samples = HeldOutSamples(
            self.data.valid, self.data.tokenizer, 1, longest - self.config.data.extra_slots
        )
        return samples.show_prompt()

    def _read_beginning(self) -> Record | None:
        """The scores of the model that the run began with, if that was worth scoring.

        Lines that are no records do not matter here: the model must be saved in any case.
        """
        if self.config.init_from is None:
            return None
        records = read_metrics(self.run / METRICS_NAME)
        scored = (r for r in records if r.get("split") == "valid" and r.get("step") == 0)
        return next((r for r in scored if r.keys() >= {"masked_accuracy", "loss"}), None)

    def _show_result(self, final: Record) -> None:
        """What the model learned, beside what no learning would score, and what to do next."""
        say = self.console.print
        before = self._read_beginning()

        def show(name: str) -> str:
            return f"{final[name]:.3f}" + (
                f"   before {before[name]:.3f}" if before and name in before else ""
            )

        say(
            f"\n{final['step']:,} steps, {final['tokens']:,} tokens, "
            f"{final['seconds'] / 60:.1f} minutes. On held-out text, {final['num_predictions']:,} "
            "hidden tokens:\n"
            f"  masked accuracy  {show('masked_accuracy')}   (always the most frequent token: "
            f"{final['unigram_accuracy']:.3f})\n"
            f"  {f'where {self.data.tokenizer.mask_token} is':<15}  {show('seen_mask_accuracy')}   "
            "(elsewhere it can copy)\n"
            f"  among the top 5  {show('masked_accuracy_top5')}\n"
            f"  loss             {show('loss')}   "
            f"(token frequencies: {final['unigram_loss']:.3f})"
        )
        for name, loss in of_sources(final, "loss").items():
            say(
                f"  on {name}: loss {loss:.3f}, masked accuracy "
                f"{final[f'masked_accuracy/{name}']:.3f}"
            )
        if "pair_accuracy" in final:
            say(
                f"  pairs of texts   {show('pair_accuracy')}   (always the same answer: "
                f"{final['pair_baseline']:.3f})"
            )
        if "rtd_accuracy" in final:
            say(
                f"Of {final['num_judged']:,} tokens, some replaced by the generator:\n"
                f"  accuracy         {show('rtd_accuracy')}   (always original: "
                f"{final['rtd_base_accuracy']:.3f})\n"
                f"  replaced found   {show('rtd_recall')}\n"
                f"  loss             {show('rtd_loss')}   "
                f"(always the share of replaced tokens: {final['rtd_base_loss']:.3f})"
            )
        for name in HEADLINES:
            if name in final:
                say(f"  {name:<26} {final[name]:.3f}")
        if final.get("samples"):
            say("\nHeld-out text with words or characters hidden:")
        for line in final.get("samples", []):
            say(Text("  ").append_text(color_sample(line)))
        self._show_next()

    def _show_next(self) -> None:
        """What to do with the model, with a sentence of the held-out text as the example."""
        say, folder = self.console.print, self.run
        if isinstance(self.trainer.model, GeneratorAndDiscriminator):
            folder = self.run / GENERATOR
            say(f"\nThe discriminator is in {self.run / MODEL_NAME},", markup=False)
            say(f"the generator, which fills in words, in {folder}. Try", markup=False)
            say(
                f"  maskwright embed {self.run} --file sentences.txt --out vectors.npy",
                markup=False,
            )
        else:
            say(f"\nThe model is in {self.run / MODEL_NAME}. Try", markup=False)
        rest = "--file sentences.txt" if self._prompt is None else shlex.quote(self._prompt)
        say(f"  maskwright fill {shlex.quote(str(folder))} {rest}", markup=False)


def _describe_place(trainer: Trainer) -> str:
    world, kind = trainer.world, trainer.device.type
    if world.size == 1:
        return str(trainer.device)
    return f"{world.size} ranks ({kind}, {trainer.config.parallel})"


def consolidate(trainer: Trainer) -> Network | None:
    """The whole model on the first rank, None on the others. All ranks must call it.

    Spread parameters are put together one at a time and go to the CPU of the first rank, so that
    no rank ever holds more than one of them beside its own parts, and the first the model once.
    """
    sharding, world = trainer.parallel.sharding, trainer.world
    if sharding is UNSHARDED:
        return trainer.model if world.is_first else None
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in trainer.model.named_parameters():
        whole = sharding.whole(parameter.detach())
        if world.is_first:
            tensors[name] = whole.cpu()
    if not world.is_first:
        return None
    return MaskedLanguageModel.from_tensors(trainer.model.config, tensors)
