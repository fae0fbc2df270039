"""The job of ``maskwright pretrain``: start or resume a run, and train to its end."""

import json
import signal
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from maskwright.config import to_mapping, write_yaml
from maskwright.console import say
from maskwright.corpus.sources import keep_texts
from maskwright.distributed.world import World, joining, read_world
from maskwright.errors import CheckpointError, ConfigError, InputError, ShardError, StoppedError
from maskwright.files import as_mapping
from maskwright.objectives.objective import count_parameters_of
from maskwright.preparation.find_data import (
    adopt_preparation,
    find_or_prepare,
    is_elsewhere,
    locate,
    named_folder,
)
from maskwright.pretraining.budget import (
    choose_size,
    choose_vocabulary,
    count_tokens,
    time_step,
)
from maskwright.pretraining.build import check_config, check_machine, fetch_ahead, resolve_model
from maskwright.pretraining.cards import Cards, parse_cards
from maskwright.pretraining.dry_run import describe_run
from maskwright.pretraining.init_from import (
    adopt_model,
    fit_vocabulary,
    load_initial,
    load_teacher,
    locate_teacher,
    tell_on_first_rank,
)
from maskwright.pretraining.prepared_data import (
    PreparedData,
    count_epoch_tokens,
    open_data,
    warn_of_epochs,
)
from maskwright.pretraining.run_session import Session, open_console, open_session
from maskwright.pretraining.sizes import fix_size, keep_size, write_open
from maskwright.runs.config import PretrainConfig, list_ignored
from maskwright.runs.run_directory import (
    CHECKPOINTS_NAME,
    INIT_FROM,
    MODEL_NAME,
    TEACHER,
    Origin,
    RunFacts,
    begin_run,
    check_changes,
    check_new,
    find_micro_batch,
    has_checkpoint,
    is_prepared,
    list_changes,
    load_recorded_config,
    load_run_config,
    locking_run,
    name_prepared,
    read_provenance,
    record_resumption,
)
from maskwright.runs.settled import Settled
from maskwright.shards.reader import fingerprint_folders
from maskwright.shards.remote import is_remote
from maskwright.train.checkpoint import Checkpoint, find_newest, open_checkpoint
from maskwright.train.config import BUDGETS
from maskwright.train.device import choose_device, keep_freed_memory, limit_memory
from maskwright.train.trainer import Trainer


def pretrain(
    text: str | Path | Sequence[str | Path] = (),
    *,
    texts: Iterable[str] | None = None,
    init_from: str | Path | None = None,
    teacher: str | Path | None = None,
    recipe: str | None = None,
    config: PretrainConfig | str | Path | None = None,
    out: str | Path = "runs/run",
    data_dir: str | Path = "data",
    resume: str | Path | None = None,
    auto_resume: bool = False,
    print_config: bool = False,
    dry_run: bool = False,
    for_device: str | None = None,
    **sections: Any,
) -> Path:
    """Pretrain an encoder, or resume a run::

        folder = pretrain("corpus/*.txt", recipe="tiny", out="runs/mine", train={"max_minutes": 10})
        folder = pretrain(texts=dataset["train"]["text"], out="runs/mine")
        folder = pretrain(resume="runs/mine", train={"max_minutes": 20})

    Args:
        text: files, folders, globs, ``pydocs``, ``hf:NAME``, or prepared folders or their URLs,
            which ``mixture={"weights": ["wiki=0.7", "books=0.3"]}`` mixes.
        texts: documents instead of `text`, read once; ``data_dir/texts-HASH.jsonl`` keeps them.
        init_from: a model to continue, with its tokenizer: a folder, a run, or ``hf:NAME``.
        teacher: a model whose predictions are learned, too, by default with half of its layers.
        recipe: the recipe to start from; default: ``auto``, or ``continue`` with `init_from`.
        config: a YAML file put over the recipe; or a whole one, without recipe and `sections`.
        out: the run directory; must not exist yet, unless `auto_resume`.
        data_dir: the folder of prepared data, which later runs reuse.
        resume: a run directory to resume as it is, from its newest checkpoint, instead of a new
            run in `out`; only `sections` of ``train``, ``optim`` and ``evaluate`` can change.
        auto_resume: resume from the newest checkpoint in `out`, if there is one.
        print_config: print the configuration (comments: left to the budget), and train nothing.
        dry_run: check everything and print sizes and times, and train nothing.
        for_device: GPUs that the dry run is for, such as ``8xH100``; default: this machine.
        sections: values over the recipe, by section: ``train={"max_minutes": 5}``.

    Returns:
        The model folder of the run, which `print_config` and `dry_run` do not write.

    Raises:
        MaskwrightError: the input is wrong; the message is one line.
        StoppedError, KeyboardInterrupt: SIGTERM or Ctrl-C stopped the run, which can be resumed.
        TypeError: a whole `config` is given with a recipe, a model or sections, or names a model;
            `text` is given with `texts`, or `texts` holds anything but strings.
    """
    given = {n: str(m) for n, m in ((INIT_FROM, init_from), (TEACHER, teacher)) if m} | sections
    folder = Path(data_dir)
    if resume is None:
        request = _request(text, texts, _resolve(recipe, config, given), out, folder, auto_resume)
    elif text or texts is not None or recipe or config or auto_resume:
        raise InputError("--resume continues a run. Remove text, recipe, config, --auto-resume.")
    else:
        begun = Settled(load_run_config(Path(resume), given))
        request = _Request(Path(resume), folder, begun, resumes=True)
    return _carry_out(request, print_config, dry_run, for_device)


