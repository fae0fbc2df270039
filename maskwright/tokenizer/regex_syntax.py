"""A parser of Oniguruma's regular expressions, as far as tokenizers have them.

Sets of characters are bit masks over sample characters: all of ASCII, a few of each general
category and script, and those that the expression names. Two sets overlap if their masks do.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, reduce
from itertools import islice

_SAMPLES_OF_EACH = 3
_SCRIPTS = ("HAN", "HIRAGANA", "KATAKANA", "HANGUL", "LATIN", "CYRILLIC", "GREEK", "ARABIC", "THAI")
_NAMES = {"HAN": "CJK"}  # by which the names of characters begin
# Long names of general categories, and POSIX brackets.
_CATEGORIES = {
    "letter": "L", "alpha": "LM", "number": "N", "digit": "Nd", "punctuation": "P", "punct": "PS",
    "symbol": "S", "mark": "M", "separator": "Z", "space": "Z", "white_space": "Z", "upper": "Lu",
    "lower": "Ll", "alnum": "LMN", "word": "LMN", "cntrl": "Cc", "uppercase_letter": "Lu",
    "lowercase_letter": "Ll", "other": "C",
}  # fmt: skip
_SHORT = {"s": "space", "d": "digit", "w": "word", "h": "xdigit"}
_CONTROLS = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_ANCHORS = "AzZbBGKyY"
_MAX_DEPTH = 50
_COMMENT = re.compile(r"\(\?#(?:[^)\\]|\\.)*\)", re.DOTALL)
_FLAGS = re.compile(r"\?([imsx]*)(?:-([imsx]*))?([:)])")
_COUNTS = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_CODE = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|(0[0-7]{0,2})")
_RANGE = re.compile(r"([^\x00-\x7f])-([^\x00-\x7f])")
_PROPERTY = re.compile(r"[pP]\{(\^?)([A-Za-z_ &-]+)\}")
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    mask: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the branches."""

    branches: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """The body, `least` to `most` times; None: without end."""

    body: "Node"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Look:
    """A condition on the text at this place, which takes no character: a look, or an anchor."""

    body: "Node"
    denies_next: bool = False  # a negative look ahead


Node = Chars | Sequence | Choice | Repeat | Look


def _read_code(digits: Iterable[str | None]) -> int:
    """Return the number of a character, written in one of the ways of `_CODE`."""
    *hexadecimal, octal = digits
    code = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
    return min(code, sys.maxunicode)


@cache
def _list_samples() -> str:
    """Return all of ASCII, and the first characters of each general category and script."""
    found: dict[str, list[str]] = {}
    for character in map(chr, range(128, 0x10000)):
        category = unicodedata.category(character)
        kinds = [category]
        if category[0] in "LN":
            name = unicodedata.name(character, "")
            kinds += [script for script in _SCRIPTS if name.startswith(_NAMES.get(script, script))]
        for kind in kinds:
            if len(found.setdefault(kind, [])) < _SAMPLES_OF_EACH:
                found[kind].append(character)
    others = {one for group in found.values() for one in islice(group, _SAMPLES_OF_EACH)}
    return "".join(map(chr, range(128))) + "".join(sorted(others))


