"""README.md of a model folder: the model card, Markdown below the hub's YAML front matter."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import yaml

from maskwright.config import parse_yaml
from maskwright.errors import ConfigError
from maskwright.files import JsonObject
from maskwright.formatting import write_code
from maskwright.model.config import EncoderConfig, Level
from maskwright.model.electra import Discriminator
from maskwright.model.flops import count_parameters
from maskwright.model.masked_lm import BareEncoder, MaskedLanguageModel
from maskwright.model_folder.native.bert_like import DISCRIMINATORS
from maskwright.model_folder.native.family import Family

_FENCE = "---\n"
# The path in the example code of a card; publishing replaces it by the name on the hub.
PLACEHOLDER = "path/to/this/folder"
SIMILARITY = "sentence-similarity"  # the task of the hub for vectors of texts
_EXAMPLE_KEYS = ("text", "text_pair")
# The task of the hub for each level, and the heading of a card.
_PURPOSES: dict[Level, tuple[str, str]] = {
    "text": ("text-classification", "# A classifier of texts"),
    "token": ("token-classification", "# A classifier of tokens"),
    "span": ("question-answering", "# A model that answers questions by parts of a text"),
}
_USE = re.compile(r"\n## Use\n.*?(?=\n## |\Z)", re.DOTALL)
_SECTION = re.compile(r"^## ", re.MULTILINE)
_USE_NATIVE = """
The weights have the tensor names of `{architecture}`. transformers {since} or newer loads the
folder directly:
"""
_EXAMPLE = """
```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```
"""
_NATIVE = _USE_NATIVE + _EXAMPLE
_CUSTOM = """
The weights have the tensor names of `{architecture}`, whose code is not in transformers.
`trust_remote_code=True` downloads it from `{code}` on the hub and runs it:
""" + _EXAMPLE.replace('folder")', 'folder", trust_remote_code=True)', 1)
_PAIRS = """
`AutoModelForMaskedLM` warns about four unused tensors. They are the head that predicts whether the
second of two texts follows the first; `AutoModelForPreTraining` also loads this head.
"""
_OWN = """
The weights have maskwright's own tensor names ({readers}), because no class of transformers
computes this architecture: {reason}.
"""

_LOAD = "`from maskwright import load_model`"
_EMBED = "`maskwright embed`, `from maskwright import Embedder`"
_NATIVE_DISCRIMINATOR = f"""{_NATIVE.replace("MaskedLM", "PreTraining")}
It returns a logit for every token, positive if the token was replaced. `AutoModel` loads the
encoder for fine-tuning; `maskwright embed` computes vectors.
"""
_ENCODER_USE = _NATIVE.replace("ForMaskedLM", "").replace("{architecture}", "DebertaV2Model")
_NATIVE_ENCODER = f"""{_ENCODER_USE}
This is the encoder, and the classes for fine-tuning load it too. transformers has no class with the
head that detects replaced tokens, and reports its tensors (`mask_predictions`) as unexpected.
"""

_NATIVE_CLASSIFIER = f"""{_USE_NATIVE}
```python
from transformers import pipeline

pipeline("{{task}}", "path/to/this/folder")("a text")
```
"""
_NATIVE_SPANS = _NATIVE.replace("MaskedLM", "QuestionAnswering")


class HubMetadata(TypedDict):
    """Front matter for the hub: the library that loads a model, and its task."""

    library_name: str
    pipeline_tag: str
    tags: list[str]


def write_card(text: str | None, config: EncoderConfig, family: Family, reason: str) -> str:
    """Return a card: `text` (or a heading), with use and architecture before its sections."""
    native, detects = not reason, family in DISCRIMINATORS.values()
    title = "# A discriminator of replaced tokens" if detects else "# A masked language model"
    has_head = any(name.startswith("head.") for name in family.tensors)
    kind = Discriminator if detects else MaskedLanguageModel if has_head else BareEncoder
    size = count_parameters(config, kind).total
    body = (text or title).rstrip() + "\n"
    facts = (
        "\n## Architecture\n\n"
        f"{config.num_hidden_layers} layers of width {config.hidden_size} with "
        f"{config.num_attention_heads} heads, {size:,} parameters, "
        f"vocabulary of {config.vocab_size:,}, at most {config.max_position_embeddings} tokens.\n"
    )
    published = _CUSTOM if family.code else _NATIVE
    if detects:
        has_head = family.architecture.endswith("ForPreTraining")
        published = _NATIVE_DISCRIMINATOR if has_head else _NATIVE_ENCODER
    ending = (published if native else _OWN).format(
        architecture=family.name_class(config),
        since=family.since(config),
        code=family.code,
        reason=reason,
        readers=_EMBED if detects else _LOAD,
    )
    ending += _PAIRS * (native and config.sentence_pair_head)
    return change_card(_insert_section(body, facts), describe_for_hub(native, detects), ending)


def write_classifier_card(
    text: str | None,
    config: EncoderConfig,
    level: Level,
    labels: Sequence[str],
    family: Family,
    reason: str,
) -> str:
    """Return the card of a classifier: `text` (or a heading), its labels, and how to load it."""
    body = (text or _PURPOSES[level][1]).rstrip() + "\n"
    body += f"\n## Labels\n\n{', '.join(map(write_code, labels))}\n"
    metadata = describe_labels(level, "maskwright" if reason else "transformers")
    native = _NATIVE_SPANS if level == "span" else _NATIVE_CLASSIFIER
    ending = (_OWN if reason else native).format(
        architecture=family.architecture,
        since=family.since(config),
        reason=reason,
        readers="`maskwright predict`",
        task=metadata["pipeline_tag"],
    )
    return change_card(body, metadata, ending)


def describe_labels(level: Level, library: str) -> HubMetadata:
    """Return a classifier's metadata for the hub; `library` loads the folder."""
    task = _PURPOSES[level][0]
    return {"library_name": library, "pipeline_tag": task, "tags": ["maskwright", task]}


