"""What a user asks for: a run to start or to resume, as far as it is settled without the text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwright.config import Plain, write_yaml
from maskwright.corpus.sources import find_sources, keep_texts
from maskwright.distributed.world import World
from maskwright.errors import InputError
from maskwright.pretraining.budget import find_cards_here, guess_tokens
from maskwright.pretraining.find_data import read_preparations
from maskwright.pretraining.gpus import Cards
from maskwright.pretraining.init_from import locate_teacher, read_model_facts, tell_on_first_rank
from maskwright.pretraining.prepared_data import PreparedData, count_epoch_tokens
from maskwright.pretraining.settle import Facts, Machine, settle
from maskwright.pretraining.sizes import write_open
from maskwright.runs.config import PretrainConfig, list_ignored
from maskwright.runs.run_directory import (
    INIT_FROM,
    TEACHER,
    check_changes,
    has_checkpoint,
    list_changes,
    load_run_config,
)
from maskwright.runs.settled import Settled


@dataclass(frozen=True)
class Request:
    """A run to start or to resume.

    Attributes:
        asked: what was asked, before any rule.
        facts: what is known so far; None for a run to resume as it is.
        resumes: True for a run to resume, False for one to start.
    """

    run: Path
    data_dir: Path
    asked: Settled
    facts: Facts | None
    resumes: bool = False

    @cached_property
    def settled(self) -> Settled:
        """What was asked, settled by the facts; errors as of `settle`."""
        return self.asked if self.facts is None else settle(self.asked, self.facts)

    @property
    def config(self) -> PretrainConfig:
        return self.settled.config

    @property
    def is_prepared(self) -> bool:
        """True if the text is prepared data."""
        return self.facts is not None and bool(self.facts.preparations)

    def join(self, world: World, cards: Cards | None = None) -> "Request":
        """Return the request with the machine that it runs on, or `cards` of an estimate."""
        if self.facts is None:
            return self
        config = self.config
        cards = cards or find_cards_here(config, world)
        tokens = None
        if cards and config.model.sizes and not self.facts.preparations:
            tokens, _ = guess_tokens(find_sources(config.text))
        facts = replace(self.facts, machine=Machine(world, cards), guessed_tokens=tokens)
        return replace(self, facts=facts)

    def know(self, data: PreparedData | None, epoch_tokens: float | None) -> "Request":
        """Return the request with the data, or the tokens of text that is not prepared yet."""
        if self.facts is None:
            return self
        tokenizer = data.tokenizer if data is not None else None
        known = replace(
            self.facts, tokenizer=tokenizer, epoch_tokens=epoch_tokens, is_data_known=True
        )
        return replace(self, facts=known)

    def open(self, data: PreparedData) -> "Request":
        """Return the request with the prepared data."""
        return self.know(data, count_epoch_tokens(self.config, data))

    def write_config(self) -> str:
        """Return the configuration as YAML; what the budget will choose is a comment."""
        return write_yaml(self.config) if self.resumes else write_open(self.settled)


def name_models(init_from: str | Path | None, teacher: str | Path | None) -> Plain:
    """Return the models of a run as values of its configuration, without those that are None."""
    named = {INIT_FROM: init_from, TEACHER: teacher}
    return {name: str(model) for name, model in named.items() if model}


def resolve_asked(
    recipe: str | None, config: PretrainConfig | str | Path | None, given: Mapping[str, Any]
) -> Settled:
    """Return the layers of a configuration, and what they resolve to; a whole one has none."""
    if not isinstance(config, PretrainConfig):
        return Settled.read(recipe, Path(config) if config is not None else None, given)
    if recipe is not None or given:
        raise TypeError("give a whole config, or a recipe and sections over it; not both")
    if config.init_from is not None or config.teacher is not None:
        raise TypeError(
            "a whole config cannot name init_from or teacher; give it as an argument, and sections"
        )
    return Settled(config)


def request_resumption(
    run: Path, data_dir: Path, given: Mapping[str, Any], is_alone: bool
) -> Request:
    """Return a run to resume as it is, with other values of ``train``, ``optim``, ``evaluate``.

    Raise InputError unless it is asked for alone, without what only a new run has.
    """
    if not is_alone:
        raise InputError("--resume continues a run. Remove text, recipe, config, --auto-resume.")
    return Request(run, data_dir, Settled(load_run_config(run, given)), None, resumes=True)


def request_run(
    text: str | Path | Sequence[str | Path],
    texts: Iterable[str] | None,
    asked: Settled,
    run: Path,
    data_dir: Path,
    auto_resume: bool,
) -> Request:
    """Return a run to start, or with `auto_resume` to resume if it has begun; errors of `pretrain`.

    Print the values that have no effect, and what the rules decided.
    """
    if texts is not None:
        text = keep_texts(text, texts, data_dir, asked.config.corpus.text_field)
    paths = tuple(map(str, (text,) if isinstance(text, str | Path) else text))
    located = locate_teacher(replace(asked.config, text=paths or asked.config.text))
    asked = replace(asked, config=located)
    begun = load_run_config(run, {}) if auto_resume and has_checkpoint(run) else None
    request = Request(run, data_dir, asked, read_facts(located, begun), resumes=begun is not None)
    ignored = list_ignored(request.config, asked.layers.singly)
    for line in (*ignored, *request.settled.reasons.values()):
        tell_on_first_rank(line)
    if begun is not None:
        check_changes(list_changes(begun, request.config))
    return request


def read_facts(config: PretrainConfig, begun: PretrainConfig | None = None) -> Facts:
    """Return what is known without the text: of the prepared data, the model, the run that resumes.

    Raises:
        InputError, ShardError: as `named_sources`.
        ModelFolderError, TokenizerError: as `read_model_facts`.
    """
    preparations = read_preparations(config)
    prepared = preparations[0].folder if preparations else None
    return Facts(preparations, read_model_facts(config, prepared, begun), begun)
