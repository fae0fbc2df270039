"""Settle a run's configuration, in this one place: what was given, and rules that know facts.

`--print-config`, `--dry-run`, a run and a run that resumes all call `settle`, each with the facts
that it knows, always on what was asked: more facts settle more values. A rule changes no value that
was given (`Settled.change`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from maskwright.distributed.world import World
from maskwright.pretraining.budget import choose_size, choose_vocabulary
from maskwright.pretraining.find_data import Preparation, adopt_preparation
from maskwright.pretraining.gpus import Cards
from maskwright.pretraining.init_from import ModelFacts, adopt_model, fit_vocabulary
from maskwright.pretraining.sizes import keep_size
from maskwright.runs.config import PretrainConfig
from maskwright.runs.settled import Settled
from maskwright.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Machine:
    """The ranks of a run, and the GPUs that a size is chosen for.

    `cards` are those of this machine or those of an estimate; None: the first rank measures.
    """

    world: World
    cards: Cards | None = None


@dataclass(frozen=True)
class Facts:
    """What is known of a run beside its configuration; None is not known yet.

    Attributes:
        preparations: what the prepared folders state that the run names as its text.
        model: the model of ``init_from``, or a teacher.
        begun: the configuration of the run that resumes.
        machine: what it runs on.
        guessed_tokens: tokens of text that is not prepared, estimated from its files.
        tokenizer: the tokenizer of the prepared data.
        epoch_tokens: the tokens of an epoch.
        is_data_known: True if the last two are as well known as they can be, so that the budget
            chooses the size.
    """

    preparations: tuple[Preparation, ...] = ()
    model: ModelFacts | None = None
    begun: PretrainConfig | None = None
    machine: Machine | None = None
    guessed_tokens: float | None = None
    tokenizer: Tokenizer | None = None
    epoch_tokens: float | None = None
    is_data_known: bool = False


def _adopt_data(settled: Settled, facts: Facts) -> Settled:
    return adopt_preparation(settled, facts.preparations)


def _adopt_model(settled: Settled, facts: Facts) -> Settled:
    return adopt_model(settled, facts.model, facts.begun)


def _keep_size(settled: Settled, facts: Facts) -> Settled:
    begun = facts.begun
    if begun is None or settled.config.model.sizes != begun.model.sizes:
        return settled
    return keep_size(settled, begun)


def _choose_vocabulary(settled: Settled, facts: Facts) -> Settled:
    cards = facts.machine.cards if facts.machine else None
    if facts.begun is not None or facts.preparations or cards is None:
        return settled
    return choose_vocabulary(settled, facts.guessed_tokens, cards)


def _fit_vocabulary(settled: Settled, facts: Facts) -> Settled:
    return settled if facts.tokenizer is None else fit_vocabulary(settled, facts.tokenizer)


def _choose_size(settled: Settled, facts: Facts) -> Settled:
    machine = facts.machine
    if facts.begun is not None or machine is None or not facts.is_data_known:
        return settled
    tokens = facts.epoch_tokens
    return choose_size(settled, facts.tokenizer, tokens, machine.world, machine.cards)


RULES: tuple[Callable[[Settled, Facts], Settled], ...] = (
    _adopt_data,
    _adopt_model,
    _keep_size,
    _choose_vocabulary,
    _fit_vocabulary,
    _choose_size,
)


def settle(asked: Settled, facts: Facts) -> Settled:
    """Return what was asked with what the rules make of the facts, in their order.

    Raises:
        ConfigError: a value that was given contradicts the facts.
        ShardError: the data was prepared with another tokenizer than the model's.
    """
    for rule in RULES:
        asked = rule(asked, facts)
    return asked
