"""A hub of our own on this machine: the few answers that `huggingface_hub` asks of the real one."""

import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves each folder in `models` under its name; remembers what was fetched.

    `refused` names models with the reason that the real hub gives in a header.
    """

    def __init__(self) -> None:
        self.models: dict[str, Path] = {}
        self.refused: dict[str, tuple[int, str]] = {}
        self.fetched: list[str] = []

    @contextmanager
    def serving(self) -> Generator[str]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self, with_body=True)

            def do_HEAD(self) -> None:
                hub.answer(self, with_body=False)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, request: BaseHTTPRequestHandler, with_body: bool) -> None:
        parts = unquote(urlsplit(request.path).path).strip("/").split("/")
        in_api = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if in_api else parts[:2])
        rest = parts[4:] if in_api else parts[2:]
        if name in self.refused:
            status, reason = self.refused[name]
            return _send(request, status, {"X-Error-Code": reason}, b"{}", with_body)
        if name not in self.models:
            return _send(request, 404, {"X-Error-Code": "RepoNotFound"}, b"{}", with_body)
        if rest[1:2] not in (["main"], [COMMIT]):
            return _send(request, 404, {"X-Error-Code": "RevisionNotFound"}, b"{}", with_body)
        if in_api:
            return _send(request, 200, {}, self._describe(name, rest[0]), with_body)
        content = (self.models[name] / "/".join(rest[2:])).read_bytes()
        if with_body:
            self.fetched.append("/".join(rest[2:]))
        etag = hashlib.sha1(content).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}
        return _send(request, 200, headers, content, with_body)

    def _describe(self, name: str, what: str) -> bytes:
        folder = self.models[name]
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if what == "revision":
            siblings = [{"rfilename": path.relative_to(folder).as_posix()} for path in files]
            return json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode()
        tree = [
            {
                "type": "file",
                "path": path.relative_to(folder).as_posix(),
                "size": path.stat().st_size,
                "oid": hashlib.sha1(path.read_bytes()).hexdigest(),
            }
            for path in files
        ]
        return json.dumps(tree).encode()


def write_modules(folder: Path, pooling: object, *others: str) -> None:
    """Make a model folder one of sentence-transformers, with this configuration of its pooling."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **dict.fromkeys(others, "2_Other")}
    modules = [{"type": f"sentence_transformers.models.{one}", "path": kinds[one]} for one in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    headers: dict[str, str],
    body: bytes,
    with_body: bool,
) -> None:
    request.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        request.send_header(name, value)
    request.end_headers()
    if with_body:
        request.wfile.write(body)
