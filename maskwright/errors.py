"""Every failure that a user can cause, as one tree.

::

    MaskwrightError            shown as one line on standard error, exit code 2
    ├── ConfigError            a configuration field or flag
    ├── CorpusError            text that cannot be read or holds nothing
    ├── TokenizerError         a tokenizer that cannot be trained or loaded
    ├── ShardError             prepared data that is missing, damaged or does not fit
    ├── ModelFolderError       a folder that is not a model, or not this one
    ├── TrainingError          a run that cannot go on
    ├── CheckpointError        a checkpoint that cannot be written or resumed from
    ├── ExportError            a conversion that is not equal to the model, or cannot be made
    ├── InputError             a sentence or argument given to a finished model
    ├── MissingPackageError    a package that an optional feature needs
    └── StoppedError           SIGTERM came before the end; exit code 143

A message names the field or file, its value, the rule it breaks and the remedy, in one line.
Anything that is not in this tree is a bug in maskwright and keeps its traceback.
"""

import difflib
import reprlib
from collections.abc import Sequence

_LONGEST_MESSAGE = 1_000
_MOST_BITS = 256


class MaskwrightError(Exception):
    """Base of every error that is the input's fault and not the program's."""

    def __init__(self, message: str = "") -> None:
        super().__init__(make_line(message))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error as it is, so that it survives the way from another process."""
        return _restore, (type(self), str(self), vars(self))


def _restore(
    kind: type[MaskwrightError], message: str, values: dict[str, object]
) -> MaskwrightError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    vars(error).update(values)
    return error


def make_line(text: str) -> str:
    """Return `text` as one printable line; the middle of a long one is left out.

    What a message quotes may come from a hostile file: line ends, a terminal's control sequences,
    megabytes.
    """
    if len(text) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        text = f"{text[:half]} … {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(" " if c in "\r\n\t" else c if c.isprintable() else repr(c)[1:-1] for c in text)


def show_value(value: object) -> str:
    """Return a value as a message quotes it: shortened if it is large, deep or a huge number."""
    is_bulky = isinstance(value, int | list | tuple | dict | set | frozenset)
    return _SHORTENED.repr(value) if is_bulky else str(value)


def _show_integer(x: int, level: int) -> str:
    # Python refuses to print a number of more than 4300 digits.
    bits = x.bit_length()
    return repr(x) if bits <= _MOST_BITS else f"(an integer of {bits} bits)"


_SHORTENED = reprlib.Repr()
_SHORTENED.repr_int = _show_integer
_SHORTENED.maxstring = _SHORTENED.maxother = 200
_SHORTENED.maxlist = _SHORTENED.maxtuple = _SHORTENED.maxdict = 20


class ConfigError(MaskwrightError):
    """A configuration field holds a value that breaks a rule.

    ``ConfigError("rate", 1.5, "must be between 0 and 1", "Try 0.15.")`` reads
    ``rate = 1.5 must be between 0 and 1. Try 0.15.``; `within` puts the section before it.
    """

    def __init__(self, field: str, value: object, rule: str, remedy: str = "") -> None:
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy
        super().__init__(f"{field} = {show_value(value)} {rule}. {remedy}".rstrip())

    def within(self, section: str) -> "ConfigError":
        """Return the same error with ``section.`` before the field's name."""
        return ConfigError(f"{section}.{self.field}", self.value, self.rule, self.remedy)


class UnknownKeyError(ConfigError):
    """A configuration key that does not exist; names the nearest one that does."""

    def __init__(self, field: str, nearest: str | None) -> None:
        MaskwrightError.__init__(
            self,
            f"unknown key {field}" + (f"; did you mean {nearest}?" if nearest else "."),
        )
        self.field, self.value, self.rule, self.remedy = field, None, "unknown key", nearest or ""


class CorpusError(MaskwrightError):
    """Text that cannot be read, or an input with nothing in it to learn from."""


class TokenizerError(MaskwrightError):
    """A tokenizer that cannot be trained from this text, or a folder that holds none."""


class ShardError(MaskwrightError):
    """Prepared data that is missing, damaged, or made with another tokenizer."""


class ModelFolderError(MaskwrightError):
    """A folder that is not a model folder, or whose parts do not belong together."""


class TrainingError(MaskwrightError):
    """A run that cannot go on: its loss is not finite, or another rank is gone."""


class CheckpointError(MaskwrightError):
    """A checkpoint that cannot be written, or a run directory that cannot be resumed."""


class ExportError(MaskwrightError):
    """A conversion that does not compute what the model computes, or cannot be made."""


class InputError(MaskwrightError):
    """An argument or a sentence that a finished model cannot work on."""


class MissingPackageError(MaskwrightError):
    """A package that an optional feature needs and that is not installed; names the extra."""


class StoppedError(MaskwrightError):
    """SIGTERM ended the work before its end; what it left can be resumed.

    Ctrl-C raises KeyboardInterrupt instead, as Python programs expect.
    """


def suggest(kind: str, name: str, valid: Sequence[str], remedy: str) -> InputError:
    """Return the error for a name that does not exist, with the nearest one that does."""
    close = difflib.get_close_matches(name, valid, n=1)
    hint = f"did you mean {close[0]}?" if close else f"{remedy}."
    return InputError(f"unknown {kind} {name}; {hint}")
