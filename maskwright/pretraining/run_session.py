"""A run in its directory: train to the end or to a signal, save the models, show the result.

`Session` comes first. Below it is how the result is shown: lines on the terminal, and a model card.
"""

import os
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch
from rich.text import Text

from maskwright.config import to_mapping, write_yaml
from maskwright.console import Console
from maskwright.distributed.world import World
from maskwright.errors import StoppedError
from maskwright.files import as_mapping
from maskwright.formatting import escape_markdown, show_score, write_code, write_code_block
from maskwright.logs import Record, describe_samples, of_sources, read_metrics
from maskwright.model_folder.folder import save_model
from maskwright.model_folder.model_card import add_example
from maskwright.model_folder.sentence_modules import parse_settings, write_modules
from maskwright.objectives.objective import Objective, TrainedModel, count_parameters_of
from maskwright.objectives.scores import ScoreLine
from maskwright.preparation.tasks import EXTENSION_KEY
from maskwright.pretraining.build import build_trainer, consolidate, objective_of
from maskwright.pretraining.init_from import InitialModel
from maskwright.pretraining.micro_batch import choose_micro_batch
from maskwright.pretraining.prepared_data import PreparedData, describe_sources
from maskwright.pretraining.validation import HEADLINES
from maskwright.provenance import describe_cpu, describe_environment, find_version
from maskwright.report.facts import gather_facts
from maskwright.report.run_page import write_report
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import (
    CHECKPOINTS_NAME,
    METRICS_NAME,
    MICRO_BATCH,
    MODEL_NAME,
    PROVENANCE_NAME,
    REPORT_NAME,
    Origin,
    shorten_path,
    shorten_paths,
)
from maskwright.tokenizer.token_text import make_examples
from maskwright.train.device import describe_computation
from maskwright.train.reporting import SILENT, RunReporter, color_sample
from maskwright.train.trainer import Trainer


def open_console(world: World) -> Console:
    """Return the console of this process; only the first rank prints."""
    # Brackets in paths and messages are not markup.
    return Console(highlight=False, soft_wrap=True, markup=False, quiet=not world.is_first)


@dataclass(frozen=True)
class Session:
    """A trainer in its run directory.

    Attributes:
        note: a sentence on whether the trainer compiles.
        origin: the entry of provenance.json on the model that the run began with, if any.
        teacher: the entry on the model that it learns from, if any.
    """

    run: Path
    config: PretrainConfig
    data: PreparedData
    trainer: Trainer
    note: str
    console: Console
    origin: Mapping[str, Any] | None = None
    teacher: Origin | None = None

    @cached_property
    def objective(self) -> Objective[Any]:
        return objective_of(self.config)

    @property
    def computation(self) -> dict[str, str | int]:
        """The entry of provenance.json on the computation, see `RunFacts`."""
        tokens = self.trainer.schedule.train.micro_batch_tokens
        return {
            **describe_computation(self.config.train.precision, self.trainer.device),
            "ranks": self.trainer.world.size,
            "threads": torch.get_num_threads(),
            "compiling": self.note,
            **({MICRO_BATCH: tokens} if isinstance(tokens, int) else {}),
        }

    def finish(self) -> None:
        """Train to the end; raise KeyboardInterrupt or StoppedError if SIGINT or SIGTERM comes."""
        stopped_by = self.train()
        if stopped_by is None:
            return
        message = (
            f"stopped by {stopped_by.name} at step {self.trainer.state.step:,}; resume with "
            f"maskwright pretrain --resume {self.run}"
        )
        raise KeyboardInterrupt(message) if stopped_by == signal.SIGINT else StoppedError(message)

    def train(self) -> signal.Signals | None:
        """Train and save; return the signal that stopped the run before its end, or None."""
        trainer, world, place = self.trainer, self.trainer.world, str(self.trainer.device)
        if world.size > 1:
            place = f"{world.size} ranks ({trainer.device.type}, {trainer.config.parallel})"
        with trainer.reporter, closing(trainer.prefetcher):
            size = count_parameters_of(trainer.model)
            self.console.print(f"{self.run}: {size:,} parameters on {place}, {self.note}")
            for line in describe_sources(self.data):
                self.console.print(f"  {line}")
            stopped_by = trainer.fit(self._save)
        if stopped_by is not None:
            return stopped_by
        # A run that had ended already when it was resumed is scored again.
        final = trainer.last_scores or {**trainer.state.to_json(), **trainer.score(final=True)}
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
                save_model(
                    self.run / name,
                    model=trained.model,
                    tokenizer=self.data.tokenizer,
                    card=card,
                    add_special_tokens=self.config.data.special_tokens,
                    finish=partial(self._state_vectors, trained.model.config.hidden_size),
                )

    def _state_vectors(self, width: int, folder: Path) -> None:
        """Write again what the model that the run began with states about its vectors."""
        if stated := as_mapping((self.origin or {}).get("vectors")):
            settings = parse_settings(stated, self.run / PROVENANCE_NAME)
            write_modules(folder, width, settings)

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
        if self.config.private or not trained.fills_masks:
            return card
        return add_example(card, [self._prompt])

    @cached_property
    def _prompt(self) -> str:
        """Frequent words around a mask; in a private run, none of the text's."""
        if self.config.private:
            return f"A sentence with a {self.data.tokenizer.mask_token} in it."
        counts = self.data.train.unigram_counts
        tokenizer = self.data.tokenizer
        before, after = make_examples(tokenizer, 2, counts)
        blank = "" if tokenizer.tokens_are_words else " "
        return blank.join((before, tokenizer.mask_token, after)).strip()

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
                say(f"  {name:<26} {show_score(final[name], 3)}")
        if caption := describe_samples(final):
            say(f"\n{caption}:")
        for line in final.get("samples", []):
            say(Text("  ").append_text(color_sample(line)))
        self._show_next(final.get("samples", []))

    def _show_next(self, samples: Sequence[str]) -> None:
        """Print a command for each model, with a held-out sentence if the run shows some."""
        sentences = (line.partition("  →  ") for line in samples)
        prompt = next((text[2:] for text, arrow, _ in sentences if arrow), self._prompt)
        places, commands = list[str](), list[str]()
        for trained in self.objective.list_models(self.trainer.model):
            folder = shlex.quote(str(self.run / (trained.folder or "")))
            places.append(f"{trained.name} is in {self.run / (trained.folder or MODEL_NAME)}.")
            if trained.fills_masks:
                commands.append(f"  maskwright fill {folder} {shlex.quote(prompt)}")
                commands.append(f"  maskwright serve {folder}   # a page to try it in a browser")
            else:
                commands.append(f"  maskwright embed {folder} --file texts.txt --out vectors.npy")
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
        origin: the entry of provenance.json on the model that the run to resume began with.
        last_step: the step of the checkpoint that the run resumes from.
        kept_tokens: the micro-batch of the run that is resumed, to keep if it fits.

    Raises:
        ConfigError: not one row fits on the GPU.
    """
    reporter = SILENT
    if world.is_first:
        scores, trackers = objective_of(config).scores, config.train.trackers
        reporter = RunReporter(run, scores, console, last_step, trackers, to_mapping(config))
    checkpoints = run / CHECKPOINTS_NAME
    trainer, note = build_trainer(config, data, checkpoints, world, initial, reporter, teacher)
    if config.train.micro_batch_tokens == "auto" and trainer.device.type == "cuda":
        choose_micro_batch(trainer, config, console.print, kept_tokens)
    began_with = initial.describe() if initial else origin
    taught_by = teacher.describe() if teacher else None
    return Session(run, config, data, trainer, note, console, began_with, taught_by)


_CARD = """\
# {name}

