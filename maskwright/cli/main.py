"""``maskwright COMMAND …``: finds the command, and turns errors into one line and exit code 2.

Nothing heavy is imported before the command is known: importing torch alone takes two seconds.
"""

import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import maskwright
from maskwright.errors import DeviceMemoryError, MaskwrightError, StoppedError, make_line, suggest
from maskwright.extras import load

# By name: the module with its function, and the line of --help.
COMMANDS = {
    "pretrain": ("pretrain", "train an encoder from raw text or prepared data"),
    "plan": ("pretrain", "plan a run on GPUs: size, hours, memory, command"),
    "fill": ("fill", "predict masked words with a trained model"),
    "finetune": ("finetune", "fine-tune a model on labeled texts, words or pairs"),
    "predict": ("finetune", "apply a fine-tuned model to texts"),
    "serve": ("export", "serve a model over HTTP, with a page to try it"),
    "score": ("fill", "score how likely a trained model finds texts"),
    "embed": ("embed", "write the vectors of texts, from a trained model"),
    "search": ("embed", "print the texts of a file nearest to a query"),
    "evaluate": ("evaluate", "score a model: masked words, sentences, minimal pairs"),
    "compare": ("evaluate", "put runs side by side, with intervals of the differences, and plots"),
    "report": ("report", "show a run, or several, as a page"),
    "watch": ("report", "follow a run of another process in the terminal"),
    "export": ("export", "write a model for transformers, ONNX and others; compare its outputs"),
    "publish": ("export", "upload a model to the Hugging Face hub"),
    "sweep": ("sweep", "compare settings over seeds, or search them: many runs of a command"),
    "prepare": ("prepare", "train a tokenizer and write token shards, to reuse in many runs"),
    "tokenizer": ("tokenizer", "train, inspect or compare tokenizers alone"),
    "inspect": ("prepare", "show what a model will see of prepared data"),
    "recipes": ("pretrain", "list the recipes that come with maskwright"),
}
_ON_CPU = "DefaultCPUAllocator: "  # in torch's error, a plain RuntimeError, of a CPU without memory
# What takes less memory, in the order in which to try it.
_LESS_MEMORY = {
    "pretrain": "Lower train.micro_batch_tokens; if it is one row, set "
    "train.activation_checkpointing to true, which is slower. The last checkpoint is kept, and "
    "both may change with --resume",
    "finetune": "Lower --batch_size, then --max_length",
    "embed": "Lower --batch-tokens",
    "search": "Lower --batch-tokens",
    "serve": "Lower --max_batch, then --max_tokens",
}
_OTHERWISE = "Free the device, or compute on the CPU: set CUDA_VISIBLE_DEVICES to nothing"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code of the process."""
    output: Any = sys.stdout
    if isinstance(output, io.TextIOWrapper):  # which may show file names of any bytes
        cast(Any, output).reconfigure(errors="backslashreplace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"maskwright {version('maskwright')}")
        return 0
    name, *rest = arguments
    try:
        return _run(name, rest)
    except StoppedError as stop:
        print(make_line(str(stop)), file=sys.stderr)
        return 128 + signal.SIGTERM
    except MaskwrightError as error:
        rank = os.environ.get("RANK", "0")
        print(f"rank {rank}: " * (rank != "0") + f"{_category(error)}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(make_line(str(stop) or "interrupted"), file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise  # not about a file, so a bug
        where = f"{error.filename}: " if error.filename is not None else ""
        print(make_line(f"InputError: {where}{error.strerror}"), file=sys.stderr)
        return 2


def _run(name: str, arguments: Sequence[str]) -> int:
    """Run a command; raise DeviceMemoryError where torch has no memory left."""
    if name not in COMMANDS:
        raise suggest("command", name, list(COMMANDS), "maskwright --help lists them")
    command: Callable[[Sequence[str]], int] = load(f"maskwright.cli.{COMMANDS[name][0]}:{name}")
    try:
        return command(arguments)
    except RuntimeError as error:
        # By name, because commands without torch must not import it.
        if type(error).__name__ != "OutOfMemoryError" and _ON_CPU not in str(error):
            raise
        what = ". ".join(str(error).rpartition(_ON_CPU)[2].split(". ")[:2])
        remedy = _LESS_MEMORY.get(name, _OTHERWISE)
        raise DeviceMemoryError(f"{what}. {remedy}.") from None


def _category(error: MaskwrightError) -> str:
    """Return the name of the error in the tree of `maskwright.errors`, below its root."""
    line = [kind for kind in type(error).__mro__ if issubclass(kind, MaskwrightError)]
    return line[max(len(line) - 2, 0)].__name__


def _usage() -> str:
    what = (maskwright.__doc__ or "").partition("\n")[0]
    lines = ["usage: maskwright COMMAND [options]", "", what, "", "commands:"]
    lines += [f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items()]
    lines += ["", "maskwright COMMAND --help lists flags; maskwright --version prints the version."]
    return "\n".join(lines)
