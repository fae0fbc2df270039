"""``maskwright finetune`` as a function: the checks of its arguments, the run, and folds.

In a cross-validation every example is scored by a model that never saw it, and that a share of the
other folds selected, as in any run.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from maskwright.config import from_mapping
from maskwright.console import Pulse
from maskwright.corpus.column_roles import name_roles
from maskwright.corpus.table_files import parse_columns
from maskwright.errors import ConfigError, InputError, suggest
from maskwright.files import write_json
from maskwright.finetuning.config import GLUE_TASKS, TASKS, FinetuneConfig, Request, TaskFiles
from maskwright.finetuning.conll import TaggedSentence, find_word_rule
from maskwright.finetuning.examples import Row
from maskwright.finetuning.fit import (
    FinishedSeeds,
    SeedsResult,
    add_beside,
    add_control,
    ask_teacher,
    collect_results,
    train_seeds,
)
from maskwright.finetuning.fit_beside import FittedBeside, check_beside, fit_beside
from maskwright.finetuning.metrics import (
    RESULTS_NAME,
    VALID_LOSS,
    Baselines,
    FoldResults,
    Results,
    describe_constant,
    describe_scores,
    get_judged,
    show_mean,
    summarize,
)
from maskwright.finetuning.network import check_pooling
from maskwright.finetuning.report import (
    Predictions,
    add_classes,
    answer_sets,
    name_predictions,
    write_page,
    write_predictions,
)
from maskwright.finetuning.resume import owning_run, record_end, record_start
from maskwright.finetuning.split import cut_folds, split_examples
from maskwright.finetuning.task import (
    CustomTask,
    TaskData,
    Tell,
    encode_sets,
    load_label_task,
    load_task,
    read_task,
    report_columns,
)
from maskwright.formatting import count_noun, describe_cut, show_score, write_code
from maskwright.logs import MetricsLog, Record
from maskwright.model.classifier import Classifier
from maskwright.model.masked_lm import EncoderModel
from maskwright.model_folder.classifier_folder import open_pretrained, save_classifier
from maskwright.model_folder.folder import Loaded
from maskwright.model_folder.model_card import add_example
from maskwright.runs.find_model import find_model_folder
from maskwright.runs.run_directory import CHECKPOINTS_NAME, METRICS_NAME, MODEL_NAME
from maskwright.tokenizer.token_text import make_examples
from maskwright.train.device import choose_device, describe_computation

_MAX_SHOWN_LABELS = 12
_MODEL = "this model"  # beside the baselines of folds
_MIN_SCORED = 100  # examples; with fewer, one prediction changes the accuracy by over 0.01


def check_alone(flags: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise InputError for a flag or a setting beside ``--resume``."""
    unset = (None, False, TaskFiles.valid_share)
    given = [_show_flag(name) for name, value in flags.items() if value not in unset]
    given += [f"--{name}" for name in settings]
    if given:
        raise InputError(f"--resume continues a run with its own settings. Remove {given[0]}.")


def _show_flag(name: str) -> str:
    return "MODEL" if name == "folder" else f"--{name.replace('_', '-')}"


def make_request(flags: Mapping[str, Any], settings: Mapping[str, Any]) -> Request:
    """Return the request from arguments; raise MaskwrightError if one is wrong."""
    missing = [_show_flag(name) for name in ("folder", "train", "out") if flags[name] is None]
    if missing:
        raise InputError(f"give {' and '.join(missing)}, or --resume RUN alone")
    config, share = from_mapping(FinetuneConfig, settings), flags["valid_share"]
    if (flags["task"] is None) == (flags["preset"] is None):
        raise InputError("give either --task or --preset, such as --task classification")
    if not 0 < share < 1:
        raise InputError(f"--valid-share = {share} must be between 0 and 1")
    if flags["valid"] and share != TaskFiles.valid_share:
        raise InputError("--valid-share has no effect with --valid. Remove one of them.")
    for name, known in (("task", list(TASKS)), ("preset", list(GLUE_TASKS))):
        if flags[name] is not None and flags[name] not in known:
            raise suggest(name, flags[name], known, f"choose from {', '.join(known)}")
    _check_split(flags, config)
    preset = GLUE_TASKS.get(flags["preset"])
    task = load_task(preset.task if preset else flags["task"])
    columns = name_roles(flags["columns"] or {}, task.roles, task.name)
    default = FinetuneConfig()
    for name in task.unused:
        if flags[name] if name in flags else getattr(config, name) != getattr(default, name):
            raise InputError(f"--{name} has no effect with --task {task.name}. Remove it.")
    check_beside(task, config)
    config.distill.check_teacher(flags["teacher"])
    model = find_model_folder(flags["folder"])
    teacher = None if flags["teacher"] is None else find_model_folder(flags["teacher"])
    train = Path(flags["train"])
    others = {n: None if flags[n] is None else Path(flags[n]) for n in ("valid", "test")}
    more: dict[str, Any] = {**others, "has_header": flags["header"], "valid_share": share}
    more |= {"group": flags["group"], "valid_after": flags["valid_after"]}
    if preset:  # with --columns the file is not GLUE's own, so short rows are errors
        named = parse_columns(columns)
        files = preset.make_files(train, named, skips_short=not columns, **more)
    else:
        found = task.find_columns(train, columns)
        files = TaskFiles(task=task.name, train=train, columns=found, **more)
    return Request(model, files, config, flags["control"], teacher)