{title} {origin} with maskwright {version}.

## Scores

On held-out text, with the same masks every time (15 % of the tokens, 80/10/10):

{scores}

{notes}

## Data

{text}: {train_tokens:,} tokens in {documents:,} documents, and {valid_tokens:,} held-out tokens.
{mixture}Tokenizer: {kind}, {vocabulary}, {case}, fingerprint `{fingerprint}`.{extension}

## Training

Seed {seed}, {steps:,} steps, {minutes:.1f} minutes on {circumstances}.

<details>
<summary>The whole configuration</summary>

{recipe}
</details>
"""


def describe_training(
    name: str,
    version: str,
    config: PretrainConfig,
    data: PreparedData,
    objective: Objective[Any],
    title: str,
    final: Record,
    before: Record | None = None,
    origin: Mapping[str, Any] | None = None,
    teacher: Mapping[str, Any] | None = None,
) -> str:
    """Return Markdown for the card, from the run's last validation record.

    Args:
        title: kind of model, at the start of the first sentence.
        before: the validation record of the model that the run began with.
        origin: the entry of provenance.json on that model.
        teacher: the entry on the model that the run learned from.
    """
    source = data.train.manifest.source
    return _CARD.format(
        name=escape_markdown(name),
        title=title,
        version=version,
        origin=_describe_lineage(origin, teacher),
        scores=_tabulate(objective.scores, final, before),
        notes=objective.notes.format(**final),
        steps=final["step"],
        minutes=final["seconds"] / 60,
        text=_list_paths(source),
        train_tokens=data.train.num_tokens,
        documents=data.train.num_documents,
        valid_tokens=data.valid.num_tokens,
        mixture=_list_sources(data),
        kind=_describe_tokenizer(config),
        vocabulary=_describe_size(config, data.tokenizer.vocab_size),
        case=data.tokenizer.case,
        fingerprint=data.tokenizer.fingerprint[:12],
        extension=_describe_extension(source.get(EXTENSION_KEY)),
        seed=config.seed,
        circumstances=_describe_machine(config.train.device),
        recipe=write_code_block(write_yaml(shorten_paths(to_mapping(config))), "yaml"),
    )


def _describe_tokenizer(config: PretrainConfig) -> str:
    """Return the origin of the tokenizer, or its kind if it was trained on this text."""
    if config.tokenizer.replace_vocab:
        return config.tokenizer.kind
    if config.init_from is not None:
        return f"that of {write_code(shorten_path(config.init_from))}"
    path = config.tokenizer.path
    return config.tokenizer.kind if path is None else write_code(shorten_path(path))


def _describe_size(config: PretrainConfig, size: int) -> str:
    """Return the number of tokens, and of those asked for if the text gave fewer."""
    tokenizer = config.tokenizer
    is_new = tokenizer.path is None and tokenizer.kind != "character"
    asked = tokenizer.replace_vocab or (tokenizer.vocab_size if is_new else 0)
    return f"{size:,} tokens" + f" (of {asked:,} asked for)" * (size < asked)


def _list_paths(source: Mapping[str, Any]) -> str:
    """Return the names of the texts in a manifest of unknown origin."""
    paths = source.get("paths")
    names = map(str, cast(list[Any], paths) if isinstance(paths, list) else ())
    return ", ".join(write_code(shorten_path(name)) for name in names) or "unknown text"


def _list_sources(data: PreparedData) -> str:
    """Return a Markdown list of the sources; empty for a single one."""
    lines = "".join(f"- {escape_markdown(line)}\n" for line in describe_sources(data))
    return f"\n{lines}\n" if lines else ""


def list_results(
    scores: Sequence[ScoreLine], final: Record, before: Record | None = None
) -> Iterator[str]:
    """Yield a line for each score of a run, with the score before it and the baseline."""
    lines = _list_lines(scores, final)
    width = max((len(line.title) for line in lines), default=0)
    for line in lines:
        old = before.get(line.name) if before is not None else None
        baseline = final.get(line.baseline)
        beside = "" if old is None else f"   before {show_score(old, 3)}"
        if baseline is not None:
            beside += f"   ({line.baseline_name}: {show_score(baseline, 3)})"
        yield f"  {line.title:<{width}}  {show_score(final[line.name], 3)}{beside}"


def _tabulate(scores: Sequence[ScoreLine], final: Record, before: Record | None) -> str:
    """Return a table of the scores, the scores before the run if given, and the baselines."""
    lines = _list_lines(scores, final)
    names = {line.baseline_name for line in lines if line.baseline}
    baseline = names.pop() if len(names) == 1 else "baseline"
    columns = ["model", *["before"] * (before is not None), baseline]
    rows = [f"| | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for line in lines:
        figures = [final[line.name], final.get(line.baseline)]
        if before is not None:
            figures.insert(1, before.get(line.name))
        cells = ["" if figure is None else show_score(figure) for figure in figures]
        rows.append(f"| {escape_markdown(line.title)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _list_lines(scores: Sequence[ScoreLine], record: Record) -> list[ScoreLine]:
    """Return the lines for the scores of a record: of all text, then of each source."""
    lines = [line for line in scores if record.get(line.name) is not None]
    sources = dict.fromkeys(name for line in lines for name in of_sources(record, line.name))
    of_each = [
        replace(
            line,
            name=f"{line.name}/{source}",
            title=f"{line.title}, {source}",
            baseline=f"{line.baseline}/{source}",
        )
        for source in sources
        for line in lines
        if line.by_source
    ]
    return lines + [line for line in of_each if record.get(line.name) is not None]


def _describe_lineage(origin: Mapping[str, Any] | None, teacher: Mapping[str, Any] | None) -> str:
    began = f"continued from {_describe_origin(origin)}" if origin else "trained from scratch"
    if teacher is None:
        return began
    distilled = f"distilled from {_describe_origin(teacher)}"
    return distilled if origin is None else f"{began} and {distilled}"


def _describe_origin(origin: Mapping[str, Any]) -> str:
    """Return the name and the file hashes of the weights of a model that the run used."""
    hashes = as_mapping(origin.get("sha256")).items()
    files = [f"{escape_markdown(str(f))} {write_code(str(sha))}" for f, sha in hashes]
    name = write_code(shorten_path(str(origin.get("name"))))
    return f"{name} (sha256 of {', '.join(files)})"


def _describe_extension(extension: object) -> str:
    """Return a sentence on new tokens from a manifest of unknown origin; empty if none."""
    names = ("base_vocab_size", "vocab_size", "fertility_before", "fertility")
    found = as_mapping(extension)
    figures = [f for name in names if isinstance(f := found.get(name), int | float)]
    if len(figures) < len(names):
        return ""
    base, size, before, after = figures
    origin = f"Of these, {size - base:,} were added to a vocabulary of {base:,} and"
    if found.get("replaces"):
        origin = f"They replace a vocabulary of {base:,} and were"
    return (
        f"\n{origin} trained on this text. Held-out text now\n"
        f"has {after:.3f} tokens per word, before {before:.3f}."
    )


def _describe_machine(device: str) -> str:
    """Return hardware and package versions of this machine, to end a sentence."""
    packages = describe_environment()["packages"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    if device != "cpu" and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, with {versions}"
    return f"{describe_cpu()} ({os.cpu_count()} cores), with {versions}"
