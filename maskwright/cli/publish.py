"""``maskwright publish``: uploads a model folder to the Hugging Face hub."""

from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser
from maskwright.console import say

_EPILOG = """examples:
  maskwright publish runs/NAME --repo me/my-encoder --dry-run
  maskwright publish runs/NAME --repo me/my-encoder --private --license apache-2.0 --language en

Configuration, weights, tokenizer and model card are uploaded in one commit, and nothing else; other
weights and tokenizer files that are there already are removed by it. Log in first (hf auth login),
or set HF_TOKEN.
"""


def build_parser() -> Parser:
    """Return the command line of ``maskwright publish``."""
    parser = Parser("publish", "Upload a model to the Hugging Face hub.", _EPILOG)
    parser.add_argument("folder", type=Path, help="a run directory or a model folder")
    parser.add_argument("--repo", required=True, metavar="OWNER/NAME", help="the repository")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument("--revision", metavar="BRANCH", help="created if it does not exist [main]")
    parser.add_argument("--message", metavar="TEXT", help="of the commit")
    parser.add_argument("--license", metavar="NAME", help="for the model card, such as apache-2.0")
    parser.add_argument(
        "--language", metavar="CODES", default="", help="for the model card, such as en or en,ko"
    )
    base = "the model it was initialized from [that of a run begun with hf:NAME]"
    parser.add_argument("--base-model", metavar="OWNER/NAME", help=base)
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be uploaded; no network"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = vars(build_parser().parse(argv))
    result = maskwright.publish(**arguments, report=say)
    if arguments["dry_run"]:
        say(
            f"\n{result.card}\nNothing was uploaded. Other weights and tokenizer files that are in "
            f"{result.repo} already would be removed."
        )
        return 0
    for name in result.removed:
        say(f"removed there, of an older model: {name}")
    say(f"published: {result.url}")
    return 0