def _check_split(flags: Mapping[str, Any], config: FinetuneConfig) -> None:
    """Raise InputError for a group or a time that cannot split the examples."""
    after = flags["valid_after"]
    for name in ("group", "valid_after"):
        if flags[name] and (flags["valid"] or flags["preset"]):
            other = "--valid" if flags["valid"] else "--preset"
            raise InputError(f"{_show_flag(name)} has no effect with {other}. Remove one of them.")
    if after is None:
        return
    if not all(after.partition("=")[::2]):
        raise InputError(f"--valid-after {after} must be COLUMN=VALUE, such as date=2026-01-01")
    if config.folds or flags["group"]:
        other = "--folds" if config.folds else "--group"
        raise InputError(f"--valid-after cannot be combined with {other}. Remove one of them.")


def run_request(request: Request, out: Path, report: Tell) -> None:
    """Train the seeds that are not finished; resume an unfinished run of the same request."""
    task = load_task(request.files.task)
    with owning_run(out, request, report) as is_due:
        if not is_due:
            report(f"{out} is already finished; nothing to do")
            return
        if isinstance(task, CustomTask):
            task.train(request, out, report)
        else:
            _train_labels(request, out, report)
        record_end(out)


def _train_labels(request: Request, out: Path, report: Tell) -> None:
    """Train all seeds; write the model, the results, the predictions and the HTML report."""
    files, config = request.files, request.config
    device = choose_device(config.device, field="device")
    loaded = open_pretrained(request.model)
    task = load_label_task(files.task)
    check_pooling(loaded.model.config, task.level, config.pooling)
    report_columns(task, files, report)
    report(f"reading {files.train}, scoring baselines")
    data = read_task(files, loaded, config)
    for line in describe_data(data):
        report(line)
    config = config.resolve(len(data.train), loaded.model.config.hidden_size)
    computation = describe_computation(config.precision, device)
    report(config.describe_budget(computation))
    pulse = Pulse(report)
    if request.teacher is not None:
        answers = ask_teacher(request.teacher, data, config, pulse)
        data = replace(data, soft_targets=answers)
    folds: FoldResults | None = None
    if config.folds:
        report(f"{config.folds} folds, each scored by a model of the others:")
        folds = cross_validate(request, loaded, device, pulse)
        extent = f"{len(data.train.rows):,} examples; {len(data.valid.rows):,} choose its weights"
        report(f"the model that is saved is trained on {extent}:")
    record_start(out, request, config, report)
    (out / METRICS_NAME).unlink(missing_ok=True)  # finished seeds have theirs in the checkpoint
    metrics, checkpoints = MetricsLog(out / METRICS_NAME), out / CHECKPOINTS_NAME
    with closing(metrics):
        parts = data, loaded.model, config, device, metrics, pulse
        outcome = _train_logged(checkpoints, *parts)
        results = collect_results(data, outcome, computation)
        if folds is not None:
            results["folds"] = folds
        predictions, beside = _answer(request, data, loaded, outcome.model, results, pulse)
        results["saved_seed"] = outcome.saved_seed
        add_classes(results, predictions)
        card = _write_card(results, request.origin)
        if not config.private:  # words of the vocabulary, which may be of a private text, too
            num_texts = len(data.held_out[-1].rows[0].texts)
            card = add_example(card, make_examples(loaded.tokenizer, num_texts))
        finish = beside and partial(beside.saved.save, pretrained=request.model)
        kept = data, loaded, config.max_length, finish
        _save_model(out / MODEL_NAME, outcome.model, card, *kept)
        write_json(out / RESULTS_NAME, results)
        if request.control:  # after the model is written, since the control may be interrupted
            report("control: the same shape with random weights:")
            control = _train_logged(checkpoints / "control", *parts, from_scratch=True)
            add_control(results, control)
            write_json(out / RESULTS_NAME, results)
    if not config.private:
        write_predictions(out, predictions[-1])
    write_page(out, results, predictions[-1], report)


