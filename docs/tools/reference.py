"""Write docs/configuration.md (every field, and the recipes that set it) and docs/api.md.

python -m docs.tools reference
"""

import argparse
import json
from functools import reduce
from typing import Any

from benchmarks.common import ROOT
from docs.tools import api_page
from maskwright.config import FieldInfo, describe_type, fields_of
from maskwright.finetuning.config import FinetuneConfig
from maskwright.preparation.config import PrepareConfig
from maskwright.recipes import list_recipes
from maskwright.runs.config import PretrainConfig
from maskwright.serving.config import ServeConfig

PAGE = ROOT / "docs" / "configuration.md"
_HEAD = """# Configuration

Look up a setting here: its type, its default, what it does, and the values that recipes give it.
`python -m docs.tools reference` writes this page from the code.
"""
_PRETRAIN = """
## `maskwright pretrain`

Give a field as a flag (`--train.max_minutes 30`), in a YAML file (`--config my.yaml`), or in Python
(`pretrain(…, train={"max_minutes": 30})`). Flags override the file, which overrides the recipe
(`--recipe NAME`, default: `auto`), which overrides the defaults below. `maskwright prepare` reads
the sections `corpus`, `select` and `tokenizer`.

A value that you give stays, also one that equals that of the recipe. Prepared data and the model of
`init_from` or `teacher` fix some values; if you give another one, that is an error. `none` leaves a
value to them. Fields that belong together replace each other, of a recipe or a file below:

- one budget (`train.max_…`) replaces all budgets;
- `train.batch_tokens` and `train.batch_tokens_schedule`;
- `data.max_seq_length` replaces a `train.seq_length_schedule` that ends at another length;
- `model.sizes`, and a size (`hidden_size`, `num_hidden_layers`, `num_attention_heads`,
  `intermediate_size`).

A recipe with `model.sizes`, such as `auto`, leaves the size of the model to the budget, and with it
what suits its width (from 384 on, the values of `wide`). `model.sizes` beside any other recipe
changes nothing but the size. `--print-config` shows what the budget will choose as comments;
`provenance.json` has the origin of each value: recipe, file, flag (also in Python), data, model,
budget.
"""
_OTHERS = {
    PrepareConfig: "\n## `maskwright prepare`\n\nFlags, beside those of the sections above.\n",
    FinetuneConfig: "\n## `maskwright finetune`\n\nFlags, or parameters of `finetune` in Python.\n",
    ServeConfig: "\n## `maskwright serve`\n\nFlags, or parameters of `serve` in Python.\n",
}


def write_page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, _PRETRAIN]
    recipes = {recipe.name: recipe.values for recipe in list_recipes()}
    fields = list(fields_of(PretrainConfig))
    sections = [field.name.rpartition(".")[0] for field in fields]
    for section in dict.fromkeys(sections):
        parts.append(f"\n### {section}\n" if section else "")
        parts.append("\n| field | type | default | meaning | recipes |\n|---|---|---|---|---|\n")
        for field in (f for f, its in zip(fields, sections, strict=True) if its == section):
            values = ((name, _find(recipe, field.name)) for name, recipe in recipes.items())
            chosen = [f"{name}: {_show(value)}" for name, value in values if value is not None]
            parts.append(_row(field, "<br>".join(chosen)))
    for config, title in _OTHERS.items():
        parts.append(f"{title}\n| flag | type | default | meaning |\n|---|---|---|---|\n")
        shared = fields if config is PrepareConfig else ()
        parts += [_row(field) for field in fields_of(config) if field not in shared]
    return "".join(parts)


def _find(values: Any, name: str) -> Any:
    """Return the value of a dotted name in nested values, or None."""
    return reduce(lambda inner, key: (inner or {}).get(key), name.split("."), values)


def _row(field: FieldInfo, *more: str) -> str:
    cells = [f"`{field.name}`", describe_type(field.annotation), _show(field.default)]
    cells += [field.help, *more]
    return f"| {' | '.join(_escape(cell) for cell in cells)} |\n"


def _show(value: Any) -> str:
    if value is None or value == ():
        return "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def main(arguments: argparse.Namespace) -> None:
    for page, text in ((PAGE, write_page()), (api_page.PAGE, api_page.write_api_page())):
        page.write_text(text, encoding="utf-8")
        print(f"written to {page}")
