"""``maskwright pretrain``: raw text, or prepared data, to a model folder."""

import os
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import (
    Parser,
    add_config_flags,
    add_private_flag,
    config_values,
    folder_name,
    say_loading,
)
from maskwright.config import Plain, merge
from maskwright.errors import InputError
from maskwright.runs.config import CONTINUE_RECIPE, DEFAULT_RECIPE, default_recipe, resolve
from maskwright.runs.run_directory import is_prepared
from maskwright.shards.remote import is_remote

_EPILOG = """examples:
  maskwright pretrain corpus/*.txt --recipe tiny
  maskwright pretrain --config my.yaml --train.max_minutes 30 --model.hidden_size 384
  maskwright pretrain data/NAME --name first-try      (a folder that `prepare` wrote)
  maskwright pretrain --data wiki=0.7,books=0.3       (data/wiki and data/books)
  maskwright pretrain s3://bucket/NAME --name there   (the same elsewhere; also gs, hf, https)
  maskwright pretrain domain.txt --init-from runs/NAME --name adapted
  maskwright pretrain domain.txt --init-from hf:FacebookAI/roberta-base --extend-vocab 2000
  maskwright pretrain data/NAME --teacher runs/NAME --name half-as-deep
  maskwright pretrain letters/ --private              (no sample of the text in its files)
  maskwright pretrain --resume runs/NAME
  torchrun --nproc-per-node 4 -m maskwright pretrain data/NAME --name big --auto-resume
"""
# The fields that --help shows: what a first run changes. --help-all shows the others.
_USUAL = (
    "seed", "corpus.valid_text", "tokenizer.vocab_size", "tokenizer.lowercase",
    "data.max_seq_length", "model.hidden_size", "model.num_hidden_layers", "train.max_minutes",
    "train.max_steps", "train.device",
)  # fmt: skip


def build_parser() -> Parser:
    """Return the command line of ``maskwright pretrain``."""
    parser = Parser("pretrain", "Train an encoder of your own from raw text.", _EPILOG)
    parser.add_argument(
        "--data",
        metavar="NAME=SHARE,...",
        help="prepared folders below --data-dir, or their URLs, and the share of the tokens that "
        "training takes of each: wiki=0.7,books=0.3; without shares all of each once an epoch",
    )
    parser.add_argument("text", nargs="*", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    defaults = f"{DEFAULT_RECIPE}, whose values are below, or {CONTINUE_RECIPE} with --init-from"
    parser.add_argument("--recipe", help=f"recipe to start from [{defaults}]")
    parser.add_argument("--config", type=Path, help="YAML file put over the recipe")
    parser.add_argument(
        "--name", type=folder_name, help="name of the run directory [recipe and time]"
    )
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where runs go [runs]")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("data"), help="where prepared data goes [data]"
    )
    model = "continue pretraining a model, with its tokenizer: a folder, a run, or hf:NAME"
    more = "add N tokens, learned from the text, to that model's vocabulary"
    other = "train a tokenizer of N tokens on the text to replace that of the model"
    for flag, field, value, text in (
        ("--init-from", "init_from", "MODEL", model),
        ("--extend-vocab", "tokenizer.extend_vocab", "N", more),
        ("--replace-vocab", "tokenizer.replace_vocab", "N", other),
    ):
        dest = f"config:{field}"
        parser.add_argument(flag, dest=dest, metavar=value, default=SUPPRESS, help=text)
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue a run directory")
    resume = "resume from the newest checkpoint of --name if there is one, for jobs that restart"
    parser.add_argument("--auto-resume", action="store_true", help=resume)
    parser.add_argument(
        "--print-config", action="store_true", help="print the resolved configuration and stop"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, print sizes and times, and stop"
    )
    device = "with --dry-run: GPUs to estimate for, such as H200 or 8xH100 [this machine]"
    parser.add_argument("--for-device", metavar="NxNAME", help=device)
    private = add_private_flag(parser)
    parser.rare[private], private.help = private.help, SUPPRESS
    add_config_flags(parser, resolve(), skip=("text", "init_from", "private"), usual=_USUAL)
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    overrides, text = config_values(arguments), arguments.text
    if arguments.data:
        overrides, text = _name_data(arguments, overrides)
    if arguments.resume and arguments.name:
        raise InputError("--name has no effect with --resume, which names the run. Remove it.")
    if not arguments.print_config:
        say_loading()
    maskwright.pretrain(
        text,
        recipe=arguments.recipe,
        config=arguments.config,
        out=Path() if arguments.resume else _name_run(arguments, overrides),
        data_dir=arguments.data_dir,
        resume=arguments.resume,
        auto_resume=arguments.auto_resume,
        print_config=arguments.print_config,
        dry_run=arguments.dry_run,
        for_device=arguments.for_device,
        **overrides,
    )
    return 0


def _name_data(arguments: Namespace, overrides: Plain) -> tuple[Plain, list[str]]:
    """Return the configuration over `overrides` and the text of ``--data wiki=0.7,books=0.3``.

    Raises:
        InputError: text or shares are given beside it, or there is no such folder.
    """
    if arguments.text:
        raise InputError("--data names the folders to train on. Remove the other text.")
    entries = [entry.strip() for entry in arguments.data.split(",") if entry.strip()]
    names = [entry.rpartition("=")[0] or entry for entry in entries]
    folders = [name if is_remote(name) else str(arguments.data_dir / name) for name in names]
    for folder in folders:
        if not is_remote(folder) and not is_prepared(Path(folder)):
            raise InputError(
                f"--data: {folder} is not prepared data. Run maskwright prepare TEXT --out {folder}"
            )
    if not any("=" in entry for entry in entries):
        return overrides, folders
    if "mixture" in overrides:
        raise InputError("--data gives shares already. Remove --mixture.*.")
    weights = [Path(entry).name for entry in entries if "=" in entry]
    return merge(overrides, {"mixture": {"weights": weights}}), folders


def _name_run(arguments: Namespace, overrides: Plain) -> Path:
    if arguments.name is None and (arguments.auto_resume or "RANK" in os.environ):
        raise InputError(
            "give the run a --name: processes that share it or come back to it must know it"
        )
    without_recipe = default_recipe(overrides)
    recipe = arguments.recipe or (arguments.config.stem if arguments.config else without_recipe)
    return arguments.runs_dir / (arguments.name or f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}")
