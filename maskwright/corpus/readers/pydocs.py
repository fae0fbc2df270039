"""Reader of the built-in corpus: the English documentation in the Python environment.

About 8 MB of docstrings of the standard library, numpy and torch, and the language reference in
`pydoc_data.topics`, read without importing any of the modules. It needs no download, so you can try
maskwright at once, and it differs slightly between versions.
"""

import ast
import importlib
import importlib.util
import inspect
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

_PACKAGES = ("numpy", "torch")
_SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "testing", "idle_test", "site-packages", "dist-packages", "pydoc_data")
)
# A docstring of this length is a document; shorter ones are gathered by module.
_LONG_CHARACTERS = 1_000

# Everything up to the next triple-quoted string (or the end), then that string. Both parts match
# any text without backtracking, so every file takes linear time.
_SHORT = r"""(?!"{3}|'{3})(?:"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'|["'])"""
_CODE = rf"""[^"'\#]*(?:(?:\#[^\n]*|{_SHORT})[^"'\#]*)*"""
_TRIPLE = (
    r'''"""[^"\\]*(?:(?:\\.?|"(?!""))[^"\\]*)*(?:"""|\Z)|'''
    r"""'{3}[^'\\]*(?:(?:\\.?|'(?!''))[^'\\]*)*(?:'{3}|\Z)"""
)
_NEXT_TRIPLE = re.compile(f"({_CODE})({_TRIPLE}|\\Z)", re.DOTALL)
# The end of code that such a string documents: a class, a function, or, for functions of C, a call
# by which numpy and torch document them; comments and the prefix of the string may follow.
_DOCUMENTED = re.compile(
    r"(?:\b(?:class|def)\b.*:|add_?(?:newdoc|docstr)\w*\([^()]*(?:\([^()]*)?,)"
    r"[ \t]*(?:\#[^\n]*)?(?:\n[ \t]*(?:\#[^\n]*)?)+[rRuU]?\Z",
    re.DOTALL,
)
_BEGINNING = re.compile(r"(?:\s*(?:\#[^\n]*\n)?)*[rRuU]?\Z")
_TAIL_CHARACTERS = 4_000  # of the code before a string: the longest signatures

_LITERAL = re.compile(r"``([^`]+)``")
# :func:`torch.abs`, :class:`~torch.Tensor`, :ref:`the notes <notes>`, `A title <link>`_
# The name of a role is bounded, because a line of colons would take quadratic time.
_ROLE_OR_LINK = re.compile(r"(?::[a-zA-Z:+-]{1,60}:)?`~?([^`<>]+)(<[^`<>]*>)?`(?:__?\b)?")
_DIRECTIVE = re.compile(r"\.\. ([\w:-]+)::\s*(.*)")
_PROSE_DIRECTIVE = re.compile(
    r"note|warning|seealso|version\w+|deprecated|important|caution|tip|hint|attention|danger"
)
_RULER = re.compile(r"[-=~^*#_+|. ]{3,}")
_PLACEHOLDER = re.compile(r"\{\w+\}")
# A bullet, a number, or the "name (type):" of a parameter.
_ITEM = re.compile(r"(?:[-*+•]|\(?\w{1,2}[.)])\s|[\w*, ]{1,40}(?:\([^()]*\))?:(?:\s|$)")
_WORD = re.compile(
    r"(?<!\S)[\"'(\[]*+[A-Za-z]++(?:['/-][A-Za-z]++)*[\"')\]]*+[.,;:!?]*+[\"')]*+(?!\S)"
)
_MIN_WORDS = 3
_MIN_WORD_SHARE = 0.6  # prose has more than 0.7, code and formulas less than 0.5
_WRAPPED_CHARACTERS = 50  # the next line may continue a line of this length


