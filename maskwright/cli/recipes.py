"""``maskwright recipes``: what there is to run, what it needs and what it gives."""

from collections.abc import Sequence

from rich.markup import escape

from maskwright.cli.flags import Parser
from maskwright.console import Console
from maskwright.recipes import list_recipes


def main(argv: Sequence[str]) -> int:
    Parser("recipes", "List the recipes that come with maskwright.").parse(argv)
    console = Console(highlight=False)
    for recipe in list_recipes():
        console.print(f"[bold]{recipe.name}[/bold]  {escape(recipe.title)}")
        for key, value in recipe.facts.items():
            console.print(f"    {key + ':':<10} {escape(value)}", soft_wrap=True)
        console.print()
    console.print("auto, the default, chooses the size of the model by the budget.")
    console.print("Every field of a recipe is a flag: --train.max_minutes 30. See them with")
    console.print("    maskwright pretrain --recipe NAME --print-config")
    return 0
