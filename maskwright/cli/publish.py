"""``maskwright publish``: a model folder goes to the Hugging Face hub."""

from collections.abc import Sequence
from pathlib import Path

from maskwright.cli.flags import Parser
from maskwright.config import read_yaml
from maskwright.console import Console
from maskwright.errors import InputError
from maskwright.runs.find_model import PREFIX, find_model_folder, is_hub_name
from maskwright.runs.run_directory import CONFIG_NAME

_EPILOG = """examples:
  maskwright publish runs/NAME --repo me/my-encoder --dry-run
  maskwright publish runs/NAME --repo me/my-encoder --private --license apache-2.0 --language en

Configuration, weights, tokenizer and model card are uploaded in one commit, and nothing else; other
weights and tokenizer files that are there already are removed by it. Log in first (hf auth login),
or set HF_TOKEN.
"""


def build_parser() -> Parser:
    """The command line of ``maskwright publish``."""
    parser = Parser("publish", "Upload a model to the Hugging Face hub.", _EPILOG)
    parser.add_argument("folder", type=Path, help="a run directory or a model folder")
    parser.add_argument("--repo", required=True, metavar="OWNER/NAME", help="the repository")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument("--revision", metavar="BRANCH", help="made if it is not there [main]")
    parser.add_argument("--message", metavar="TEXT", help="of the commit")
    parser.add_argument("--license", metavar="NAME", help="for the model card, such as apache-2.0")
    parser.add_argument(
        "--language", metavar="CODES", default="", help="for the model card, such as en or en,ko"
    )
    parser.add_argument(
        "--base-model",
        metavar="OWNER/NAME",
        help="the model it was initialised from; of a run begun with hf:NAME it is known",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be uploaded; no network"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    if is_hub_name(str(arguments.folder)):
        raise InputError(f"{arguments.folder} is on the hub already. Name a folder.")
    folder = find_model_folder(arguments.folder)
    from maskwright.interop.publish import plan_upload, send_upload

    upload = plan_upload(
        folder,
        arguments.repo,
        license_name=arguments.license,
        languages=[code for code in arguments.language.split(",") if code],
        base_model=arguments.base_model or find_base_model(arguments.folder),
    )
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in upload.describe():
        console.print(line)
    if upload.example:
        console.print(
            "\nREADME.md quotes a text as its example (widget), which a run takes from "
            "held-out text. Remove it there if it is private:"
        )
    for text in upload.example:
        console.print(f"  {text}")
    if arguments.dry_run:
        console.print(
            f"\n{upload.card}\nNothing was uploaded. Other weights and tokenizer files that are in "
            f"{arguments.repo} already would be removed."
        )
        return 0
    published = send_upload(
        upload,
        private=arguments.private,
        revision=arguments.revision,
        message=arguments.message,
    )
    for name in published.removed:
        console.print(f"removed there, of an older model: {name}")
    console.print(f"published: {published.url}")
    return 0


def find_base_model(run: Path) -> str | None:
    """The model on the hub that a run began with, if this is a run and it did."""
    path = run / CONFIG_NAME
    source = read_yaml(path).get("init_from") if path.is_file() else None
    if not isinstance(source, str) or not is_hub_name(source):
        return None
    return source.removeprefix(PREFIX).partition("@")[0]
