"""README.md of a model folder: the model card."""

from maskwright.artifact.native.family import Family
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_parameters

_HEADER = """\
---
library_name: {library}
pipeline_tag: fill-mask
tags:
- maskwright
- masked-language-model
---

"""
_NATIVE = """
## Format

The weights are in the names of `{architecture}`, so transformers loads the folder as it is:

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```
"""
_OWN = """
## Format

The weights are in maskwright's own names (`from maskwright import load_model`), because no class
of transformers computes this architecture: {reason}.
"""


def write_card(text: str | None, config: EncoderConfig, family: Family, reason: str) -> str:
    """The card: `text` (or a heading), what the architecture is, and how to load it."""
    native = not reason
    header = _HEADER.format(library="transformers" if native else "maskwright")
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
    return header + body + facts + ending
