"""Every failure that a user can cause, as one tree.

::

    MaskwrightError            shown as one line on standard error, exit code 2
    ├── ConfigError            a configuration field or flag
    ├── CorpusError            text that cannot be read or holds nothing
    ├── TokenizerError         a tokenizer that cannot be trained or loaded
    ├── ShardError             prepared data that is missing, damaged or does not fit
    ├── ModelFolderError       a folder that is no model, or not this one
    ├── CheckpointError        a run that cannot be resumed
    └── InputError             a sentence or argument given to a finished model

A message names the field or file, its value, the rule it breaks and the remedy, in one line.
Anything that is not in this tree is a bug in maskwright and keeps its traceback.
"""


class MaskwrightError(Exception):
    """Base of every error that is the input's fault and not the program's."""


class ConfigError(MaskwrightError):
    """A configuration field holds a value that breaks a rule.

    ``ConfigError("rate", 1.5, "must lie between 0 and 1", "Try 0.15.")`` reads
    ``rate = 1.5 must lie between 0 and 1. Try 0.15.``; `within` puts the section before it.
    """

    def __init__(self, field: str, value: object, rule: str, remedy: str = "") -> None:
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy
        super().__init__(f"{field} = {value} {rule}. {remedy}".rstrip())

    def within(self, section: str) -> "ConfigError":
        """The same error with ``section.`` before the field's name."""
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


class CheckpointError(MaskwrightError):
    """A run directory that cannot be resumed."""


class InputError(MaskwrightError):
    """An argument or a sentence that a finished model cannot work on."""
