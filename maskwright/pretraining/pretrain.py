"""Pretrain an encoder: settle what to run, open its data, build its trainer, fit, save.

The first file to read; the others of this room do what these lines name.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maskwright.console import say
from maskwright.distributed.world import World
from maskwright.pretraining.build import fetch_ahead
from maskwright.pretraining.dry_run import parse_estimate, print_description
from maskwright.pretraining.find_data import find_or_prepare
from maskwright.pretraining.init_from import load_initial, load_teacher
from maskwright.pretraining.ranks import joining_ranks, open_on_all_ranks, owning_run
from maskwright.pretraining.request import (
    Request,
    name_models,
    request_resumption,
    request_run,
    resolve_asked,
)
from maskwright.pretraining.resume import resuming
from maskwright.pretraining.run_session import Session, open_console, open_session
from maskwright.pretraining.start import begin, check_request, check_start, settle_with
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import MODEL_NAME


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
        folder = pretrain(resume="runs/mine", train={"max_minutes": 20})

    Args:
        text: files, folders, globs, ``pydocs``, ``hf:NAME``; or prepared folders or their URLs.
        texts: documents instead of `text`, read once; ``data_dir/texts-HASH.jsonl`` keeps them.
        init_from: a model to continue, with its tokenizer: a folder, a run, or ``hf:NAME``.
        teacher: a model whose predictions are learned, too, by default with half of its layers.
        recipe: the recipe to start from; default: ``auto``, or ``continue`` with `init_from`.
        config: a YAML file put over the recipe; or a whole one, without recipe and `sections`.
        out: the run directory; must not exist yet, unless `auto_resume`.
        data_dir: the folder of prepared data, which later runs reuse.
        resume: a run directory to resume; only `sections` (train, optim, evaluate) may be given.
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
        TypeError: a whole `config` beside recipe, model or sections; `text` beside `texts`.
    """
    cards, given = parse_estimate(for_device, dry_run), name_models(init_from, teacher) | sections
    if resume is not None:
        is_alone = not (text or texts is not None or recipe or config or auto_resume)
        request = request_resumption(Path(resume), Path(data_dir), given, is_alone)
    else:
        asked = resolve_asked(recipe, config, given)
        request = request_run(text, texts, asked, Path(out), Path(data_dir), auto_resume)
    if print_config:
        say(request.write_config(), end="")
    elif dry_run:
        print_description(request, cards)
    else:
        _train(request)
    return request.run / MODEL_NAME


def _train(request: Request) -> None:
    """Train a run to its end, and save its model folder."""
    check_request(request)
    opening = resuming if request.resumes else starting
    with joining_ranks(request.config) as world, opening(request, world) as session:
        session.finish()


@contextmanager
def starting(request: Request, world: World) -> Generator[Session]:
    """Settle a run, open its data, build its trainer, and own its new directory."""
    console = open_console(world)
    check_start(request, world)
    initial = load_initial(request.config)
    request = request.join(world)
    data = open_on_all_ranks(
        world,
        request.config,
        lambda: find_or_prepare(request.config, request.data_dir, console.print),
    )
    teacher = load_teacher(request.config, data.tokenizer)
    settled = settle_with(request, data, world)
    session = open_session(
        request.run, settled.config, data, world, console, initial=initial, teacher=teacher
    )
    fetch_ahead(settled.config, data, session.trainer.state.position, world)
    del initial  # the trainer has its weights, or extended copies of them
    request.run.mkdir(parents=True, exist_ok=True)
    with owning_run(request.run, world):
        begin(session, settled)
        yield session
