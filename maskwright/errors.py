"""The errors that a user can cause, as one hierarchy::

    MaskwrightError            shown as one line on standard error, exit code 2
    ├── ConfigError            a configuration field or flag
    ├── CorpusError            text that cannot be read or is empty
    ├── TokenizerError         a tokenizer that cannot be trained or loaded
    ├── ShardError             prepared data that is missing, damaged or does not fit
    ├── ModelFolderError       a folder that is not a valid model folder
    ├── TrainingError          a run that cannot continue
    ├── DeviceMemoryError      a device without enough memory
    ├── CheckpointError        a checkpoint that cannot be written or resumed from
    ├── ExportError            a conversion that fails, or whose outputs differ from the model's
    ├── InputError             an argument or text that a command cannot use
    ├── MissingPackageError    a package that an optional feature needs
    └── StoppedError           SIGTERM stopped the command; exit code 143

A message names the field or file, its value, the rule it breaks and the remedy, in one line.
Anything that is not in this tree is a bug in maskwright and keeps its traceback.
"""

import difflib
import reprlib
from collections.abc import Iterable, Sequence

_LONGEST_MESSAGE = 1_000
_MAX_BITS = 256


class MaskwrightError(Exception):
    """The base class of all errors that the user's input causes.

    ::

        try:
            load_model("runs/missing")
        except MaskwrightError as error:
            print(error)  # one line: what is wrong, the rule, the remedy
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(make_line(message))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error with its attributes, so that another process can raise it."""
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

    A message may quote a hostile file: line ends, control sequences of a terminal, megabytes.
    """
    if len(text) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        text = f"{text[:half]} … {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(" " if c in "\r\n\t" else c if c.isprintable() else repr(c)[1:-1] for c in text)


def show_value(value: object) -> str:
    """Return a value for a message, shortened if it is large, deeply nested or a huge number."""
    is_bulky = isinstance(value, int | list | tuple | dict | set | frozenset)
    return _SHORTENED.repr(value) if is_bulky else str(value)


def _show_integer(x: int, level: int) -> str:
    # Python refuses to print a number of more than 4300 digits.
    bits = x.bit_length()
    return repr(x) if bits <= _MAX_BITS else f"(an integer of {bits} bits)"


_SHORTENED = reprlib.Repr()
_SHORTENED.repr_int = _show_integer
_SHORTENED.maxstring = _SHORTENED.maxother = 200
_SHORTENED.maxlist = _SHORTENED.maxtuple = _SHORTENED.maxdict = 20


class ConfigError(MaskwrightError):
    """A configuration field with a value that breaks a rule.

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
    """A configuration key that does not exist; the message names the nearest one that does."""

    def __init__(self, field: str, nearest: str | None) -> None:
        MaskwrightError.__init__(
            self, f"unknown key {field}" + (f"; did you mean {nearest}?" if nearest else ".")
        )
        self.field, self.value, self.rule, self.remedy = field, None, "unknown key", nearest or ""


class CorpusError(MaskwrightError):
    """Text that cannot be read, or an input without text to train on."""


class TokenizerError(MaskwrightError):
    """A tokenizer that cannot be trained on a text, or a folder without a tokenizer."""


class ShardError(MaskwrightError):
    """Prepared data that is missing, damaged, or made with another tokenizer."""


class ModelFolderError(MaskwrightError):
    """A folder that is not a model folder, or whose files do not fit together."""


class TrainingError(MaskwrightError):
    """A run that cannot continue: its loss is not finite, or another rank has ended."""


class DeviceMemoryError(MaskwrightError):
    """A batch, a model or its optimizer for which the memory of the device is not enough."""


class CheckpointError(MaskwrightError):
    """A checkpoint that cannot be written, or a run directory that cannot be resumed."""


class ExportError(MaskwrightError):
    """A conversion that fails, or whose outputs differ from the model's."""


class InputError(MaskwrightError):
    """An argument or a text that a command or a trained model cannot use."""


class MissingPackageError(MaskwrightError):
    """A missing package that an optional feature needs; the message names the extra."""


class StoppedError(MaskwrightError):
    """SIGTERM stopped the command before its end; the command can be resumed.

    Ctrl-C raises KeyboardInterrupt instead, as Python programs expect.
    """


# Our names of settings (the first that is valid is suggested), and what other libraries call them.
_NAMES_ELSEWHERE = {
    "name out": "out output output_dir run_name save_dir",
    "init_from": "model model_name_or_path",
    "valid corpus.valid_text": "eval_file valid valid_file validation validation_file",
    "tokenizer.path": "tokenizer tokenizer_name",
    "tokenizer.kind": "algorithm tokenizer_type",
    "tokenizer.vocab_size": "vocab_size",
    "tokenizer.lowercase": "do_lower_case uncased",
    "data.max_seq_length max_length seq_length": "block_size max_len max_length seq_len seq_length",
    "masking.rate mask_rate": "mask_prob mlm_probability",
    "model.hidden_size": "d_model dim hidden_dim",
    "model.num_hidden_layers": "layers n_layers num_layers",
    "model.num_attention_heads": "heads n_heads num_heads",
    "optim.name": "optim optimizer",
    "optim.learning_rate learning_rate": "lr",
    "optim.warmup_share warmup_share": "warmup_ratio warmup_steps",
    "train.max_epochs epochs": "epochs max_epochs num_epochs num_train_epochs",
    "train.max_steps": "max_train_steps num_steps steps",
    "train.checkpoint_every_minutes": "save_steps",
    "train.num_validations": "eval_steps",
    "train.batch_tokens batch_tokens batch_size": "batch_size per_device_train_batch_size",
    "train.grad_clip grad_clip": "max_grad_norm",
    "train.precision precision": "bf16 fp16",
    "classification": "classify",
    "evaluate": "eval",
}


def suggest(kind: str, name: str, valid: Sequence[str], remedy: str) -> InputError:
    """Return the error for a name that does not exist, with the one that is probably meant."""
    nearest = find_nearest(name, valid)
    hint = f"did you mean {nearest}?" if nearest else f"{remedy}."
    return InputError(f"unknown {kind} {name}; {hint}")


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return ``Did you mean X?`` with the valid name that is probably meant, or ``""``."""
    nearest = find_nearest(name, valid)
    return f"Did you mean {nearest}?" if nearest else ""


def find_nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that is probably meant, or None.

    It is, in this order, the same name with ``-`` for ``_``, our name of what other libraries call
    so, or the most similar name, as a whole or in the part after its last dot.
    """
    names = {_simplify(one): one for one in valid if one}
    given = _simplify(name)
    end = _find_end(given)
    usual = [ours for ours, theirs in _NAMES_ELSEWHERE.items() if end in theirs.split()]
    if meant := [one for one in (given, *" ".join(usual).split()) if one in names]:
        return names[meant[0]]

    def rank(one: str) -> tuple[float, float]:
        whole = difflib.SequenceMatcher(None, given, one).ratio()
        return max(whole, difflib.SequenceMatcher(None, end, _find_end(one)).ratio()), whole

    best = max(names, key=rank, default=None)
    return names[best] if best is not None and rank(best)[0] >= 0.7 else None


def _simplify(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def _find_end(name: str) -> str:
    """Return the part of a setting after its last dot; a dot in a number separates nothing."""
    end = name.rpartition(".")[2]
    return end if end.isidentifier() else name
