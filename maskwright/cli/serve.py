"""``maskwright serve``: a model behind HTTP, and a page to play with."""

import os
import signal
from collections.abc import Sequence

import maskwright
from maskwright.cli.flags import Parser, add_config_flags, all_values
from maskwright.console import tell
from maskwright.runs.find_model import HELP
from maskwright.serving.config import ServeConfig
from maskwright.serving.server import TOKEN_VARIABLE

_EPILOG = f"""POST / has the format of Hugging Face's inference API, so its clients work:
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


def build_parser() -> Parser:
    """Return the command line of ``maskwright serve``."""
    parser = Parser("serve", "Serve a model over HTTP.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("--name", help="name of the model [the folder's name]")
    parser.add_argument("--device", help="where to compute, such as cpu or cuda [a GPU if any]")
    parser.add_argument("--quiet", action="store_true", help="no line for each request")
    host = "another name, without a port, that requests without a token may use for the server"
    parser.add_argument("--allowed-host", action="append", default=[], metavar="NAME", help=host)
    add_config_flags(parser, ServeConfig())
    return parser


def main(argv: Sequence[str]) -> int:
    given = all_values(build_parser().parse(argv))
    try:
        maskwright.serve(**given)
    except KeyboardInterrupt:
        # A normal exit of the interpreter takes seconds, and may crash while a thread is in the
        # model. After SIGTERM uvicorn raises the signal again, which ends the process at once.
        tell("interrupted")
        os._exit(128 + signal.SIGINT)
    return 0
