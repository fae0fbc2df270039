"""Documentation strings out of Python source text, without importing or executing it.

A full parse builds a tree of everything to keep one part in eight; one regular expression that
knows comments and string literals is several times as fast. Each literal found is evaluated by
`ast.literal_eval`, so that its escapes are Python's.
"""

import ast
import inspect
import re
import warnings
from collections.abc import Iterator

# Everything up to the next triple-quoted string (or the end), then that string. Both parts match
# somehow wherever they stand and at the first attempt, so a file takes linear time whatever is in
# it. Possessive groups would say so, but may loop forever in Python before 3.11.5 (gh-106052).
_SHORT = r"""(?!"{3}|'{3})(?:"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'|["'])"""
_CODE = rf"""[^"'\#]*(?:(?:\#[^\n]*|{_SHORT})[^"'\#]*)*"""
_TRIPLE = (
    r'''"""[^"\\]*(?:(?:\\.?|"(?!""))[^"\\]*)*(?:"""|\Z)|'''
    r"""'{3}[^'\\]*(?:(?:\\.?|'(?!''))[^'\\]*)*(?:'{3}|\Z)"""
)
_NEXT_TRIPLE = re.compile(f"({_CODE})({_TRIPLE}|\\Z)", re.DOTALL)

_DEFINITION = re.compile(r"\b(?:class|def)\s+(\w+)")
# torch and numpy document by the thousand, in this way, what is written in C.
_DOCUMENTING_CALL = re.compile(r"add_?(?:newdoc|docstr)\w*\(([^()]*(?:\([^()]*)?),$")
_DOTTED_NAME = re.compile(r"\w+(?:\.\w+)*")
_TAIL_CHARACTERS = 4_000  # of the code before a string: the longest signatures


def find_docstrings(source: str) -> Iterator[tuple[str, str]]:
    """The docstrings of a module in their order: (name, text).

    `name` is that of the class, function or documented object; "" for the module itself.
    """
    for match in _NEXT_TRIPLE.finditer(source):
        if not match[2]:
            continue
        before, prefix = match[1], ""
        if before[-1:] in ("r", "R", "u", "U"):
            before, prefix = before[:-1], before[-1]
        at_start = match.start() == 0
        name = _find_name(before if at_start else before[-_TAIL_CHARACTERS:], at_start)
        if name is None:
            continue
        if (text := _evaluate(prefix + match[2])) is not None:
            yield name, inspect.cleandoc(text)


def _evaluate(literal: str) -> str | None:
    try:
        with warnings.catch_warnings():  # a stray backslash in a docstring is not our user's
            warnings.simplefilter("ignore")
            return ast.literal_eval(literal)
    except (SyntaxError, ValueError):  # never closed, or a bad escape
        return None


def _find_name(before: str, at_start: bool) -> str | None:
    """What a string documents that stands after the code `before`; None if nothing."""
    code = _strip_comments(before, "" if at_start else ":,")
    if at_start and not code:
        return ""
    if "\n" not in before[len(code) :]:
        return None
    if code.endswith(":"):
        last = max(code.rfind("def "), code.rfind("class "))
        definition = _DEFINITION.match(code, last) if last >= 0 else None
        return definition[1] if definition else None
    if code.endswith(",") and (call := _DOCUMENTING_CALL.search(code)):
        names = _DOTTED_NAME.findall(call[1])
        return names[-1] if names else None
    return None


def _strip_comments(code: str, endings: str) -> str:
    """`code` without blanks and comments at its end, but no further than one of `endings`.

    A "#" may be part of a string: what ends as expected is not questioned.
    """
    code = code.rstrip()
    while code and code[-1] not in endings:
        comment = code.find("#", code.rfind("\n") + 1)
        if comment < 0:
            break
        code = code[:comment].rstrip()
    return code