def describe_for_hub(native: bool, detects: bool = False) -> HubMetadata:
    """Return a language model's metadata for the hub: the library that loads it, and its task."""
    task = "replaced-token-detection" if detects else "masked-language-model"
    return {
        "library_name": "transformers" if native else "maskwright",
        "pipeline_tag": "feature-extraction" if detects else "fill-mask",
        "tags": ["maskwright", task],
    }


def add_example(card: str, texts: Sequence[str]) -> str:
    """Return the card with an example in the metadata (``widget``), which the hub's page shows: one
    text, or the two of a pair. Raises as `split_card`.
    """
    return change_card(card, {"widget": [dict(zip(_EXAMPLE_KEYS, texts, strict=False))]})


def read_example(card: str) -> tuple[str, ...]:
    """Return the text or the two texts of the first example of a card, or an empty tuple; raises as
    `split_card`. The card may come from another task of the hub, whose entries have no text.
    """
    widget = split_card(card)[0].get("widget")
    first = widget[0] if isinstance(widget, list) and widget else None
    found = [first.get(key) for key in _EXAMPLE_KEYS] if isinstance(first, dict) else []
    texts = tuple(text for text in found if isinstance(text, str) and text.strip())
    return texts if texts[:1] == tuple(found[:1]) else ()


def change_card(card: str, metadata: Mapping[str, Any], ending: str | None = None) -> str:
    """Return the card with changed metadata, and with `ending` as the section "Use", before the
    others; None keeps the old section. Raises as `split_card`.
    """
    old, body = split_card(card)
    if ending is not None:
        body = _insert_section(_USE.sub("", body, count=1), f"\n## Use\n{ending}")
    front = yaml.safe_dump({**old, **metadata}, sort_keys=False, allow_unicode=True)
    return f"{_FENCE}{front}{_FENCE}\n{body.lstrip()}"


def _insert_section(body: str, section: str) -> str:
    """Return Markdown with `section` after the title and introduction."""
    first = _SECTION.search(body)
    end = first.start() if first else len(body)
    introduction, rest = body[:end].rstrip(), body[end:]
    return f"{introduction}\n{section}" + (f"\n{rest}" if rest else "")


def split_card(card: str) -> tuple[JsonObject, str]:
    """Return metadata and Markdown of a card; a card without front matter has no metadata.

    Raises:
        ValueError: the front matter is not a YAML mapping.
    """
    card = card.replace("\r\n", "\n")
    if not card.startswith(_FENCE):
        return {}, card
    front, fence, body = card.removeprefix(_FENCE).partition(f"\n{_FENCE}")
    if not fence:
        raise ValueError("its front matter has no closing ---")
    try:
        return parse_yaml(front, "front matter"), body
    except ConfigError as error:
        raise ValueError(f"its front matter {error.rule}") from None