def _answer(
    request: Request,
    data: TaskData,
    loaded: Loaded[Any],
    model: Classifier,
    results: Results,
    pulse: Pulse,
) -> tuple[list[Predictions], FittedBeside | None]:
    """Return the predictions for validation and test examples, and the linear model beside.

    With one the scores in the results become those of both together.
    """
    device = choose_device(request.config.device, field="device")
    answers = answer_sets(data, model, device, pulse)
    beside = fit_beside(request, data, loaded, device, pulse)
    if beside is not None:
        pairs = zip(data.held_out, answers, strict=True)
        answers = [beside.answer(data, examples, logits) for examples, logits in pairs]
        add_beside(results, data, answers)
    sets = zip(data.held_out, answers, strict=True)
    return [name_predictions(data.task, data.labels, *each) for each in sets], beside


def _save_model(
    folder: Path,
    model: Classifier,
    card: str,
    data: TaskData,
    loaded: Loaded[Any],
    max_length: int | None,
    finish: Callable[[Path], None] | None,
) -> None:
    rows, level = data.train.rows, data.task.level
    num_texts = len(data.held_out[-1].rows[0].texts)
    save_classifier(
        folder,
        model,
        loaded.tokenizer,
        data.labels.names,
        data.task.problem,
        card,
        add_special_tokens=loaded.add_special_tokens,
        max_length=max_length,
        num_texts=None if level == "token" else num_texts,
        may_be_empty=data.labels.num_unanswerable > 0,
        words=find_word_rule(row.words for row in rows if isinstance(row, TaggedSentence)),
        finish=finish,
    )


def _train_logged(
    folder: Path,
    data: TaskData,
    pretrained: EncoderModel,
    config: FinetuneConfig,
    device: torch.device,
    metrics: MetricsLog,
    pulse: Pulse,
    *,
    from_scratch: bool = False,
) -> SeedsResult:
    """Train the seeds without a checkpoint in `folder`; scores are reported and logged.

    The records of a control, which begins `from_scratch`, are marked.
    """
    marks = {"run": "control"} if from_scratch else {}
    deciding, shown = data.deciding, {*data.metrics, data.deciding, VALID_LOSS}
    finished = FinishedSeeds.read(folder, pulse.say)
    for run in finished.runs:
        for record in run.history:
            metrics.write({**record, **marks})
        score = f"{deciding} {show_score(run.scores[deciding])}"
        pulse.say(f"  seed {run.seed} is already finished: {score}")

    def log(record: Record) -> None:
        metrics.write({**record, **marks})
        step = f"seed {record['seed']}  epoch {record['epoch']:.2f}  loss {record['loss']:.4f}"
        scores = {name: value for name, value in record.items() if name in shown}
        pulse.say(f"  {step}  {describe_scores(scores)}")

    return train_seeds(
        data, pretrained, config, device, log,
        from_scratch=from_scratch, pulse=pulse, finished=finished,
    )  # fmt: skip


def describe_data(data: TaskData) -> Iterator[str]:
    """Yield lines about label counts, example counts and baselines."""
    labels = data.labels
    if data.task.has_classes:
        pairs = zip(labels.names, labels.counts, strict=True)
        named = [f"{name} {count:,}" for name, count in pairs]
        if len(named) > _MAX_SHOWN_LABELS:
            named[_MAX_SHOWN_LABELS:] = [f"and {len(named) - _MAX_SHOWN_LABELS} more"]
        yield f"{count_noun(len(labels.names), 'label')}: {'  '.join(named)}"
    if labels.num_unanswerable:
        yield f"{count_noun(labels.num_unanswerable, 'question')} without an answer"
    sets = [data.train, *data.held_out]
    if cut := sum(each.num_cut for each in sets):
        longest = max(max(each.lengths) for each in sets)
        yield describe_cut(cut, sum(map(len, sets)), longest)
    names = ("training", "validation", "test")
    counted = [f"{len(each.rows):,} {name}" for name, each in zip(names, sets, strict=False)]
    yield f"examples: {', '.join(counted)}"
    yield from describe_skipped(data)
    if (judged := len(data.held_out[-1].rows)) < _MIN_SCORED:
        flag = "--valid" if data.test is None else "--test"
        yield (
            f"only {judged:,} examples are scored: scores will be noisy. Give {_MIN_SCORED} or "
            f"more with {flag}."
        )
    for name, scores in data.baselines.items():
        yield f"  {name}: {describe_scores(scores)}"


