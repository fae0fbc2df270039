"""Run one benchmark: ``python -m benchmarks NAME``; without a name, list all of them.

A benchmark is a module of this folder with a function ``main(arguments)`` and, if it has arguments,
``add_arguments(parser)``. The list shows the first lines of the docstrings; only the module of the
named benchmark is imported.
"""

import argparse
import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path


def list_programs(package: str = "benchmarks") -> dict[str, str]:
    """Return the first docstring line of each program of a package by its name."""
    programs: dict[str, str] = {}
    folder = Path(importlib.import_module(package).__path__[0])
    for path in sorted(folder.glob("[!_]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            summary = (ast.get_docstring(tree) or "").partition("\n")[0]
            programs[path.stem.replace("_", "-")] = summary
    return programs


def main(arguments: Sequence[str], package: str = "benchmarks") -> None:
    """Run the program that the first argument names."""
    programs = list_programs(package)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: python -m {package} NAME [--help | ARGUMENTS]\n")
        print("\n".join(f"  {name:<22}{summary}" for name, summary in programs.items()))
        return
    name, *rest = arguments
    if name not in programs:
        print(
            f"{name} is no program of {package}. Choose one of {', '.join(programs)}.",
            file=sys.stderr,
        )
        sys.exit(2)
    module = importlib.import_module(f"{package}.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        f"python -m {package} {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    module.main(parser.parse_args(rest))


if __name__ == "__main__":
    main(sys.argv[1:])
