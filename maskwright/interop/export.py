"""Model folders for other libraries; each is compared with the model before it appears."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from maskwright.errors import ExportError, InputError, MaskwrightError
from maskwright.files import replacing_folder, write_json
from maskwright.interop.classifier_folders import write_classifier
from maskwright.interop.comparison import Difference
from maskwright.interop.folders import RECORD, check_new, list_sizes, read_card
from maskwright.interop.held_out import read_masked_rows
from maskwright.interop.hugging_face import write_hugging_face
from maskwright.interop.int8 import Int8Scores
from maskwright.interop.libraries import list_versions
from maskwright.interop.onnx_folder import write_onnx, write_onnx_int8
from maskwright.interop.sentence_transformers_folder import write_sentence_transformers
from maskwright.interop.sentences import choose_sentences
from maskwright.interop.targets import TARGETS, Target
from maskwright.interop.task_examples import ExampleFile, choose_examples
from maskwright.model_folder.classifier_folder import is_classifier, open_classifier
from maskwright.model_folder.folder import open_model
from maskwright.provenance import describe_cpu

# The library that computes the comparison, and others whose version decides about the result.
_PACKAGES = {
    "hf": ("transformers", "torch"),
    "onnx": ("onnxruntime", "torch"),
    "onnx-int8": ("onnxruntime", "torch"),
    "sentence-transformers": ("sentence-transformers", "transformers", "torch"),
}


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how it was found to be right.

    Attributes:
        to: the target.
        folder: where it is.
        sizes: bytes of each file.
        versions: of the libraries it was compared with; the first computed the comparison.
        source: where the sentences of the comparison are from.
        difference: how far the library's outputs are from ours.
        int8: what quantization changed; None without it.
        max_length: tokens of an input, at most; longer ones are cut.
    """

    to: Target
    folder: Path
    sizes: dict[str, int]
    versions: dict[str, str]
    source: str
    difference: Difference
    int8: Int8Scores | None
    max_length: int

    def describe(self) -> list[str]:
        """Lines for a reader."""
        library, version = next(iter(self.versions.items()))
        size = sum(self.sizes.values()) / 1e6
        subject = "the graph in fp32" if self.int8 else "it"
        lines = [
            f"{self.folder}: {len(self.sizes)} files, {size:.1f} MB, for {self.to}",
            f"{library} {version} loads {subject}; on {self.difference.num_texts} texts "
            f"({self.source}), {self.difference.num_tokens:,} tokens: {self.difference.describe()}",
        ]
        if self.to == "sentence-transformers":
            lines.append(f"encode() cuts texts at {self.max_length} tokens (max_seq_length)")
        return lines + (self.int8.describe() if self.int8 else [])

    def to_json(self) -> dict[str, Any]:
        """Plain values, as ``export.json`` keeps them."""
        values = {
            "to": self.to,
            "files": self.sizes,
            "versions": self.versions,
            "cpu": describe_cpu(),
            "max_length": self.max_length,
            "compared": {"source": self.source, **dataclasses.asdict(self.difference)},
        }
        return {**values, "int8": dataclasses.asdict(self.int8)} if self.int8 else values


def export_model(
    folder: Path | str,
    to: Target,
    out: Path | str,
    data: Path | str | None = None,
    examples: ExampleFile | None = None,
) -> ExportReport:
    """Write the model in `folder` for another library, and prove that it is the same there.

    What was written is loaded with the target library, and its outputs are compared with ours on
    real sentences, those of a fine-tuned model on examples of its task. Only then does `out`
    appear, with a record of the comparison in ``export.json``; otherwise nothing is left of it.

    Args:
        folder: a model folder.
        to: ``hf`` (transformers), ``onnx``, ``onnx-int8`` or ``sentence-transformers``.
        out: where to; it must not exist, or be empty.
        data: a prepared folder, whose held-out text gives the sentences; ``onnx-int8`` needs it
            for its scores. A fine-tuned model has no use for it.
        examples: labeled examples of a fine-tuned model's task, which it needs for ``onnx-int8``.

    Raises:
        ModelFolderError: `folder` is not a model folder.
        ExportError: the outputs differ, no class of transformers computes this architecture, too
            little is left of the model in int8, or `out` exists already.
        InputError: an unknown target, ``onnx-int8`` without `data`.
        MissingPackageError: a package that the target needs is not installed.
        ShardError: `data` is damaged, or was prepared with another tokenizer.
    """
    folder, out = Path(folder), Path(out)
    data = None if data is None else Path(data)
    if to not in TARGETS:
        raise InputError(f"unknown export {to}; choose {', '.join(TARGETS)}.")
    is_fine_tuned = is_classifier(folder)
    _check_request(to, out, has_text=is_fine_tuned or data is not None)
    work = (
        _prepare_classifier(folder, to, examples)
        if is_fine_tuned
        else _prepare_model(folder, to, data)
    )
    with replacing_folder(out) as temporary:
        versions = list_versions(*_PACKAGES[to])
        try:
            difference, int8 = work.write(temporary)
        except (MaskwrightError, OSError):
            raise
        except Exception as error:  # of several libraries, and in each release of others
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            names = ", ".join(f"{name} {version}" for name, version in versions.items())
            raise ExportError(
                f"the export to {to} failed ({names}): {reason}. Nothing was written."
            ) from error
        difference.check(next(iter(versions)))
        sizes = list_sizes(temporary)
        report = ExportReport(
            to, out, sizes, versions, work.source, difference, int8, work.max_length
        )
        write_json(temporary / RECORD, report.to_json())
    return report


def _check_request(to: Target, out: Path, has_text: bool) -> None:
    """Raise if nothing can be written to `out`, or int8 has nothing to be judged on."""
    if to == "onnx-int8" and not has_text:
        raise InputError(
            "onnx-int8 is judged on held-out text: name a prepared folder with --data, or export "
            "from a run directory whose prepared data is still there."
        )
    if out.name in ("", "..") or out.resolve() == Path.cwd():
        raise InputError(f"--out = {out} must be a folder of its own. Name a new one.")
    check_new(out)


class _Work(NamedTuple):
    """What writes a model into a folder, where the texts are from, and their longest input."""

    write: Callable[[Path], tuple[Difference, Int8Scores | None]]
    source: str
    max_length: int


def _prepare_classifier(folder: Path, to: Target, file: ExampleFile | None) -> _Work:
    loaded, card = open_classifier(folder), read_card(folder)
    examples = choose_examples(loaded, file)

    def write(out: Path) -> tuple[Difference, Int8Scores | None]:
        return write_classifier(out, to, loaded, examples, card)

    return _Work(write, examples.source, loaded.max_length)


def _prepare_model(folder: Path, to: Target, data: Path | None) -> _Work:
    loaded, card = open_model(folder), read_card(folder)
    sentences = choose_sentences(loaded, data, hide_words=to != "sentence-transformers")

    def write(out: Path) -> tuple[Difference, Int8Scores | None]:
        if to == "onnx-int8" and data is not None:
            return write_onnx_int8(out, loaded, sentences, card, read_masked_rows(loaded, data))
        write_one = {
            "hf": write_hugging_face,
            "onnx": write_onnx,
            "sentence-transformers": write_sentence_transformers,
        }[to]
        return write_one(out, loaded, sentences, card), None

    return _Work(write, sentences.source, loaded.model.config.max_position_embeddings)
