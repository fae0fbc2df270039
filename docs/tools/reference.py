"""Write docs/configuration.md (every field, and the recipes that set it) and docs/api.md.

python -m docs.tools reference
"""

import argparse
import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

from benchmarks.common import ROOT
from docs.tools import api_page
from maskwright.config import FieldInfo, describe_type, fields_of
from maskwright.finetuning.config import FinetuneConfig
from maskwright.preparation.config import PrepareConfig
from maskwright.recipes import list_recipes
from maskwright.runs.config import PretrainConfig

PAGE = ROOT / "docs" / "configuration.md"
_OF_OTHERS = ("-style", "bert", "shakespeare", "wiki-sentences")
_HEAD = """# Configuration

Look up a setting: its default, or its type if there is none, its meaning, and the recipes with
another value. `python -m docs.tools reference` writes this page.
"""
_PRETRAIN = """
## `maskwright pretrain`

Give a setting as a flag (`--train.max_minutes 30`), in YAML (`--config my.yaml`), or in Python
(`pretrain(…, train={"max_minutes": 30})`). Flags override the file, which overrides the recipe
(`--recipe NAME`; default: `auto`), which overrides the defaults below. `--print-config` shows what
was chosen, `provenance.json` where each value is from.

- Prepared data and the model of `init_from` or `teacher` fix some values. Another value is an
  error; `none` leaves it to them.
- A budget (`train.max_…`) replaces all budgets of a recipe, and `train.batch_tokens` its schedule.
  `data.max_seq_length` replaces a schedule that ends at another length, and a size of the model
  replaces `model.sizes`.
- With `model.sizes`, as in `auto`, the budget chooses size and learning rates.

The [files](../maskwright/recipes/) of recipes after published systems say what those set.
"""
_OTHERS = {
    PrepareConfig: ("prepare", "the sections `corpus`, `select` and `tokenizer`"),
    FinetuneConfig: ("finetune", "the section `distill`"),
}
_SERVE = """
## `maskwright serve`

Its flags are its [limits](serve.md#limits).
"""


def write_page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, _PRETRAIN]
    recipes = {
        recipe.name: recipe.values
        for recipe in list_recipes()
        if not recipe.name.endswith(_OF_OTHERS)
    }
    fields = list(fields_of(PretrainConfig))
    sections = [field.name.rpartition(".")[0] for field in fields]
    for section in dict.fromkeys(sections):
        parts.append(f"\n### {section}\n" if section else "")
        parts.append("\n| field | default | meaning | recipes |\n|---|---|---|---|\n")
        for field in (f for f, its in zip(fields, sections, strict=True) if its == section):
            parts.append(_row(field, _list_other_values(field, recipes)))
    for config, (command, shared) in _OTHERS.items():
        parts.append(f"\n## `maskwright {command}`\n\nFlags beside {shared}.\n")
        parts.append("\n| flag | default | meaning |\n|---|---|---|\n")
        parts += [_row(field) for field in fields_of(config) if field not in fields]
    return "".join([*parts, _SERVE])


def _find(values: Any, name: str) -> Any:
    """Return the value of a dotted name in nested values, or None."""
    return reduce(lambda inner, key: (inner or {}).get(key), name.split("."), values)


def _list_other_values(field: FieldInfo, recipes: Mapping[str, Any]) -> str:
    """Return the values that recipes give a field instead of its default, each with its recipes."""
    chosen: dict[str, list[str]] = {}
    for name, recipe in recipes.items():
        value = _find(recipe, field.name)
        if value is not None and value != field.default:
            chosen.setdefault(_show(value), []).append(name)
    return "<br>".join(f"{value}: {', '.join(names)}" for value, names in chosen.items())


def _row(field: FieldInfo, *more: str) -> str:
    cells = [f"`{field.name}`", _show_default(field), field.help, *more]
    return f"| {' | '.join(_escape(cell) for cell in cells)} |\n"


def _show_default(field: FieldInfo) -> str:
    """Return the default, among its choices if there are some; without one, the type."""
    kind = describe_type(field.annotation).removesuffix(" or none").replace("list of str", "list")
    if field.default is None or field.default == ():
        return kind
    shown = _show(field.default)
    others = [choice for choice in kind.split("|") if choice != field.default]
    return "|".join([shown, *others]) if "|" in kind else shown


def _show(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def main(arguments: argparse.Namespace) -> None:
    for page, text in ((PAGE, write_page()), (api_page.PAGE, api_page.write_api_page())):
        page.write_text(text, encoding="utf-8")
        print(f"written to {page}")