class Parser:
    """A parser of one expression; `parse` returns its tree, or raises ValueError.

    Attributes:
        samples: the characters that a bit of a mask stands for.
    """

    def __init__(self, pattern: str) -> None:
        samples, named = _list_samples(), set(pattern)
        numbers = [found.groups() for found in _CODE.finditer(pattern)]
        named |= {chr(_read_code(each)) for each in numbers}
        for first, last in _RANGE.findall(pattern):  # a character of each category
            within = map(chr, range(ord(first), ord(last) + 1))
            named.update({unicodedata.category(one): one for one in within}.values())
        self.samples = samples + "".join(sorted(named.difference(samples)))
        self._pattern, self._place, self._depth, self._ignores_case = pattern, 0, 0, False
        self._all = (1 << len(self.samples)) - 1

    def parse(self) -> Node:
        """Return the tree of the expression; raise ValueError for syntax beyond tokenizers'."""
        tree = self._parse_choice()
        if self._place < len(self._pattern):
            raise ValueError("it has a closing parenthesis too many")
        return tree

    def _look_at(self, text: str) -> bool:
        return self._pattern.startswith(text, self._place)

    def _take(self, text: str) -> bool:
        found = self._look_at(text)
        self._place += len(text) * found
        return found

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self._pattern, self._place)
        self._place = found.end() if found else self._place
        return found

    def _next(self) -> str:
        if self._place >= len(self._pattern):
            raise ValueError("it ends too early")
        self._place += 1
        return self._pattern[self._place - 1]

    def _skip_comments(self) -> None:
        while self._match(_COMMENT):
            pass

    def _parse_choice(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        ignored, branches = self._ignores_case, [self._parse_sequence()]
        while self._take("|"):
            branches.append(self._parse_sequence())
        self._ignores_case, self._depth = ignored, self._depth - 1
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _parse_sequence(self) -> Node:
        parts: list[Node] = []
        while True:
            self._skip_comments()
            if self._place >= len(self._pattern) or self._look_at("|") or self._look_at(")"):
                break
            parts.append(self._parse_repeats(self._parse_atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _parse_repeats(self, atom: Node) -> Node:
        while True:
            self._skip_comments()  # a* and a(?#comment)* are the same
            if self._take("*"):
                atom = Repeat(atom, 0, None)
            elif self._take("+"):
                atom = Repeat(atom, 1, None)
            elif self._take("?"):
                atom = Repeat(atom, 0, 1)
            elif counts := self._match(_COUNTS):
                if not (counts[1] or counts[3]):
                    raise ValueError("it has a repetition without a number")
                least = int(counts[1] or 0)
                most = least if not counts[2] else int(counts[3]) if counts[3] else None
                atom = Repeat(atom, least, most)
            else:
                return atom
            # Lazy or possessive: matches the same or fewer texts, at the same starts.
            _ = self._take("?") or self._take("+")

    def _parse_atom(self) -> Node:
        match self._next():
            case "(":
                return self._parse_group()
            case "[":
                return Chars(self._parse_class())
            case ".":
                return Chars(self._all & ~self._find("\n".__eq__))
            case "^" | "$":
                return Look(Sequence(()))
            case "\\":
                return self._parse_escape()
            case "*" | "+" | "?":
                raise ValueError("it repeats nothing")
            case character:
                return Chars(self._fold(self._find(character.__eq__)))

    def _parse_group(self) -> Node:
        denies_next = self._take("?!")
        looks = denies_next or any(map(self._take, ("?=", "?<=", "?<!")))
        if not looks and self._look_at("?") and not (self._take("?:") or self._take("?>")):
            flags = self._match(_FLAGS)
            if flags is None or "x" in flags[1]:
                raise ValueError("it has a group that tokenizers do not need")
            ignored = self._ignores_case
            self._ignores_case = ("i" in flags[1] or ignored) and "i" not in (flags[2] or "")
            if flags[3] == ")":  # until the end of the group around it
                return Sequence(())
            tree = self._parse_choice()
            self._ignores_case = ignored
        else:
            tree = self._parse_choice()
        if not self._take(")"):
            raise ValueError("it has an open parenthesis")
        return Look(tree, denies_next) if looks else tree

    def _parse_escape(self) -> Node:
        letter = self._pattern[self._place : self._place + 1]
        if letter and letter in _ANCHORS:
            self._place += 1
            return Look(Sequence(()))
        if letter == "R":
            self._place += 1
            return Repeat(Chars(self._find("\r\n\v\f\x85\u2028\u2029".__contains__)), 1, 2)
        if letter in ("X", "O", "N"):  # \X: a character with its marks
            self._place += 1
            marks = Repeat(Chars(self._name_category("M")), 0, None)
            return Sequence((Chars(self._all), marks)) if letter == "X" else Chars(self._all)
        if letter in ("g", "k") or letter in "123456789":
            raise ValueError("it refers to its own groups")
        return Chars(self._parse_shorthand())

    def _parse_shorthand(self) -> int:
        """Return the set of an escape that stands for characters; it is behind the backslash."""
        if found := self._match(_PROPERTY):
            is_negative = (self._pattern[found.start()] == "P") != bool(found[1])
            return self._name_set(found[2], is_negative)
        if found := self._match(_CODE):
            return self._find(chr(_read_code(found.groups())).__eq__)
        letter = self._next()
        if letter.lower() in _SHORT:
            return self._name_set(_SHORT[letter.lower()], letter.isupper())
        if letter.isalnum() and letter not in _CONTROLS:
            raise ValueError(f"it has the unknown escape \\{letter}")
        return self._find(_CONTROLS.get(letter, letter).__eq__)

    def _parse_class(self) -> int:
        """Return the set of a class; it is behind the bracket."""
        is_negative, found, met, is_first = self._take("^"), 0, self._all, True
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        while is_first or not self._look_at("]"):
            is_first = False
            if posix := self._match(_POSIX):
                found |= self._name_set(posix[2], bool(posix[1]))
            elif self._take("["):
                found |= self._parse_class()
            elif self._take("&&"):
                met, found = met & found, 0
            else:
                found |= self._parse_range()
        self._place, self._depth = self._place + 1, self._depth - 1
        found = self._fold(found & met)
        return self._all & ~found if is_negative else found

    def _parse_range(self) -> int:
        begin = self._parse_member()
        behind = self._pattern[self._place + 1 : self._place + 2]
        if not self._look_at("-") or behind in ("]", "["):
            return begin
        self._next()
        end = self._parse_member()
        low, high = (self._show(mask) for mask in (begin, end))
        if low is None or high is None:
            return begin | end | self._find("-".__eq__)
        return self._find(lambda one: low <= one <= high)

    def _parse_member(self) -> int:
        character = self._next()
        return self._parse_shorthand() if character == "\\" else self._find(character.__eq__)

    def _show(self, mask: int) -> str | None:
        """Return the only character of a set, or None."""
        is_single = mask and not mask & (mask - 1)
        return self.samples[mask.bit_length() - 1] if is_single else None

    def _find(self, condition: Callable[[str], bool]) -> int:
        return sum(1 << bit for bit, one in enumerate(self.samples) if condition(one))

    def _fold(self, mask: int) -> int:
        if not self._ignores_case:
            return mask
        shown = {one for bit, one in enumerate(self.samples) if mask >> bit & 1}
        return self._find(lambda one: bool(shown & {one, one.lower(), one.upper()}))

    def _name_set(self, name: str, is_negative: bool) -> int:
        mask = self._find_named(name.strip())
        return self._all & ~mask if is_negative else mask

    def _name_category(self, prefix: str) -> int:
        return self._find(lambda one: unicodedata.category(one).startswith(prefix))

    def _find_named(self, name: str) -> int:
        known = name.lower().replace(" ", "_")
        if known == "any":
            return self._all
        if known == "xdigit":
            return self._find("0123456789abcdefABCDEF".__contains__)
        if name.upper() in _SCRIPTS:
            start = _NAMES.get(name.upper(), name.upper())
            return self._find(lambda one: unicodedata.name(one, "").startswith(start))
        prefixes = re.findall("[A-Z][a-z]?", _CATEGORIES.get(known, name))
        if (
            not prefixes
            or "".join(prefixes) != _CATEGORIES.get(known, name)
            or (known not in _CATEGORIES and prefixes[0][0] not in "LMNPSZC")
        ):
            raise ValueError(f"it has the unknown property {name}")
        mask = reduce(int.__or__, map(self._name_category, prefixes))
        extra = {"space": "\t\n\v\f\r\x85", "white_space": "\t\n\v\f\r\x85", "word": "_"}
        return mask | self._find(extra.get(known, "").__contains__)
