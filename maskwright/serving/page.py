"""The playground: one page without anything from elsewhere, and the policy that keeps it so."""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files

from maskwright.serving.answers import Answerer, FillAnswerer
from maskwright.serving.reading import Reader

_INLINE = {
    "script-src": re.compile(r"<script>(.*?)</script>", re.DOTALL),
    "style-src": re.compile(r"<style>(.*?)</style>", re.DOTALL),
}
_PLACE = "{{facts}}"


class Page:
    """The page of one model.

    Attributes:
        html: the whole page.
        policy: a Content-Security-Policy under which only the page's own script and style run,
            and only this server is asked anything.
    """

    def __init__(self, name: str, answerer: Answerer, reader: Reader, *, needs_token: bool) -> None:
        fills = isinstance(answerer, FillAnswerer)
        facts = {
            "model": name,
            "task": answerer.task,
            "mask": answerer.fill.tokenizer.mask_token if fills else None,
            "scores": reader.can_score,
            "needsToken": needs_token,
        }
        raw = files("maskwright.serving").joinpath("playground.html").read_text(encoding="utf-8")
        self.html = raw.replace(_PLACE, html.escape(json.dumps(facts)))
        sources = {name: " ".join(_hash_all(found, raw)) for name, found in _INLINE.items()}
        self.policy = "; ".join(
            (
                "default-src 'none'",
                *(f"{directive} {hashes}" for directive, hashes in sources.items()),
                "connect-src 'self'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            )
        )


def _hash_all(pattern: re.Pattern[str], page: str) -> list[str]:
    digests = (hashlib.sha256(text.encode()).digest() for text in pattern.findall(page))
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
