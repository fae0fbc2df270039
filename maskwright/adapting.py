"""``maskwright finetune`` as a function: first text of the task without labels, then the labels.

Pretraining goes on with masked tokens of that text (Gururangan et al., "Don't Stop Pretraining",
2020) in a run of its own, which other tasks on such text can start from, too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.console import tell
from maskwright.corpus.column_roles import TEXT_ROLES, Column, find_roles
from maskwright.corpus.table_files import (
    is_named_table,
    list_names,
    list_texts,
    read_columns,
    read_text_lines,
)
from maskwright.corpus.text_inputs import has_conll_name
from maskwright.errors import ConfigError, CorpusError, InputError
from maskwright.finetuning.config import Request, TaskFiles
from maskwright.finetuning.predict import has_columns
from maskwright.finetuning.resume import read_request
from maskwright.finetuning.run import check_alone, make_request, run_request
from maskwright.finetuning.task import LabelTask, Tell, load_task, read_sets
from maskwright.formatting import count_noun
from maskwright.model_folder.folder import describe_folder
from maskwright.pretraining.pretrain import pretrain
from maskwright.runs.run_directory import MODEL_NAME
from maskwright.train.config import BUDGETS


def finetune(
    folder: str | Path | None = None,
    *,
    train: str | Path | None = None,
    out: str | Path | None = None,
    task: str | None = None,
    preset: str | None = None,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    valid_share: float = 0.1,
    group: str | None = None,
    valid_after: str | None = None,
    columns: Mapping[str, Column] | None = None,
    header: bool | None = None,
    control: bool = False,
    teacher: str | Path | None = None,
    unlabeled: str | Path | None = None,
    resume: str | Path | None = None,
    report: Tell = tell,
    **settings: Any,
) -> Path:
    """Fine-tune a model on labeled text, as ``maskwright finetune``; return ``out/model``::

        folder = finetune("runs/mine", task="classification", train="mails.csv", out="runs/mails")
        [answer] = Predictor(folder)(["Where is my parcel?"])

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        train: labeled examples: a table, or CoNLL columns for the task ``tokens``.
        out: the run directory; its ``results.json`` has the scores.
        task: ``classification``, ``multilabel``, ``regression``, ``tokens``, ``spans``, ``ranking``
            or ``embedding``.
        preset: a GLUE task, instead of `task`; sets the task, the columns and the metrics.
        valid: examples that select the best weights; default: `valid_share` of `train`.
        test: examples on which the selected weights are scored, once.
        valid_share: the share of `train` that is held out if `valid` is not given.
        group: a column of `train` whose values are on one side of the split, such as a customer.
        valid_after: ``COLUMN=VALUE``: hold out the examples from this value on, such as a date.
        columns: names or positions by role: sentence1, sentence2, label; word, tag.
        header: True if the first row of a table holds names; None: it is inferred.
        control: also fine-tune and score an encoder that starts from random weights.
        teacher: a model that was fine-tuned for the task; its answers are learned, too.
        unlabeled: text of the task without labels, lines or a table, to pretrain the model on first
            as a run ``OUT-adapted``; a text of the validation or test examples is left out.
        resume: an unfinished run directory; only `report` can be combined with it.
        report: receives each line of progress.
        settings: fields of the configuration: ``epochs``, ``learning_rate``, ``seeds``, ….

    Raises:
        MaskwrightError: an argument or a file is wrong; `StoppedError` after SIGTERM.
        KeyboardInterrupt: SIGINT was received; the run can be resumed, as after SIGTERM.
    """
    flags = {"folder": folder, "train": train, "out": out, "task": task, "preset": preset}
    flags |= {"valid": valid, "test": test, "valid_share": valid_share, "columns": columns}
    flags |= {"header": header, "control": control, "teacher": teacher}
    flags |= {"group": group, "valid_after": valid_after, "unlabeled": unlabeled}
    run = Path(resume or out or "")
    run_request(_make_request(flags, settings, run, report, resume is not None), run, report)
    return run / MODEL_NAME


def _make_request(
    flags: Mapping[str, Any], settings: Mapping[str, Any], run: Path, report: Tell, resumes: bool
) -> Request:
    """Return the request from arguments, whose model is adapted to text of the task if there is.

    If the run `resumes`, it is the one of its beginning.
    """
    if resumes:
        check_alone(flags, settings)
        return read_request(run)
    request, unlabeled = make_request(flags, settings), flags["unlabeled"]
    if unlabeled is not None:
        return replace(request, model=adapt(request, Path(unlabeled), run, report))
    if "unlabeled_minutes" in settings:
        raise InputError("--unlabeled_minutes has no effect without --unlabeled. Remove it.")
    return request


def adapt(request: Request, unlabeled: Path, run: Path, report: Tell) -> Path:
    """Pretrain the model of a request on text of its task; return the folder of the new model.

    Texts of the validation and test examples are dropped: their scores would be too high.

    Raises:
        MaskwrightError: the text cannot be read or is too little; as `pretrain`.
    """
    known = list_held_out(request)
    texts = list(filter(str.strip, read_unlabeled(unlabeled, request.files)))
    kept = [text for text in texts if spell(text) not in known]
    report(
        f"{unlabeled}: {count_noun(len(texts), 'text')}; "
        f"{len(texts) - len(kept):,} of them are validation or test examples and are left out"
    )
    if not kept:
        raise CorpusError(f"{unlabeled} holds no text but that of validation and test examples.")
    config = request.config
    width = describe_folder(request.model).config.hidden_size
    rate = config.resolve(len(kept), width).learning_rate
    adapted = run.with_name(f"{run.name}-adapted")
    was_there = adapted.is_dir()
    try:
        return pretrain(
            texts=kept,
            init_from=request.model,
            out=adapted,
            data_dir=run.with_name(f"{run.name}-text"),
            auto_resume=True,
            private=config.private,
            optim={"learning_rate": rate},
            train={BUDGETS[0]: config.unlabeled_minutes, "device": config.device},
        )
    except ConfigError as error:
        if not was_there:
            raise
        raise InputError(f"{adapted} is another run: {error} Choose another --out.") from None


def list_held_out(request: Request) -> set[str]:
    """Return the texts of the validation and test examples; with folds those of all examples."""
    task, files = load_task(request.files.task), request.files
    if not isinstance(task, LabelTask):
        raise InputError(f"--unlabeled has no effect with --task {task.name}. Remove it.")
    sets = read_sets(task, files, Counter() if files.skips_short else None)
    scored = sets if request.config.folds else sets[1:]
    return {spell(text) for rows in scored for row in rows for text in row.texts}


def read_unlabeled(path: Path, files: TaskFiles) -> Iterator[str]:
    """Yield the texts of a table, in the columns of training or the usual ones, or the lines."""
    if has_conll_name(path):
        raise InputError(f"--unlabeled {path} holds words and tags. Give text, one a line.")
    if not is_named_table(path):
        yield from read_text_lines(path)
        return
    columns: Mapping[str, Column] = {
        role: column for role, column in files.columns.items() if role in TEXT_ROLES
    }
    header = files.has_header
    if not has_columns(path, columns):
        columns, header = find_roles(list_names(path), TEXT_ROLES, {}, path), None
    for row in read_columns(path, columns, header):
        yield from list_texts(row)


def spell(text: str) -> str:
    """Return a text that is equal whatever blanks and capitals it has."""
    return " ".join(text.split()).casefold()
