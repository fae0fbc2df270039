"""``maskwright serve``: a model behind HTTP, and a page to play with."""

import logging
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from maskwright.commands.flags import Parser, add_config_flags, config_values
from maskwright.commands.model_folder import HELP, find_model_folder
from maskwright.config import from_mapping
from maskwright.console import say
from maskwright.corpus.extras import import_extra
from maskwright.errors import InputError
from maskwright.serving.config import ServeConfig

_TOKEN = "MASKWRIGHT_TOKEN"
_EPILOG = f"""POST / takes and gives what Hugging Face's inference API does, so its clients work:
InferenceClient(base_url="http://127.0.0.1:8000").fill_mask("Paris is the [MASK] of France.")
POST /embed and /score: vectors of texts, and how likely their tokens are. GET / is a page,
/health, /metrics (Prometheus) and /openapi.json what they are elsewhere.

With {_TOKEN} in the environment requests need Authorization: Bearer with its value, but for
GET / and /health.

examples:
  maskwright serve runs/NAME
  {_TOKEN}=secret maskwright serve runs/sst2 --host 0.0.0.0 --port 80
"""


def build_parser() -> Parser:
    """The command line of ``maskwright serve``."""
    parser = Parser("serve", "Serve a model over HTTP.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("--name", help="what the model is called [the folder's name]")
    parser.add_argument("--device", help="where to compute, such as cpu or cuda [a GPU if any]")
    parser.add_argument("--quiet", action="store_true", help="no line for each request")
    add_config_flags(parser, ServeConfig)
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    config = from_mapping(ServeConfig, config_values(arguments))
    token = os.environ.get(_TOKEN)
    if token is not None and (not token.strip() or not token.isascii()):
        raise InputError(f"{_TOKEN} is set, but empty or not ASCII. Give it a value, or unset it.")
    folder = find_model_folder(arguments.folder)
    uvicorn = import_extra("uvicorn", "serve", "maskwright serve")
    import_extra("fastapi", "serve", "maskwright serve")
    from maskwright.serving.answers import open_answerer
    from maskwright.serving.app import build_app
    from maskwright.serving.protocol import ImpatientProtocol
    from maskwright.serving.reading import open_reader

    answerer = open_answerer(folder, arguments.device)
    reader = open_reader(answerer)
    given = Path(arguments.folder).resolve()
    name = arguments.name or (given.parent.name if given.name == "model" else given.name)
    if not name or set(name) & set("{}/"):
        raise InputError(f"--name = {name!r} must be a name without {{, }} and /")
    app = build_app(name, answerer, reader, config, token)
    _log_requests(quiet=arguments.quiet)
    with listen(config) as listening:
        host, port = listening.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        say(f"serving {name} ({answerer.task}) on http://{host}:{port}", flush=True)
        protocol = partial(
            ImpatientProtocol,
            header_seconds=config.header_seconds,
            read_seconds=config.read_seconds,
        )
        settings = uvicorn.Config(
            app,
            access_log=False,
            log_level="warning",
            server_header=False,
            http=protocol,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=config.drain_seconds,
        )
        uvicorn.Server(settings).run(sockets=[listening])
    return 0


def listen(config: ServeConfig) -> socket.socket:
    """The socket to serve on, so that a port that is taken is one clear line."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listening = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as error:
        if (error.errno or 0) < 0:  # of a name that stands for no address
            raise InputError(f"host = {config.host} is no address here.") from None
        raise InputError(
            f"host = {config.host}, port = {config.port}: {os.strerror(error.errno or 0)}. "
            "Choose another --host or --port."
        ) from None
    # An answer leaves in two parts, its head and its body. Without this option, which connections
    # inherit, the second waits for the client to acknowledge the first: 40 ms. asyncio sets it
    # only where a socket was made with its protocol by name, which these are not.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _log_requests(*, quiet: bool) -> None:
    """A line for each request, unless quiet, and tracebacks of what failed."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("maskwright.access", "maskwright.serving"):
        log = logging.getLogger(name)
        log.setLevel(logging.WARNING if quiet else logging.INFO)
        log.addHandler(handler)
        log.propagate = False
