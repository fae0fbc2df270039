"""``maskwright export``, ``publish`` and ``serve``: a model for others."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser, add_config_flags, all_values
from maskwright.console import say, tell
from maskwright.interop.targets import INT8_DEFAULTS, TARGETS
from maskwright.runs.find_model import HELP
from maskwright.serving.config import ServeConfig
from maskwright.serving.server import TOKEN_VARIABLE

_EXPORT_HELP = """examples:
  maskwright export runs/NAME --to hf --out exports/NAME
  maskwright export runs/NAME --to onnx --out exports/NAME-onnx
  maskwright export runs/NAME --to onnx-int8 --out exports/NAME-int8
  maskwright export MODEL --to onnx-int8 --data data/NAME --out exports/int8
  maskwright export runs/NAME --to onnx-int8 --calibrate data/NAME --out exports/NAME-static
  maskwright export runs/NAME --to sentence-transformers --out exports/NAME-st
  maskwright export runs/NAME --to gguf --out exports/NAME-gguf
  maskwright export runs/NAME --to transformers-js --out exports/NAME-page
  maskwright export runs/sst2 --to onnx-int8 --out exports/sst2-int8
  maskwright export MODEL --to onnx --data reviews.csv --out exports/reviews

What is written is loaded with the other library and compared on real sentences, a fine-tuned model
on the examples that it was scored on; DIR appears only if the outputs are the same.
"""


def export_parser() -> Parser:
    parser = Parser("export", "Write a model for other libraries.", _EXPORT_HELP)
    add = parser.add_argument
    add("folder", help=HELP)
    add("--to", choices=tuple(TARGETS), required=True, help="the target")
    add("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    add(
        "--data",
        help="text to compare on [that of the run]: a prepared folder, or its URL, with held-out "
        "text; of a fine-tuned model a file of labeled examples, in the columns that it was "
        "fine-tuned on",
    )
    add(
        "--calibrate",
        metavar="TEXT",
        help="make onnx-int8 static, with the ranges that numbers have in this text: a prepared "
        "folder or a text file; of a fine-tuned model a file as for --data [dynamic]",
    )
    most = INT8_DEFAULTS.max_loss
    loss = f"write no onnx-int8 that loses more accuracy (or score of the task) [{most}]"
    add("--max-loss", type=float, default=most, metavar="LOSS", help=loss)
    return parser


def export(argv: Sequence[str]) -> int:
    given = vars(export_parser().parse(argv))  # --help comes before the import of torch
    result = maskwright.export(**given)
    for line in result.describe():
        say(line)
    return 0


_PUBLISH_HELP = """examples:
  maskwright publish runs/NAME --repo me/my-encoder --dry-run
  maskwright publish runs/NAME --repo me/my-encoder --private --license apache-2.0 --language en

Configuration, weights, tokenizer and model card are uploaded in one commit, and nothing else; other
weights and tokenizer files that are there already are removed by it. Log in first (hf auth login),
or set HF_TOKEN.
"""


def publish_parser() -> Parser:
    parser = Parser("publish", "Upload a model to the Hugging Face hub.", _PUBLISH_HELP)
    add = parser.add_argument
    add("folder", type=Path, help="a run directory or a model folder")
    add("--repo", required=True, metavar="OWNER/NAME", help="the repository")
    add("--private", action="store_true", help="make a new repository private")
    add("--revision", metavar="BRANCH", help="created if it does not exist [main]")
    add("--message", metavar="TEXT", help="of the commit")
    add("--license", metavar="NAME", help="for the model card, such as apache-2.0")
    add("--language", metavar="CODES", default="", help="for the model card, such as en or en,ko")
    base = "the model it was initialized from [that of a run begun with hf:NAME]"
    add("--base-model", metavar="OWNER/NAME", help=base)
    add("--dry-run", action="store_true", help="show what would be uploaded; no network")
    return parser


def publish(argv: Sequence[str]) -> int:
    arguments = vars(publish_parser().parse(argv))
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


_SERVE_HELP = f"""POST / has the format of Hugging Face's inference API, so its clients work:
InferenceClient(base_url="http://127.0.0.1:8000").fill_mask("Paris is the [MASK] of France.")
POST /embed and /score: embeddings of texts, and log-probabilities of their tokens. GET / is a page
to play with. /docs, /health, /metrics (Prometheus) and /openapi.json are what their names say.
POST /v1/embeddings is that of OpenAI's API: OpenAI(base_url="http://127.0.0.1:8000/v1").

With {TOKEN_VARIABLE} in the environment, requests need it as Authorization: Bearer, except
GET /, /docs, /openapi.json and /health.

examples:
  maskwright serve runs/NAME
  {TOKEN_VARIABLE}=secret maskwright serve runs/sst2 --host 0.0.0.0 --port 80
"""


def serve_parser() -> Parser:
    parser = Parser("serve", "Serve a model over HTTP.", _SERVE_HELP)
    add = parser.add_argument
    add("folder", help=HELP)
    add("--name", help="name of the model [the folder's name]")
    add("--device", help="where to compute, such as cpu or cuda [a GPU if any]")
    add("--quiet", action="store_true", help="no line for each request")
    host = "another name, without a port, that requests without a token may use for the server"
    add("--allowed-host", action="append", default=[], metavar="NAME", help=host)
    add_config_flags(parser, ServeConfig())
    return parser


def serve(argv: Sequence[str]) -> int:
    given = all_values(serve_parser().parse(argv))
    try:
        maskwright.serve(**given)
    except KeyboardInterrupt:
        # A normal exit of the interpreter takes seconds, and may crash while a thread is in the
        # model. After SIGTERM uvicorn raises the signal again, which ends the process at once.
        tell("interrupted")
        os._exit(128 + signal.SIGINT)
    return 0
