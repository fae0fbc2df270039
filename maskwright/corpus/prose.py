"""Documentation markup to plain English: what a language model should read of a docstring.

Doctests, literal blocks, formulas, tables, rulers and reStructuredText markup go; the sentences,
headings and descriptions of parameters stay, one paragraph a line.
"""

import re
from collections.abc import Iterable, Iterator

_LITERAL = re.compile(r"``([^`]+)``")
# :func:`torch.abs`, :class:`~torch.Tensor`, :ref:`the notes <notes>`, `A title <link>`_
# (a role has a short name: an unbounded one takes quadratic time on a line of colons)
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
_MIN_WORD_SHARE = 0.6  # prose lies above 0.7, code and formulas below 0.5
_WRAPPED_CHARACTERS = 50  # a line at least so long may go on in the next


def extract_prose(text: str) -> str:
    """The English paragraphs of a documentation text, separated by newlines; "" if none."""
    blocks = _split_blocks(_drop_code(text.expandtabs().split("\n")))
    paragraphs = ("\n".join(_unwrap(block)) for block in blocks)
    return "\n".join(paragraph for paragraph in paragraphs if is_prose(paragraph))


def is_prose(text: str) -> bool:
    """Whether most of the text is ordinary words."""
    num_words = len(_WORD.findall(text))
    return num_words >= max(_MIN_WORDS, _MIN_WORD_SHARE * len(text.split()))


def _drop_code(lines: Iterable[str]) -> Iterator[str]:
    """Removes doctests with their output, literal blocks and directives that are no prose."""
    literal_indent: int | None = None  # lines indented deeper than this are literal
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


def _split_blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        if line:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _unwrap(block: list[str]) -> Iterator[str]:
    """The lines of a block without markup; a wrapped sentence becomes one line."""
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
        line = _ROLE_OR_LINK.sub(_show_title, _LITERAL.sub(r"\1", line))
    return line.replace("**", "")


def _show_title(match: re.Match[str]) -> str:
    return match[1].rstrip() if match[2] else match[1]
