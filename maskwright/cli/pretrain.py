"""``maskwright pretrain``, and what helps to choose a run: ``plan`` and ``recipes``."""

import os
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

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
from maskwright.console import Console, say
from maskwright.errors import InputError
from maskwright.recipes import list_recipes
from maskwright.runs.config import CONTINUE_RECIPE, DEFAULT_RECIPE, default_recipe, resolve
from maskwright.runs.run_directory import is_prepared
from maskwright.shards.remote import is_remote

_PRETRAIN_HELP = """examples:
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


def pretrain_parser() -> Parser:
    parser = Parser("pretrain", "Train an encoder of your own from raw text.", _PRETRAIN_HELP)
    add = parser.add_argument
    add(
        "--data",
        metavar="NAME=SHARE,...",
        help="prepared folders below --data-dir, or their URLs, and the share of the tokens that "
        "training takes of each: wiki=0.7,books=0.3; without shares all of each once an epoch",
    )
    add("text", nargs="*", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    defaults = f"{DEFAULT_RECIPE}, whose values are below, or {CONTINUE_RECIPE} with --init-from"
    add("--recipe", help=f"recipe to start from [{defaults}]")
    add("--config", type=Path, help="YAML file put over the recipe")
    add("--name", type=folder_name, help="name of the run directory [recipe and time]")
    add("--runs-dir", type=Path, default=Path("runs"), help="where runs go [runs]")
    add("--data-dir", type=Path, default=Path("data"), help="where prepared data goes [data]")
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
    add("--resume", type=Path, metavar="RUN", help="continue a run directory")
    shown = "print the configuration and stop; what the budget will choose is a comment"
    resume = "resume from the newest checkpoint of --name if there is one, for jobs that restart"
    add("--auto-resume", action="store_true", help=resume)
    add("--print-config", action="store_true", help=shown)
    add("--dry-run", action="store_true", help="check everything, print sizes and times, and stop")
    device = "with --dry-run: GPUs to estimate for, such as H200 or 8xH100 [this machine]"
    add("--for-device", metavar="NxNAME", help=device)
    private = add_private_flag(parser)
    parser.rare[private], private.help = private.help, SUPPRESS
    add_config_flags(parser, resolve(), skip=("text", "init_from", "private"), usual=_USUAL)
    return parser


def pretrain(argv: Sequence[str]) -> int:
    arguments = pretrain_parser().parse(argv)
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

    Raise InputError if text or shares are given beside it, or there is no such folder.
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


_PLAN_HELP = """examples:
  maskwright plan --device 8xH100 --hours 24 corpus/
  maskwright plan --device RTX4090 --tokens 2e9               (a text that is not here)
  maskwright plan --device 16xH100 --hours 48 --size 1024x28 data/NAME --sbatch train.sh
"""


def plan_parser() -> Parser:
    parser = Parser("plan", "Plan a run on GPUs that need not be here.", _PLAN_HELP)
    add = parser.add_argument
    add("text", nargs="*", help="text or prepared data, as of pretrain")
    add("--device", required=True, metavar="NxNAME", help="the GPUs: 8xH100")
    add("--hours", type=float, help="budget [20 epochs of the text]")
    add("--tokens", type=float, help="tokens of a text that is not here, 10e9")
    add("--size", help="WIDTHxLAYERS, 768x22 [the largest that the budget pays for]")
    add("--sbatch", type=Path, metavar="FILE", help="write a batch file for Slurm")
    add("--data-dir", type=Path, default=Path("data"), help="where prepared data is [data]")
    return parser


def plan(argv: Sequence[str]) -> int:
    arguments = plan_parser().parse(argv)
    for line in maskwright.plan(**vars(arguments)).describe():
        say(line)
    return 0


def recipes(argv: Sequence[str]) -> int:
    Parser("recipes", "List the recipes that come with maskwright.").parse(argv)
    console = Console(highlight=False)
    for recipe in list_recipes():
        console.print(f"[bold]{recipe.name}[/bold]  {escape(recipe.title)}")
        for key, value in recipe.facts.items():
            console.print(f"    {key + ':':<10} {escape(value)}", soft_wrap=True)
        console.print()
    console.print("auto, the default, chooses the size of the model by the budget.")
    console.print("Every field of a recipe is a flag: --train.max_minutes 30. See them with")
    console.print("    maskwright pretrain --recipe NAME --print-config")
    return 0
