"""``maskwright serve``: open a model folder, and serve it with uvicorn until a signal."""

import asyncio
import logging
import math
import os
import re
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from maskwright.config import from_mapping
from maskwright.console import say, tell
from maskwright.errors import InputError
from maskwright.extras import import_extra
from maskwright.runs.find_model import find_model_folder
from maskwright.serving.config import ServeConfig

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from maskwright.serving.pipelines import Pipeline

TOKEN_VARIABLE = "MASKWRIGHT_TOKEN"


def serve(
    folder: str | Path,
    *,
    name: str | None = None,
    device: str | None = None,
    quiet: bool = False,
    allowed_host: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Serve a model over HTTP until Ctrl-C or SIGTERM::

        serve("runs/mine", port=8000)

    A notebook already runs an event loop: serve in a thread there, which ends with the process::

        threading.Thread(target=serve, args=["runs/mine"], daemon=True).start()

    With MASKWRIGHT_TOKEN in the environment, requests must have it as ``Authorization: Bearer``.

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        name: the name of the model; default: that of the folder.
        device: where to compute, such as ``cpu`` or ``cuda``; default: a GPU if there is one.
        quiet: log no line for each request.
        allowed_host: names besides localhost that requests without a token may use for the server.
        settings: ``host``, ``port``, and the limits: see ``maskwright serve --help``.

    Raises:
        MaskwrightError: the model or a setting is wrong, or an event loop runs in this thread.
        KeyboardInterrupt: Ctrl-C, after open requests were answered.
    """
    _check_event_loop()
    config, token = from_mapping(ServeConfig, settings), _read_token()
    find_model_folder(str(folder))  # raises before anything is loaded
    for package in ("fastapi", "fastapi_swagger", "uvicorn"):
        import_extra(package, "serve", "maskwright serve")
    from maskwright.serving.app import build_app
    from maskwright.serving.pipelines import open_pipeline

    def reopen() -> "Pipeline[Any]":
        # A link may point elsewhere at any time: both weights and their hash are of one folder.
        return open_pipeline(find_model_folder(str(folder)).resolve(), device)

    name = name or name_model(Path(folder).resolve())
    if not name or set(name) & set("{}/"):
        raise InputError(f"--name = {name!r} must not be empty or contain {{, }} or /.")
    with _holding_signal():
        pipeline = reopen()
        app = build_app(name, pipeline, config, token, allowed_host, reopen)
        _log_to_stderr(quiet=quiet)
        _run(app, config, f"{name} ({pipeline.title})", has_token=token is not None)


@contextmanager
def _holding_signal() -> Generator[None]:
    """Keep SIGUSR1, which would end the process, until the server is ready to receive it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def name_model(folder: Path) -> str:
    """Return the name of the run for its model folder, else that of the folder."""
    return (folder.name == "model" and folder.parent.name) or folder.name


def _check_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InputError(
        "serve cannot run in a thread with a running event loop, such as a notebook's. Use another "
        "thread: threading.Thread(target=maskwright.serve, args=[folder], daemon=True).start()"
    )


def _read_token() -> str | None:
    token = os.environ.get(TOKEN_VARIABLE)
    if token is not None and not re.fullmatch("[!-~]+", token):  # a header holds no line end
        rule = "must have letters, digits and punctuation of ASCII only, no blank or line end"
        raise InputError(f"{TOKEN_VARIABLE} {rule}. Set it to a token, or unset it.")
    return token


def _log_to_stderr(*, quiet: bool) -> None:
    """Log failures and, unless quiet, every request on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("maskwright.access", "maskwright.serving"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.WARNING if quiet else logging.INFO)


def _run(app: "ASGIApp", config: ServeConfig, title: str, *, has_token: bool) -> None:
    import uvicorn

    from maskwright.serving.guard import (
        BACKLOG,
        Connection,
        allow_connections,
        is_loopback,
        listen,
    )

    if not has_token and not is_loopback(config.host):
        tell(
            f"warning: --host {config.host} without {TOKEN_VARIABLE}: everybody who can reach this "
            f"machine can use the model. Set {TOKEN_VARIABLE}, or listen on 127.0.0.1."
        )
    limit = allow_connections(config.max_connections)
    if limit < config.max_connections:
        tell(
            f"at most {limit:,} connections: max_connections = {config.max_connections:,} needs a "
            "higher limit of open files (ulimit -Hn)"
        )
    with listen(config.host, config.port) as listening:
        host, port = listening.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        say(f"serving {title} on http://{host}:{port}", flush=True)
        settings = uvicorn.Config(
            cast(Any, app),
            loop="asyncio",  # `OTHER_FILES` follows from it
            access_log=False,
            log_level="warning",
            server_header=False,
            http=cast(Any, partial(Connection, config, limit, {})),  # uvicorn only calls it
            ws="none",
            backlog=BACKLOG,
            timeout_keep_alive=math.ceil(config.header_seconds) + 1,  # after `Connection` does
            timeout_graceful_shutdown=config.drain_seconds,
        )
        uvicorn.Server(settings).run(sockets=[listening])
