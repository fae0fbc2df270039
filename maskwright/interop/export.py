"""Export of a model to another library, written only if the outputs there are equal."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from maskwright.errors import ExportError, InputError, MaskwrightError
from maskwright.extras import load
from maskwright.files import JsonObject, check_new_folder, replacing_folder, write_json
from maskwright.finetuning.beside import describe_beside
from maskwright.interop.classifier_source import (
    ClassifierSource,
    ExampleFile,
    Source,
    find_examples,
)
from maskwright.interop.comparison import OutputComparison
from maskwright.interop.masked_lm_source import MaskedModelSource, find_prepared_data
from maskwright.interop.targets import (
    EITHER_TARGETS,
    INT8_DEFAULTS,
    TARGETS,
    VECTOR_TARGETS,
    Int8Options,
    Int8Scores,
    Written,
)
from maskwright.interop.vector_source import VectorSource, gives_vectors
from maskwright.model_folder.classifier_folder import is_classifier
from maskwright.model_folder.folder import is_encoder
from maskwright.provenance import describe_cpu, find_version
from maskwright.runs.find_model import find_model_folder

RECORD = "export.json"


@dataclass(frozen=True)
class ExportResult:
    """An export and its comparison with the model.

    Attributes:
        to: the target.
        folder: the folder that was written.
        files: size of each file in bytes.
        versions: versions of the libraries; the first one computed the comparison.
        source: the name of the texts of the comparison.
        comparison: the largest difference between the library's outputs and ours.
        int8: the scores before and after quantization; None without it.
        max_length: the longest input in tokens; longer ones are truncated.
        notes: further lines for users of the folder.
    """

    to: str
    folder: Path
    files: dict[str, int]
    versions: dict[str, str]
    source: str
    comparison: OutputComparison
    int8: Int8Scores | None
    max_length: int
    notes: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """Return the result as lines of text."""
        library, version = next(iter(self.versions.items()))
        size = sum(self.files.values()) / 1e6
        subject = "the graph in fp32" if self.int8 else "it"
        return [
            f"{self.folder}: {len(self.files)} files, {size:.1f} MB, for {self.to}",
            f"{library} {version} loads {subject}; on {self.comparison.num_texts} texts "
            f"({self.source}), {self.comparison.num_tokens:,} tokens: {self.comparison.describe()}",
            *self.notes,
            *(self.int8.describe() if self.int8 else []),
        ]

    def to_json(self) -> JsonObject:
        """Return ``export.json``; `compared` is an `OutputComparison`, `int8` are `Int8Scores`."""
        return {
            "to": self.to,
            "files": self.files,
            "versions": self.versions,
            "cpu": describe_cpu(),
            "max_length": self.max_length,
            "compared": {"source": self.source, **dataclasses.asdict(self.comparison)},
            **({"int8": dataclasses.asdict(self.int8)} if self.int8 else {}),
        }


def export(
    folder: Path | str,
    to: str,
    out: Path | str,
    data: Path | str | ExampleFile | None = None,
    calibrate: Path | str | None = None,
    max_loss: float = 0.01,
) -> ExportResult:
    """Write a model for another library, and check that its outputs there are the same.

    The export is loaded with the other library, and its outputs are compared with ours on real
    sentences, or on examples of the task of a fine-tuned model; vectors also with those that
    sentence-transformers computes from `folder`, if it can load it. `out` is written only if they
    are equal, with a record of the comparison in ``export.json``::

        result = export("runs/mine", to="onnx", out="exports/mine-onnx")
        print(result.comparison.largest)

    Args:
        folder: a run directory, a model folder, or ``hf:NAME[@REVISION]``.
        to: ``gguf`` (llama.cpp), ``hf`` (transformers), ``onnx``, ``onnx-int8``, ``openvino``,
            ``sentence-transformers`` or ``transformers-js``.
        out: the folder to write, which must be new or empty.
        data: text to compare on: a prepared folder or its URL, or for a fine-tuned model a file of
            labeled examples. Default: the run's, else sentences, too few for ``onnx-int8``.
        calibrate: text that makes ``onnx-int8`` static: a prepared folder (its training text) or
            its URL, or a text file; for a fine-tuned model a file like `data`. Default: dynamic.
        max_loss: the largest loss of the score that ``onnx-int8`` may have.

    Raises:
        ModelFolderError: `folder` is not a model folder.
        ExportError: the outputs differ, the target does not have this architecture, int8 loses
            more than `max_loss` or changes too many predictions, or `out` exists already.
        InputError: `to`, `data`, `calibrate` or `max_loss` is wrong, or does not suit the others.
        MissingPackageError: a package that the target needs is not installed.
        ShardError: `data` is damaged, or was prepared with another tokenizer.
        CorpusError: the examples cannot be read, or have labels that the model does not know.
    """
    out = Path(out)
    int8 = Int8Options(str(calibrate) if calibrate else None, max_loss)
    _check_options(to, int8)
    check_new_folder(out)
    source = _open_source(Path(folder), find_model_folder(folder), to, data, int8)
    versions = {name: found for name in TARGETS[to].packages if (found := find_version(name))}
    with replacing_folder(out) as temporary:
        written = _write(to, temporary, source, versions)
        result = ExportResult(
            to,
            out,
            _list_sizes(temporary),
            versions,
            source.texts_from,
            written.comparison,
            written.int8,
            source.max_length,
            (*written.notes, *describe_beside(find_model_folder(folder))),
        )
        write_json(temporary / RECORD, result.to_json())
    return result


def _write(to: str, folder: Path, source: Source, versions: Mapping[str, str]) -> Written:
    """Write `source` for a target; raise ExportError unless the library's outputs are the same."""
    try:
        written: Written = load(TARGETS[to].function)(folder, source)
    except (MaskwrightError, OSError):
        raise
    except Exception as error:  # libraries raise many classes, which vary between releases
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        names = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise ExportError(
            f"the export to {to} failed ({names}): {reason}. Nothing was written."
        ) from error
    written.comparison.check(next(iter(versions)))
    return written


def _check_options(to: str, int8: Int8Options) -> None:
    if to not in TARGETS:
        raise InputError(f"--to = {to} must be one of {', '.join(TARGETS)}")
    if not int8.max_loss >= 0:
        raise InputError(f"--max-loss = {int8.max_loss:g} must be at least 0. Try 0.01.")
    if to != "onnx-int8" and int8 != INT8_DEFAULTS:
        flag = "--calibrate" if int8.calibrate else "--max-loss"
        raise InputError(f"{flag} has no effect with --to {to}. Remove it.")


def _open_source(
    run: Path, model: Path, to: str, data: Path | str | ExampleFile | None, int8: Int8Options
) -> Source:
    if is_classifier(model):
        file = data if isinstance(data, ExampleFile) else find_examples(run, model, data)
        return ClassifierSource(model, file, int8)
    if isinstance(data, ExampleFile):
        raise InputError(f"{data.path} holds labeled examples, but {model} is not a classifier.")
    prepared = find_prepared_data(run, data)
    if to in VECTOR_TARGETS or (to in EITHER_TARGETS and gives_vectors(model)) or is_encoder(model):
        return VectorSource(model, prepared, int8)
    return MaskedModelSource(model, prepared, int8)


def _list_sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
