"""A hub of our own on this machine that takes uploads as the real one does, and keeps the bytes."""

import base64
import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class ReceivingHub:
    """Repositories by name, with whether they are private, and the commits that came.

    Attributes:
        refused: beginnings of paths, with the status that they are answered with.
        stored: names of files that are in every repository from the beginning.
        removed: names of files that a commit has removed.
        commits: (repository, branch, message, files) of each commit.
        tokens: what came in the header of each request.
    """

    repositories: dict[str, bool] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    branches: list[str] = field(default_factory=list)
    commits: list[tuple[str, str, str, dict[str, bytes]]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    large: dict[str, bytes] = field(default_factory=dict)
    address: str = ""

    @contextmanager
    def serving(self) -> Generator["ReceivingHub"]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self, b"")

            def do_POST(self) -> None:
                hub.answer(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def do_PUT(self) -> None:
                self.do_POST()

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        path = unquote(urlsplit(request.path).path)
        if path == "/api/agent-harnesses":  # where the library looks for news of its own
            return _send(request, 404, {})
        if not path.startswith("/storage/"):  # which takes uploads by address alone
            self.tokens.add(request.headers.get("Authorization", ""))
        refused = [status for start, status in self.refused.items() if path.startswith(start)]
        if refused:
            return _send(request, refused[0], {"error": "no, for a reason"})
        if path.startswith("/storage/"):
            self.large[path.removeprefix("/storage/")] = body
            return _send(request, 200, {})
        return _send(request, 200, self._reply(path, json_lines(body)))

    def _reply(self, path: str, sent: list[Any]) -> Any:
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            name = f"{sent[0]['organization']}/{sent[0]['name']}"
            self.repositories.setdefault(name, sent[0].get("visibility") == "private")
            return {"url": f"{self.address}/{name}"}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": [{"message": "the hub has something to remark"}]}
        if path.endswith(".git/info/lfs/objects/batch"):
            actions = [
                {**part, "actions": {"upload": {"href": f"{self.address}/storage/{part['oid']}"}}}
                for part in sent[0]["objects"]
            ]
            return {"transfer": "basic", "objects": actions}
        name, rest = "/".join(parts[2:4]), parts[4:]
        if not rest:
            return {"id": name, "sha": COMMIT, "private": self.repositories[name]}
        if rest[0] == "tree":
            return [{"type": "file", "path": name, "size": 1, "oid": "0"} for name in self.stored]
        if rest[0] == "branch":
            self.branches.append(rest[1])
            return {}
        if rest[0] == "preupload":
            return {"files": [_choose_mode(file) for file in sent[0]["files"]]}
        assert rest[0] == "commit"
        self.commits.append((name, rest[1], *self._read_commit(sent)))
        return {"commitUrl": f"{self.address}/{name}/commit/{COMMIT}", "commitOid": COMMIT}

    def _read_commit(self, lines: list[Any]) -> tuple[str, dict[str, bytes]]:
        [summary] = [line["value"]["summary"] for line in lines if line["key"] == "header"]
        files: dict[str, bytes] = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.large[value["oid"]]
                assert hashlib.sha256(files[value["path"]]).hexdigest() == value["oid"]
            elif line["key"] == "deletedFile":
                self.removed.append(value["path"])
            else:
                assert line["key"] == "header"
        return summary, files


def _choose_mode(file: dict[str, Any]) -> dict[str, Any]:
    large = file["path"].endswith(".safetensors")
    mode = "lfs" if large else "regular"
    return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}


def json_lines(body: bytes) -> list[Any]:
    try:
        return [json.loads(line) for line in body.splitlines() if line]
    except ValueError:
        return []


def _send(request: BaseHTTPRequestHandler, status: int, value: Any) -> None:
    body = json.dumps(value).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
