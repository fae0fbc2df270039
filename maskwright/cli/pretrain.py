"""``maskwright pretrain``: raw text, or prepared data, to a model folder."""

import os
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from maskwright.cli.flags import Parser, add_config_flags, config_values, folder_name
from maskwright.config import Plain, merge, write_yaml
from maskwright.console import say
from maskwright.errors import InputError
from maskwright.pretraining.init_from import adopt_model
from maskwright.runs.config import (
    CONTINUE_RECIPE,
    DEFAULT_RECIPE,
    PretrainConfig,
    choose_recipe,
    default_recipe,
    read_given,
    resolve,
)
from maskwright.runs.find_data import adopt_preparation, is_prepared
from maskwright.runs.run_directory import find_begun, load_run_config
from maskwright.shards.remote import is_remote

_EPILOG = """examples:
  maskwright pretrain corpus/*.txt --recipe tiny
  maskwright pretrain --config my.yaml --train.max_minutes 30 --model.hidden_size 384
  maskwright pretrain data/NAME --name first-try      (a folder that `prepare` wrote)
  maskwright pretrain --data wiki=0.7,books=0.3       (data/wiki and data/books)
  maskwright pretrain s3://bucket/NAME --name there   (the same elsewhere; also gs, hf, https)
  maskwright pretrain domain.txt --init-from runs/NAME --name adapted
  maskwright pretrain domain.txt --init-from hf:FacebookAI/roberta-base --extend-vocab 2000
  maskwright pretrain --resume runs/NAME
  torchrun --nproc-per-node 4 -m maskwright pretrain data/NAME --name big --auto-resume
"""
# The fields that --help shows: what a first run changes. --help-all shows the others.
_USUAL = (
    "seed",
    "corpus.valid_text",
    "tokenizer.vocab_size",
    "tokenizer.lowercase",
    "data.max_seq_length",
    "model.hidden_size",
    "model.num_hidden_layers",
    "train.max_minutes",
    "train.max_steps",
    "train.batch_tokens",
    "train.device",
)


def build_parser() -> Parser:
    """The command line of ``maskwright pretrain``."""
    parser = Parser("pretrain", "Train an encoder of your own from raw text.", _EPILOG)
    parser.add_argument(
        "--data",
        metavar="NAME=SHARE,...",
        help="prepared folders below --data-dir, or their URLs, and the share of the tokens that "
        "training takes of each: wiki=0.7,books=0.3; without shares all of each once an epoch",
    )
    parser.add_argument("text", nargs="*", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    defaults = f"{DEFAULT_RECIPE}, or {CONTINUE_RECIPE} with --init-from"
    parser.add_argument("--recipe", help=f"recipe to start from [{defaults}]")
    parser.add_argument("--config", type=Path, help="YAML file put over the recipe")
    parser.add_argument(
        "--name", type=folder_name, help="name of the run directory [recipe and time]"
    )
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where runs go [runs]")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("data"), help="where prepared data goes [data]"
    )
    parser.add_argument(
        "--init-from",
        dest="config:init_from",
        metavar="MODEL",
        default=SUPPRESS,
        help="continue pretraining a model, with its tokenizer: a folder, a run, or hf:NAME",
    )
    parser.add_argument(
        "--extend-vocab",
        dest="config:tokenizer.extend_vocab",
        metavar="N",
        default=SUPPRESS,
        help="add N tokens, learnt from the text, to that model's vocabulary",
    )
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue a run directory")
    parser.add_argument(
        "--auto-resume",
        action="store_true",
        help="go on from the newest checkpoint of --name if there is one, for jobs that restart",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the resolved configuration and stop"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, print sizes and times, and stop"
    )
    add_config_flags(parser, PretrainConfig, skip=("text", "init_from"), usual=_USUAL)
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    overrides = config_values(arguments)
    if arguments.resume:
        given = (arguments.text, arguments.data, arguments.recipe, arguments.config, arguments.name)
        if any(given) or arguments.auto_resume:
            raise InputError("--resume continues a run as it is; give it no text, recipe or name")
        config = load_run_config(arguments.resume, overrides)
    else:
        if arguments.data:
            overrides = _name_data(arguments, overrides)
        config = resolve(arguments.recipe, arguments.config, overrides)
        if arguments.text:
            config = replace(config, text=tuple(arguments.text))
        config = adopt_preparation(config, overrides)
        config = adopt_model(
            config,
            read_given(arguments.config, overrides),
            begun=find_begun(_name_run(arguments)) if arguments.auto_resume else None,
        )
    if arguments.print_config:
        say(write_yaml(config), end="")
        return 0
    if not config.text:
        raise InputError("no text given: name files or folders, or try pydocs")
    if arguments.dry_run:
        from maskwright.pretraining.dry_run import describe_run

        for line in describe_run(config, arguments.data_dir):
            say(line, flush=True)
        return 0
    # torch is imported from here on; everything above has already been checked without it
    from maskwright.pretraining.runner import go_on, resume_run, start_run

    if arguments.resume:
        stopped_by = resume_run(arguments.resume, config, arguments.data_dir, overrides)
    else:
        begin = go_on if arguments.auto_resume else start_run
        recipe = choose_recipe(arguments.recipe, arguments.config, overrides)
        stopped_by = begin(_name_run(arguments), config, arguments.data_dir, recipe)
    return 128 + stopped_by if stopped_by else 0


def _name_data(arguments: Namespace, overrides: Plain) -> Plain:
    """What ``--data wiki=0.7,books=0.3`` says, as configuration over `overrides`.

    Raises:
        InputError: text or shares are given beside it, or there is no such folder.
    """
    if arguments.text:
        raise InputError("--data names the folders to train on; give no other text beside it")
    entries = [entry.strip() for entry in arguments.data.split(",") if entry.strip()]
    names = [entry.rpartition("=")[0] or entry for entry in entries]
    folders = [name if is_remote(name) else str(arguments.data_dir / name) for name in names]
    for folder in folders:
        if not is_remote(folder) and not is_prepared(Path(folder)):
            raise InputError(
                f"--data: {folder} is no prepared data. Run maskwright prepare TEXT --out {folder}"
            )
    named = merge(overrides, {"text": folders})
    if not any("=" in entry for entry in entries):
        return named
    if "mixture" in overrides:
        raise InputError("--data gives shares already; leave out --mixture.*")
    weights = [Path(entry).name for entry in entries if "=" in entry]
    return merge(named, {"mixture": {"weights": weights}})


def _name_run(arguments: Namespace) -> Path:
    if arguments.name is None and (arguments.auto_resume or "RANK" in os.environ):
        raise InputError(
            "give the run a --name: processes that share it or come back to it must know it"
        )
    without_recipe = default_recipe(config_values(arguments))
    recipe = arguments.recipe or (arguments.config.stem if arguments.config else without_recipe)
    return arguments.runs_dir / (arguments.name or f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}")