@dataclass(frozen=True)
class _Request:
    """A run to start or to resume.

    Attributes:
        resumes: True for a run to resume, False for one to start.
    """

    run: Path
    data_dir: Path
    settled: Settled
    resumes: bool = False

    @property
    def config(self) -> PretrainConfig:
        return self.settled.config


def _resolve(
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


def _request(
    text: str | Path | Sequence[str | Path],
    texts: Iterable[str] | None,
    asked: Settled,
    out: str | Path,
    data_dir: Path,
    auto_resume: bool,
) -> _Request:
    """Adopt what data and models fix; resume the run if there is one and it is asked for."""
    config, given = asked.config, asked.layers.given
    run = Path(out)
    if texts is not None:
        text = keep_texts(text, texts, data_dir, config.corpus.text_field)
    paths = tuple(map(str, (text,) if isinstance(text, str | Path) else text))
    settled = replace(asked, config=locate_teacher(replace(config, text=paths or config.text)))
    settled = settled.change(adopt_preparation(settled.config, given), "data")
    begun = load_run_config(run, {}) if auto_resume and has_checkpoint(run) else None
    for line in list_ignored(settled.config, asked.layers.singly):
        tell_on_first_rank(line)
    settled = settled.change(adopt_model(settled.config, given, begun), "model")
    if begun is None:
        return _Request(run, data_dir, settled)
    if settled.config.model.sizes == begun.model.sizes:
        settled = keep_size(settled, begun)
    check_changes(list_changes(begun, settled.config))
    return _Request(run, data_dir, settled, resumes=True)


def _carry_out(
    request: _Request, print_config: bool, dry_run: bool, for_device: str | None
) -> Path:
    """Carry out a request; return the model folder of the run."""
    cards = parse_cards(for_device, "for_device") if for_device else None
    if cards and not dry_run:
        raise ConfigError("for_device", for_device, "needs --dry-run", "Add it.")
    if print_config:
        found = request.settled
        say(write_yaml(found.config) if request.resumes else write_open(found), end="")
        return request.run / MODEL_NAME
    if not request.config.text:
        raise InputError("no text given. Name files or folders, or try pydocs.")
    if not cards:
        check_machine(request.config)
    if dry_run:
        _describe(request, cards)
    elif request.resumes:
        _resume(request)
    else:
        _start(request)
    return request.run / MODEL_NAME


def _describe(request: _Request, cards: Cards | None) -> None:
    """Print what would run; the first rank prints for all."""
    settled = request.settled
    if request.resumes:
        settled = fix_size(settled)
    else:
        check_new(request.run)
    # An estimate for other cards measures nothing, so that no rank waits for another.
    joined = nullcontext(read_world()) if cards else _joined(request.config)
    with joined as world:
        for line in describe_run(settled, request.data_dir, world, cards):
            if world.is_first:
                say(line, flush=True)


@contextmanager
def _joined(config: PretrainConfig) -> Generator[World]:
    world = read_world()
    device = choose_device(config.train.device, world.local_rank)
    if device.type == "cpu":
        keep_freed_memory()
    elif device.type == "cuda":
        limit_memory(config.train.device_memory, device)
    if config.train.device_memory and device.type != "cuda":
        tell_on_first_rank(f"train.device_memory has no effect: the run is on {device}")
    with joining(world, device):
        yield world


def _start(request: _Request) -> None:
    """Prepare the data if necessary, then train in a new run directory.

    The directory is not written before everything is checked.
    """
    run, config, data_dir = request.run, request.config, request.data_dir
    with _joined(config) as world:
        console = open_console(world)
        if world.is_first:
            check_new(run)
        initial = load_initial(config)
        if named_folder(config) is None:
            check_config(config)
        else:
            console.print("checking the prepared data")
        settled = choose_vocabulary(request.settled, world)
        config = settled.config
        data = _open_data(world, config, lambda: find_or_prepare(config, data_dir, console.print))
        settled = settled.change(fit_vocabulary(config, data.tokenizer), "data")
        config = settled.config
        teacher = load_teacher(config, data.tokenizer)
        origin = initial.describe() if initial is not None else None
        if config.model.sizes:
            console.print("choosing the size of the model: measuring the speed of this machine")
            tokens = count_epoch_tokens(config, data)
            settled, reason = choose_size(settled, data.tokenizer, tokens, world)
            config = settled.config
            console.print(f"size: {reason}")
            seconds, _ = time_step(config, resolve_model(config, data.tokenizer), world)
            if warning := warn_of_epochs(count_tokens(config.train, seconds, tokens) / tokens):
                console.print(warning)
        session = open_session(
            run, config, data, world, console, initial=initial, teacher=teacher, origin=origin
        )
        fetch_ahead(config, data, session.trainer.state.position, world)
        del initial  # the trainer has its weights, or extended copies of them
        run.mkdir(parents=True, exist_ok=True)
        with _owning(run, world):
            if world.is_first:
                models = {INIT_FROM: origin, TEACHER: session.teacher}
                facts = _describe_run(settled, session, models)
                begin_run(run, write_yaml(config), facts, console.print)
            tokenizer = data.tokenizer
            console.print(
                f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens, {tokenizer.case}"
            )
            made = config.tokenizer
            if config.private and (made.path is None or made.extend_vocab or made.replace_vocab):
                console.print(
                    "tokenizer.json lists words that the text repeats, also names: check it before "
                    "you share the model. --tokenizer.min_frequency leaves out rare words."
                )
            _train(session)


def _resume(request: _Request) -> None:
    """Resume a run from its newest undamaged checkpoint."""
    run, config, data_dir = request.run, request.config, request.data_dir
    begun = load_recorded_config(run)
    changes = list_changes(begun, config)
    check_changes(changes)
    with _joined(config) as world, _owning(run, world):
        console = open_console(world)
        found = world.text_from_first(lambda: str(_find_checkpoint(run, console.print).path))
        checkpoint = open_checkpoint(Path(found))
        console.print("checking the prepared data")
        data = _open_data(world, config, lambda: _find_data(run, config, data_dir, console.print))
        provenance = read_provenance(run)
        origin = provenance.get(INIT_FROM) if config.init_from else None
        teacher = load_teacher(config, data.tokenizer)
        last = checkpoint.step
        session = open_session(
            *(run, config, data, world, console),
            teacher=teacher,
            origin=origin,
            last_step=last,
            kept_tokens=find_micro_batch(provenance),
        )
        _check_teacher(session, provenance)
        trainer = session.trainer
        trainer.restore(checkpoint)
        _check_budget(begun, config, trainer)
        fetch_ahead(config, data, trainer.state.position, world)
        step = trainer.state.step
        if world.is_first:
            record_resumption(run, config, step, changes, session.computation)
        ended = " (it had ended; its last weights are scored again)" * (trainer.progress >= 1)
        console.print(f"resuming {run} at step {step:,}{ended}")
        _train(session)


def _check_teacher(session: Session, provenance: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless the teacher is the one that the run began with."""
    teacher = session.teacher
    if teacher and teacher["sha256"] != as_mapping(provenance.get(TEACHER)).get("sha256"):
        raise CheckpointError(
            f"{teacher['folder']}, the teacher of {session.run}, has changed since the run began. "
            "Restore it, or start a new run."
        )


def _train(session: Session) -> None:
    """Train to the end; raise KeyboardInterrupt or StoppedError if SIGINT or SIGTERM comes."""
    stopped_by = session.train()
    if stopped_by is None:
        return
    message = (
        f"stopped by {stopped_by.name} at step {session.trainer.state.step:,}; resume with "
        f"maskwright pretrain --resume {session.run}"
    )
    raise KeyboardInterrupt(message) if stopped_by == signal.SIGINT else StoppedError(message)


def _check_budget(begun: PretrainConfig, config: PretrainConfig, trainer: Trainer) -> None:
    """Raise ConfigError if a new budget is already spent: the learning rate could not decay.

    A run that used up its own budget may be resumed with it, to be scored and saved again.
    """
    state, spent = trainer.state, trainer.state.find_spent(trainer.config)
    is_new = any(getattr(begun.train, name) != getattr(config.train, name) for name in BUDGETS)
    if spent is None or not is_new:
        return
    used = f"{state.step:,} steps, {state.tokens:,} tokens and {state.seconds / 60:.1f} minutes"
    if getattr(trainer.config, spent) != getattr(config.train, spent):
        spent = BUDGETS[-1]  # epochs, which the trainer counts in tokens
    rule = f"is already spent: the run has taken {used}"
    remedy = "Raise it, or remove it to resume with the budget of the run."
    raise ConfigError(f"train.{spent}", getattr(config.train, spent), rule, remedy)


def _owning(run: Path, world: World) -> AbstractContextManager[None]:
    """Lock the run directory against other runs; the first rank holds the lock for all."""
    return locking_run(run, open_console(world).print) if world.is_first else nullcontext()


def _open_data(
    world: World, config: PretrainConfig, find: Callable[[], Mapping[str, Path]]
) -> PreparedData:
    """Open on all ranks the data that the first rank finds and verifies.

    Every machine has its own mirror of remote data, which its first rank verifies.
    """

    def find_whole() -> str:
        folders = find()
        open_data(folders, config.mixture, verify="full")
        return json.dumps({name: str(folder) for name, folder in folders.items()})

    found = json.loads(world.text_from_first(find_whole))
    folders = {name: Path(folder) for name, folder in found.items()}
    if world.size > 1 and is_elsewhere(config):
        firsts, folders = folders, find()
        for text, first, folder in zip(config.text, firsts.values(), folders.values(), strict=True):
            if folder.name != first.name:
                raise ShardError(f"{text} changed while the ranks began. Start them again.")
            if is_remote(text) and world.local_rank == 0 and not world.is_first:
                PreparedData(folder, verify="full")
        world.wait()
    return open_data(folders, config.mixture, verify="sizes")


def _describe_run(
    settled: Settled, session: Session, models: Mapping[str, Origin | None]
) -> RunFacts:
    data = session.data
    manifest = data.train.manifest
    folders = {name: str(source.folder.resolve()) for name, source in data.sources.items()}
    facts: RunFacts = {
        "recipe": settled.layers.recipe,
        "origins": settled.list_origins(),
        "num_parameters": count_parameters_of(session.trainer.model),
        "corpus": {"fingerprint": manifest.fingerprint, **manifest.source},
        "prepared_data": folders or str(data.folder.resolve()),
        "tokenizer_fingerprint": data.tokenizer.fingerprint,
        "config": to_mapping(session.config),
        "computation": session.computation,
    }
    used = {name: origin for name, origin in models.items() if origin is not None}
    return cast(RunFacts, {**facts, **used})


def _find_checkpoint(run: Path, report: Callable[[str], None]) -> Checkpoint:
    checkpoint, complaints = find_newest(run / CHECKPOINTS_NAME)
    if checkpoint is None and complaints:
        raise CheckpointError(
            f"{run} has no whole checkpoint ({'; '.join(complaints)}): remove {run}, or give "
            "another --name, and start it again"
        )
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint to resume from; start it again")
    for complaint in complaints:
        report(f"warning: {complaint}; the checkpoint before it is used")
    return checkpoint


def _find_data(
    run: Path, config: PretrainConfig, data_dir: Path, report: Callable[[str], None]
) -> dict[str, Path]:
    """Return the prepared data of a run to resume; a single missing folder is prepared again.

    Raises:
        CheckpointError: the data has changed or is missing, or the run does not name it.
    """
    provenance = read_provenance(run)
    folders = name_prepared(provenance)
    if is_elsewhere(config):  # the mirrors may be missing
        texts = zip(config.text, folders.items(), strict=False)  # fingerprints detect other data
        folders = {
            name: locate(text) if is_remote(text) else folder for text, (name, folder) in texts
        }
    gone = [folder for folder in folders.values() if not is_prepared(folder)]
    if gone and len(folders) > 1:
        raise CheckpointError(f"{gone[0]}, a source of {run}, is missing. Restore it.")
    if gone:
        folders = find_or_prepare(config, data_dir, report)
    if fingerprint_folders(folders) != provenance["corpus"]["fingerprint"]:
        raise CheckpointError(
            f"{' + '.join(map(str, folders.values()))} is not the data that {run} began with: the "
            "text has changed. Start a new run, or restore the old text."
        )
    return folders