def describe_skipped(data: TaskData) -> Iterator[str]:
    """Yield a line for each file in which rows were skipped, and the notes on the examples."""
    yield from data.task.notes
    for name, count in data.skipped.items():
        yield f"{count_noun(count, 'row')} of {name} skipped: fewer columns than the task needs"


def _write_card(results: Results, origin: str) -> str:
    judged, deciding = get_judged(results), results["deciding_metric"]
    baselines, in_folds = judged["baselines"], ""
    if folds := results.get("folds"):
        in_folds = f" In {folds['count']} folds: {show_mean(folds['scores'][deciding])}."
    beside = ""
    if alone := baselines.get("encoder alone"):
        beside = (
            " maskwright adds the logits of a linear model of words and vectors (`beside`), which "
            f"other libraries and exports do not have: with the encoder alone it is "
            f"{show_score(alone[deciding])}."
        )
    return (
        f"# A model fine-tuned for {results['task']}\n\n"
        f"Fine-tuned by maskwright from {write_code(origin)} on "
        f"{results['train_examples']:,} examples. {deciding} on "
        f"{judged.get('examples', 0):,} {'test' if 'test' in results else 'validation'} examples"
        f"{'' if 'test' in results else ', which selected the weights'}: "
        f"{show_score(judged['scores'][deciding]['mean'])} "
        f"({count_noun(len(results['runs']), 'run')}; always {describe_constant(results['task'])}: "
        f"{show_score(baselines['majority'][deciding])}, bag of words: "
        f"{show_score(baselines['bag of words'][deciding])}).{in_folds}{beside}\n"
    )


def cross_validate(
    request: Request, loaded: Loaded[Any], device: torch.device, pulse: Pulse
) -> FoldResults:
    """Train and score a model for each fold; return the mean scores, and those of the baselines.

    Raise ConfigError if there are too few examples for the folds.
    """
    config, scores = replace(request.config, seeds=1), list[Baselines]()
    num_scored = 0
    for number, data in enumerate(_list_folds(request, loaded), start=1):
        if request.teacher is not None:
            answers = ask_teacher(request.teacher, data, config, pulse)
            data = replace(data, soft_targets=answers)
        [run] = train_seeds(data, loaded.model, config, device, pulse=pulse).runs
        scores.append({**data.test_baselines, _MODEL: run.test_scores})
        num_scored += len(data.held_out[-1].rows)
        shown = "  ".join(
            f"{name} {show_score(each[data.deciding])}" for name, each in scores[-1].items()
        )
        pulse.say(f"  fold {number} of {config.folds}  {data.deciding}  {shown}")
    # A kind of entity, such as span_f1/PER, may be missing in a fold.
    kept = [metric for metric in scores[0]["majority"] if "/" not in metric]
    means = {
        name: summarize([{metric: each[name][metric] for metric in kept} for each in scores])
        for name in scores[0]
    }
    model = means.pop(_MODEL)
    return {"count": config.folds, "examples": num_scored, "baselines": means, "scores": model}


def _list_folds(request: Request, loaded: Loaded[Any]) -> Iterator[TaskData]:
    """Yield the data of each fold, whose examples are the test examples."""
    files, count = request.files, request.config.folds
    task, skipped = load_label_task(files.task), Counter[str]() if files.skips_short else None
    rows = task.read(files.train, files, skipped)
    valid = None if files.valid is None else task.read(files.valid, files, skipped)
    labels = [task.list_labels(row) for row in rows]
    folds = cut_folds(rows, labels, count)
    if not all(folds):
        most = sum(map(bool, folds))
        rule = f"is too many: the {len(rows):,} examples of {files.train} fill {most} folds"
        raise ConfigError("folds", count, rule, "Give fewer folds, or more examples.")
    for fold in folds:
        rest = sorted({*range(len(rows))} - {*fold})
        train, chosen = [rows[n] for n in rest], valid
        if chosen is None:
            train, chosen = split_examples(train, [labels[n] for n in rest], files.valid_share)
        if not train or not chosen:
            raise ConfigError("folds", count, "leaves too few examples to train", "Give more.")
        sets: list[Sequence[Row]] = [train, chosen, [rows[n] for n in fold]]
        yield encode_sets(task, sets, files, loaded, request.config)
