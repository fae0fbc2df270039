"""The parts of a start: what is checked before hours of work, and what a new run records."""

from typing import cast

from maskwright.config import to_mapping, write_yaml
from maskwright.distributed.world import World
from maskwright.errors import InputError
from maskwright.objectives.objective import count_parameters_of
from maskwright.pretraining.budget import count_tokens, time_step
from maskwright.pretraining.build import check_config, check_machine, resolve_model
from maskwright.pretraining.gpus import Cards
from maskwright.pretraining.prepared_data import (
    PreparedData,
    count_epoch_tokens,
    warn_of_epochs,
)
from maskwright.pretraining.request import Request
from maskwright.pretraining.run_session import Session, open_console
from maskwright.runs.run_directory import INIT_FROM, TEACHER, RunFacts, begin_run, check_new
from maskwright.runs.settled import Settled


def check_request(request: Request, cards: Cards | None = None) -> None:
    """Raise if there is no text, or this machine cannot carry the request out.

    Args:
        cards: the GPUs of an estimate, for which nothing of this machine matters.

    Raises:
        InputError: no text is given.
        ConfigError, MissingPackageError: as `check_machine`.
    """
    if not request.config.text:
        raise InputError("no text given. Name files or folders, or try pydocs.")
    if not cards:
        check_machine(request.config)


def check_start(request: Request, world: World) -> None:
    """Raise if the run cannot start, as far as that is known before its text is prepared.

    Raises:
        InputError: its directory exists, or cannot be created.
        ConfigError: sections contradict each other.
    """
    if world.is_first:
        check_new(request.run)
    if request.is_prepared:
        open_console(world).print("checking the prepared data")
    else:
        check_config(request.config)


def settle_with(request: Request, data: PreparedData, world: World) -> Settled:
    """Return the request settled with its data; print the size that the budget chose, and why.

    Print a warning, too, if such a run reads its text very often.
    """
    console = open_console(world)
    if not request.config.model.sizes:
        return request.open(data).settled
    console.print("choosing the size of the model: measuring the speed of this machine")
    settled = request.open(data).settled
    config = settled.config
    console.print(f"size: {settled.reasons['size']}")
    seconds, _ = time_step(config, resolve_model(config, data.tokenizer), world)
    tokens = count_epoch_tokens(config, data)
    if warning := warn_of_epochs(count_tokens(config.train, seconds, tokens) / tokens):
        console.print(warning)
    return settled


def begin(session: Session, settled: Settled) -> None:
    """Write the configuration and the provenance of a new run, and print what it trains with."""
    console, config, tokenizer = session.console, settled.config, session.data.tokenizer
    if session.trainer.world.is_first:
        begin_run(session.run, write_yaml(config), _describe_run(settled, session), console.print)
    console.print(f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens, {tokenizer.case}")
    made = config.tokenizer
    if config.private and (made.path is None or made.extend_vocab or made.replace_vocab):
        console.print(
            "tokenizer.json lists words that the text repeats, also names: check it before you "
            "share the model. --tokenizer.min_frequency leaves out rare words."
        )


def _describe_run(settled: Settled, session: Session) -> RunFacts:
    data = session.data
    manifest = data.train.manifest
    folders = {name: str(source.folder.resolve()) for name, source in data.sources.items()}
    facts: RunFacts = {
        "recipe": settled.layers.recipe,
        "origins": settled.list_origins(),
        "reasons": settled.reasons,
        "num_parameters": count_parameters_of(session.trainer.model),
        "corpus": {"fingerprint": manifest.fingerprint, **manifest.source},
        "prepared_data": folders or str(data.folder.resolve()),
        "tokenizer_fingerprint": data.tokenizer.fingerprint,
        "config": to_mapping(session.config),
        "computation": session.computation,
    }
    models = {INIT_FROM: session.origin, TEACHER: session.teacher}
    used = {name: origin for name, origin in models.items() if origin is not None}
    return cast(RunFacts, {**facts, **used})