def read_pydocs() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each document, in an order that depends only on the files.

    A document is a language topic, a long docstring, or the other docstrings of one module.
    """
    yield from _read_topics()
    yield from _read_tree(Path(sysconfig.get_path("stdlib")), "")
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)  # imports nothing, as the package is top-level
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from _read_tree(Path(folder), f"{package}.")


def _read_topics() -> Iterator[tuple[str, str]]:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:  # some distributions leave it out
        return
    for name in sorted(topics):
        if prose := extract_prose(topics[name]):
            yield f"topics.{name}", prose


def _read_tree(folder: Path, prefix: str) -> Iterator[tuple[str, str]]:
    for path in _find_modules(folder):
        module = prefix + ".".join(path.relative_to(folder).with_suffix("").parts)
        yield from _read_module(path, module.removesuffix(".__init__"))


def _find_modules(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # no standard library on disk, as in a frozen program
        return
    for entry in entries:
        if entry.suffix == ".py":
            yield entry
        elif entry.name not in _SKIPPED_FOLDERS and entry.is_dir():
            yield from _find_modules(entry)


def _read_module(path: Path, module: str) -> Iterator[tuple[str, str]]:
    try:
        source = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    short: list[str] = []
    for number, docstring in enumerate(find_docstrings(source), start=1):
        prose = extract_prose(docstring)
        if len(prose) >= _LONG_CHARACTERS:
            yield f"{module}:{number}", prose
        elif prose:
            short.append(prose)
    if short:
        yield f"{module} (members)", "\n".join(short)


def find_docstrings(source: str) -> Iterator[str]:
    """Yield the docstring of each documented object, in order.

    By a regular expression: `ast.parse` takes four times as long, which doubles the time to
    prepare.
    """
    for match in _NEXT_TRIPLE.finditer(source):
        before = match[1]
        documents = _BEGINNING.match(before) if not match.start() else None
        if match[2] and (documents or _DOCUMENTED.search(before[-_TAIL_CHARACTERS:])):
            prefix = before[-1:] if before[-1:] in ("r", "R", "u", "U") else ""
            with suppress(SyntaxError, ValueError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # other packages' docstrings have invalid escapes
                yield inspect.cleandoc(ast.literal_eval(prefix + match[2]))


def extract_prose(text: str) -> str:
    """Return the English paragraphs of a documentation text, one per line; "" if there are none.

    Doctests, literal blocks, formulas, tables, rulers and reStructuredText markup are dropped;
    sentences, headings and descriptions of parameters stay.
    """
    blocks = groupby(_drop_code(text.expandtabs().split("\n")), bool)
    paragraphs = ("\n".join(_unwrap(lines)) for has_text, lines in blocks if has_text)
    return "\n".join(paragraph for paragraph in paragraphs if is_prose(paragraph))


def is_prose(text: str) -> bool:
    """Return True if most of the text is ordinary words."""
    num_words = len(_WORD.findall(text))
    return num_words >= max(_MIN_WORDS, _MIN_WORD_SHARE * len(text.split()))


def _drop_code(lines: Iterable[str]) -> Iterator[str]:
    """Drop doctests with their output, literal blocks, and directives other than prose."""
    literal_indent: int | None = None  # lines with a deeper indent are literal
    in_doctest = False
    for line in lines:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if not stripped:
            in_doctest = False
            yield ""
            continue
        if literal_indent is not None and indent > literal_indent:
            continue
        literal_indent = None
        if in_doctest or stripped.startswith(">>>"):
            in_doctest = True
        elif directive := _DIRECTIVE.match(stripped):
            if not _PROSE_DIRECTIVE.fullmatch(directive[1].lower()):
                literal_indent = indent
            elif directive[2]:
                yield " " * indent + directive[2]
        elif stripped.endswith("::"):
            literal_indent = indent
            yield line.rstrip()[:-1]
        elif not _RULER.fullmatch(stripped) and not _PLACEHOLDER.fullmatch(stripped):
            yield line


def _unwrap(block: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a block without markup; a wrapped sentence becomes one line."""
    current, current_indent, last_length = "", 0, 0
    for line in block:
        indent = len(line) - len(line.lstrip())
        text = " ".join(_strip_markup(line).split())
        in_sentence = last_length >= _WRAPPED_CHARACTERS and not _ITEM.match(text)
        deep_enough = indent > current_indent if _ITEM.match(current) else indent >= current_indent
        if in_sentence and deep_enough:
            current += " " + text
        else:
            if current:
                yield current
            current, current_indent = text, indent
        last_length = len(line)
    if current:
        yield current


def _strip_markup(line: str) -> str:
    if "`" in line:
        line = _LITERAL.sub(r"\1", line)
        line = _ROLE_OR_LINK.sub(lambda title: title[1].rstrip() if title[2] else title[1], line)
    return line.replace("**", "")
