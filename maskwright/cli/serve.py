"""``maskwright serve``: a model behind HTTP, and a page to play with."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from maskwright.cli.flags import Arguments, Parser, add_config_flags, config_values
from maskwright.config import from_mapping
from maskwright.console import say, tell
from maskwright.errors import InputError
from maskwright.extras import import_extra
from maskwright.runs.find_model import HELP, find_model_folder
from maskwright.serving.config import ServeConfig

_TOKEN = "MASKWRIGHT_TOKEN"
_EPILOG = f"""POST / takes and gives what Hugging Face's inference API does, so its clients work:
InferenceClient(base_url="http://127.0.0.1:8000").fill_mask("Paris is the [MASK] of France.")
POST /embed and /score: vectors of texts, and how likely their tokens are. GET / is a page,
/docs, /health, /metrics (Prometheus) and /openapi.json what they are elsewhere.
POST /v1/embeddings is what OpenAI's API has: OpenAI(base_url="http://127.0.0.1:8000/v1").

With {_TOKEN} in the environment requests need Authorization: Bearer with its value, but for
GET /, /docs, /openapi.json and /health.

examples:
  maskwright serve runs/NAME
  {_TOKEN}=secret maskwright serve runs/sst2 --host 0.0.0.0 --port 80
"""


def build_parser() -> Parser:
    """Return the command line of ``maskwright serve``."""
    parser = Parser("serve", "Serve a model over HTTP.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("--name", help="what the model is called [the folder's name]")
    parser.add_argument("--device", help="where to compute, such as cpu or cuda [a GPU if any]")
    parser.add_argument("--quiet", action="store_true", help="no line for each request")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name, without a port, by which the server may be called without a token",
    )
    add_config_flags(parser, ServeConfig)
    return parser


def serve(
    folder: str | Path,
    *,
    name: str | None = None,
    device: str | None = None,
    quiet: bool = False,
    allowed_host: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Serve a model over HTTP until Ctrl-C or SIGTERM; the Python twin of ``maskwright serve``::

        serve("runs/mine", port=8000)

    In a notebook, whose event loop runs already, serve in a thread, which ends with the process::

        threading.Thread(target=serve, args=["runs/mine"], daemon=True).start()

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        name: what the model is called; default: the folder's name.
        device: where to compute, such as ``cpu`` or ``cuda``; default: a GPU if there is one.
        quiet: prints no line for each request.
        allowed_host: names besides localhost by which the server may be called without a token.
        settings: ``host``, ``port``, and the limits: see ``maskwright serve --help``.

    Raises:
        MaskwrightError: anything wrong with the model or the settings, as one line; or an event
            loop runs in this thread.
    """
    if has_event_loop():
        raise InputError(
            "serve cannot run where an event loop runs already, as in a notebook. Start it in a "
            "thread: threading.Thread(target=maskwright.serve, args=[folder], daemon=True).start()"
        )
    options = {"name": name, "device": device, "quiet": quiet, "allowed_host": list(allowed_host)}
    main(build_parser().fill(settings, folder=folder, **options))


def has_event_loop() -> bool:
    """Return True if asyncio's event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def main(argv: Arguments) -> int:
    arguments = build_parser().parse(argv)
    config = from_mapping(ServeConfig, config_values(arguments))
    token = os.environ.get(_TOKEN)
    if token is not None and (not token.strip() or not token.isascii()):
        raise InputError(f"{_TOKEN} is set, but empty or not ASCII. Give it a value, or unset it.")
    folder = find_model_folder(arguments.folder)
    import_extra("uvicorn", "serve", "maskwright serve")
    import_extra("fastapi", "serve", "maskwright serve")
    import_extra("fastapi_swagger", "serve", "maskwright serve")
    from maskwright.serving.app import build_app
    from maskwright.serving.pipelines import open_pipeline

    pipeline = open_pipeline(folder, arguments.device)
    given = Path(arguments.folder).resolve()
    name = arguments.name or (given.parent.name if given.name == "model" else given.name)
    if not name or set(name) & set("{}/"):
        raise InputError(f"--name = {name!r} must be a name without {{, }} and /")
    app = build_app(name, pipeline, config, token, arguments.allowed_host)
    _log_requests(quiet=arguments.quiet)
    _run(app, config, f"{name} ({pipeline.task})", has_token=token is not None)
    return 0


def _run(app: Any, config: ServeConfig, title: str, *, has_token: bool) -> None:
    """Serve until a signal comes."""
    import uvicorn

    from maskwright.serving.connections import BACKLOG, Connections, allow_connections, listen
    from maskwright.serving.guard import is_loopback

    if not has_token and not is_loopback(config.host):
        tell(
            f"warning: --host {config.host} without {_TOKEN}: everybody who reaches this machine "
            f"can use the model. Set {_TOKEN}, or listen on 127.0.0.1."
        )
    limit = allow_connections(config.max_connections)
    if limit < config.max_connections:
        tell(
            f"at most {limit:,} connections: max_connections = {config.max_connections:,} is more "
            "than the limit of open files allows (ulimit -Hn)"
        )
    with listen(config) as listening:
        host, port = listening.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        say(f"serving {title} on http://{host}:{port}", flush=True)
        connections = Connections(limit, config.header_seconds, config.read_seconds)
        settings = uvicorn.Config(
            app,
            loop="asyncio",  # whose failures to accept `AcceptErrorHandler` knows
            access_log=False,
            log_level="warning",
            server_header=False,
            http=cast(Any, connections.make),  # a factory of protocols, as uvicorn calls it
            ws="none",
            backlog=BACKLOG,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=config.drain_seconds,
        )
        try:
            uvicorn.Server(settings).run(sockets=[listening])
        except KeyboardInterrupt:
            # The end of the interpreter takes seconds, and may crash while a thread is in the
            # model. SIGTERM, which uvicorn raises again, ends the process at once, too.
            tell("interrupted")
            os._exit(130)


def _log_requests(*, quiet: bool) -> None:
    """Log a line for each request, unless quiet, and tracebacks of failures."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("maskwright.access", "maskwright.serving"):
        log = logging.getLogger(name)
        log.setLevel(logging.WARNING if quiet else logging.INFO)
        log.addHandler(handler)
        log.propagate = False
