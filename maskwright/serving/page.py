"""The playground: one page without anything from elsewhere, and the policy that keeps it so."""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

from maskwright.finetuning.conll import OUTSIDE, marks_entities, split_tag
from maskwright.serving.answers import Answerer, FillAnswerer, LabelAnswerer, TagAnswerer
from maskwright.serving.reading import Reader

_INLINE = {
    "script-src": re.compile(r"<script>(.*?)</script>", re.DOTALL),
    "style-src": re.compile(r"<style>(.*?)</style>", re.DOTALL),
}
_PLACE = "{{facts}}"
_MAX_EXAMPLE = 2000  # characters: of a card that anybody may have written


class Page:
    """The page of one model.

    Attributes:
        html: the whole page.
        policy: a Content-Security-Policy under which only the page's own script and style run,
            and only this server is asked anything.
    """

    def __init__(self, name: str, answerer: Answerer, reader: Reader, *, needs_token: bool) -> None:
        facts = {
            "model": name,
            "task": answerer.task,
            "mask": None,
            "scores": reader.can_score,
            "needsToken": needs_token,
            **_describe(answerer),
            "example": _choose_example(answerer),
        }
        raw = files("maskwright.serving").joinpath("playground.html").read_text(encoding="utf-8")
        self.html = raw.replace(_PLACE, html.escape(json.dumps(facts)))
        sources = {name: " ".join(hash_inline(found, raw)) for name, found in _INLINE.items()}
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


def _describe(answerer: Answerer) -> dict[str, Any]:
    """Return what the page has to know about the model of its task.

    ``mask`` of a model that fills masks; ``numTexts`` of an input, None if the folder does not say
    it; ``strategy`` (of entities, or of words where every word has a tag) and ``kinds`` of tags.
    """
    if isinstance(answerer, FillAnswerer):
        return {"mask": answerer.fill.tokenizer.mask_token}
    labels = answerer.predict.loaded.labels
    if isinstance(answerer, LabelAnswerer):
        return {"numTexts": answerer.predict.loaded.num_texts}
    kinds = dict.fromkeys(split_tag(label)[1] for label in labels if label != OUTSIDE)
    return {"strategy": "simple" if marks_entities(labels) else "none", "kinds": list(kinds)}


def _choose_example(answerer: Answerer) -> list[str]:
    """Return the example of the model card, if the model can answer it."""
    texts = list(answerer.example)
    if sum(map(len, texts)) > _MAX_EXAMPLE:
        return []
    if isinstance(answerer, FillAnswerer):
        return texts[:1] if answerer.fill.tokenizer.mask_token in "".join(texts[:1]) else []
    if isinstance(answerer, TagAnswerer):
        return texts[:1]
    num_texts = answerer.predict.loaded.num_texts
    return texts if num_texts in (None, len(texts)) else []


def hash_inline(pattern: re.Pattern[str], page: str) -> list[str]:
    """Return the sources of a Content-Security-Policy that allow what `pattern` finds in a page."""
    digests = (hashlib.sha256(text.encode()).digest() for text in pattern.findall(page))
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
