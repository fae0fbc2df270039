"""A server in this process."""

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from maskwright.serving.app import build_app
from maskwright.serving.config import ServeConfig
from maskwright.serving.pipelines import open_pipeline

SMALL = ServeConfig(
    max_texts=4,
    max_body_bytes=2000,
    max_top_k=20,
    max_candidates=50,
    max_filled_characters=3000,
    max_tokens=600,
)


def serve(folder: Path, config: ServeConfig = SMALL, token: str | None = None) -> TestClient:
    pipeline = open_pipeline(folder, "cpu")
    app: Any = build_app("small", pipeline, config, token)
    return TestClient(app, base_url="http://localhost")
