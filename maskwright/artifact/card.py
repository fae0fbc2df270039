"""README.md of a model folder: the model card, Markdown below the hub's YAML front matter."""

from typing import Any

import yaml

from maskwright.artifact.native.family import Family
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_parameters

_FENCE = "---\n"
_FORMAT = "\n## Format\n"
_NATIVE = """
The weights are in the names of `{architecture}`, so transformers loads the folder as it is:

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```
"""
_OWN = """
The weights are in maskwright's own names (`from maskwright import load_model`), because no class
of transformers computes this architecture: {reason}.
"""


def write_card(text: str | None, config: EncoderConfig, family: Family, reason: str) -> str:
    """The card: `text` (or a heading), what the architecture is, and how to load it."""
    native = not reason
    metadata = {
        "library_name": "transformers" if native else "maskwright",
        "pipeline_tag": "fill-mask",
        "tags": ["maskwright", "masked-language-model"],
    }
    body = (text or "# A masked language model").rstrip() + "\n"
    facts = (
        "\n## Architecture\n\n"
        f"{config.num_hidden_layers} layers of width {config.hidden_size} with "
        f"{config.num_attention_heads} heads, {count_parameters(config).total:,} parameters, "
        f"vocabulary of {config.vocab_size:,}, at most {config.max_position_embeddings} tokens.\n"
    )
    ending = (
        _NATIVE.format(architecture=family.architecture) if native else _OWN.format(reason=reason)
    )
    return change_card(body + facts, metadata, ending)


def change_card(card: str, metadata: dict[str, Any], ending: str | None = None) -> str:
    """The card with other metadata, and another section on its format.

    Args:
        metadata: put over what the front matter says.
        ending: Markdown for the section; None leaves it as it is.

    Raises:
        ValueError: the front matter is no YAML mapping.
    """
    old, body = split_card(card)
    if ending is not None:
        body = body.partition(_FORMAT)[0].rstrip() + "\n" + _FORMAT + ending
    front = yaml.safe_dump({**old, **metadata}, sort_keys=False, allow_unicode=True)
    return f"{_FENCE}{front}{_FENCE}\n{body.lstrip()}"


def split_card(card: str) -> tuple[dict[str, Any], str]:
    """Metadata and Markdown of a card; a card without front matter has no metadata.

    Raises:
        ValueError: the front matter is no YAML mapping.
    """
    card = card.replace("\r\n", "\n")
    if not card.startswith(_FENCE):
        return {}, card
    front, fence, body = card.removeprefix(_FENCE).partition(f"\n{_FENCE}")
    try:
        metadata = yaml.safe_load(front)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"its front matter is no YAML: {' '.join(str(error).split())}") from None
    if not fence or not isinstance(metadata, dict):
        raise ValueError("its front matter holds no fields and values, or does not end")
    return metadata, body
