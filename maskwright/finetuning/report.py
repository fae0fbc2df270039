"""Reports of a run: scores by class, predictions, and ``report.html``. N examples."""

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskwright.config import read_yaml
from maskwright.console import Pulse
from maskwright.files import replacing_file, write_json, write_text
from maskwright.finetuning.conll import OUTSIDE, TaggedSentence, marks_entities
from maskwright.finetuning.examples import Examples, Row
from maskwright.finetuning.metrics import (
    ClassScores,
    Results,
    SetResults,
    SpanScores,
    describe_constant,
    describe_defeats,
    get_judged,
    list_scores,
    score_sets,
    score_spans,
    show_mean,
)
from maskwright.finetuning.network import compute_logits
from maskwright.finetuning.span_task import Question, score_answer
from maskwright.finetuning.task import (
    Answer,
    Labels,
    LabelTask,
    Logits,
    TaskData,
    Tell,
    make_answers,
    name_values,
)
from maskwright.finetuning.text_tasks import Ranking
from maskwright.logs import Record, read_metrics
from maskwright.model.classifier import Classifier
from maskwright.provenance import show_computation
from maskwright.report.charts import COLORS, FAINT, annotate_level, has_matplotlib, render
from maskwright.report.pages import fill_template
from maskwright.runs.evaluation_file import to_plain
from maskwright.runs.run_directory import CONFIG_NAME, METRICS_NAME, REPORT_NAME

_MAX_CLASSES = 20  # in a confusion matrix; a larger one is unreadable
_MAX_MISTAKES, _MAX_CONFUSIONS = 30, 20
_MAX_CHARACTERS = 600
Probability = float | list[float] | None  # of an answer: of its label, or of each of its labels


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for a set of examples, in their order.

    Attributes:
        rows: the N examples.
        true, found: [N] labels, lists of labels (for multi-label tasks and words), or numbers.
        probabilities: [N] the probability of each prediction, of each of its labels if there may be
            several; None for numbers and words.
    """

    task: LabelTask
    labels: Labels
    rows: Sequence[Row]
    true: list[Any]
    found: list[Any]
    probabilities: Sequence[Probability]

    def __iter__(self) -> Iterator[tuple[list[str], Any, Any, Probability]]:
        """Yield the texts of each example, its true value, the prediction, and its probability."""
        texts = [row.texts for row in self.rows]
        yield from zip(texts, self.true, self.found, self.probabilities, strict=True)

    def score_classes(self) -> dict[str, ClassScores]:
        """Return precision, recall, F1 and count of each class or kind of entity."""
        if self.task.level == "token" and marks_entities(self.labels.names):
            classes = score_spans(self.true, self.found)[1]
        else:
            sets = [({*true}, {*found}) for true, found in self._pair_up()]
            known = score_sets((true, found, true & found) for true, found in sets)
            names = self.labels.names if sets else ()
            classes = {name: known.get(name, SpanScores(0, 0, 0)) for name in names}
        return to_plain(
            {
                name: {"precision": s.precision, "recall": s.recall, "f1": s.f1}
                | {"examples": s.num_true}
                for name, s in classes.items()
            }
        )

    def count_confusions(self) -> dict[str, dict[str, int]]:
        """Return label or tag -> prediction -> count, without zeros; {} for other tasks."""
        if self.task.problem == "multi_label_classification":
            return {}
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for (true,), (found,) in self._pair_up():
            counts[true][found] += 1
        return {
            name: {other: counts[name][other] for other in self.labels.names if counts[name][other]}
            for name in self.labels.names
            if name in counts
        }

    def _pair_up(self) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield the true and the predicted labels of each text, or of each word."""
        pairs = zip(self.true, self.found, strict=True) if self.task.has_classes else ()
        for true, found in pairs:
            if self.task.level == "token":
                yield from (((t,), (f,)) for t, f in zip(true, found, strict=True))
            elif self.task.problem == "multi_label_classification":
                yield true, found
            else:
                yield (true,), (found,)


def answer_sets(
    data: TaskData,
    model: Classifier,
    device: torch.device,
    pulse: Pulse | None = None,
) -> list[list[Logits]]:
    """Return the logits of the validation examples, and of the test examples if there are any."""
    model.to(device)
    found = [compute_logits(model, one, data.pad_id, "fp32", pulse) for one in data.held_out]
    model.cpu()
    return found


def name_predictions(
    task: LabelTask, labels: Labels, examples: Examples, logits: Sequence[Logits]
) -> Predictions:
    """Return the true values and the predictions of examples, by the names of labels."""
    rows, found = examples.rows, task.collect(examples, logits)
    if task.level == "span":
        true = [row.answers for row in rows if isinstance(row, Question)]
        answers: list[Answer] = found
    elif examples.sentences is not None:
        true, tags = (
            [name_values(task.problem, labels, np.asarray(one)) for one in each]
            for each in (examples.sentences.targets, found)
        )
        return Predictions(task, labels, rows, true, tags, [None] * len(true))
    else:
        true = name_values(task.problem, labels, np.asarray(examples.targets))
        answers = make_answers(task.problem, labels, np.stack(logits))
    names, probabilities = [one.label for one in answers], list(map(_find_probability, answers))
    return Predictions(task, labels, rows, true, names, probabilities)


def _find_probability(answer: Answer) -> Probability:
    if isinstance(answer.label, list):
        return [answer.probabilities[name] for name in answer.label]
    return answer.score


def rate_mistake(task: LabelTask, true: Any, found: Any, probability: Probability) -> float | None:
    """Return the severity of a wrong answer, by which the report sorts; None if it is right."""
    certainty = probability if isinstance(probability, float) else 0.0
    if task.level == "token":
        return sum(one != other for one, other in zip(true, found, strict=True)) or None
    if task.level == "span":
        return None if score_answer(found, true)[0] == 1 else certainty
    if isinstance(task, Ranking):
        sigmoid = (1 + math.tanh(found / 2)) / 2
        return None if (true > 0.5) == (found > 0) else abs(true - sigmoid)
    if task.problem == "regression":
        return abs(true - found) or None
    if task.problem == "multi_label_classification":
        return len({*true} ^ {*found}) or None
    return None if true == found else certainty


def add_classes(results: Results, predictions: Sequence[Predictions]) -> None:
    """Add the saved model's scores by class and its confusion matrix to the results."""
    sets: list[SetResults] = [results, *([results["test"]] if "test" in results else [])]
    for found, each in zip(sets, predictions, strict=True):
        if classes := each.score_classes():
            found["classes"] = classes
        if confusions := each.count_confusions():
            found["confusion_matrix"] = confusions


def _name_predictions(predictions: Predictions) -> str:
    kinds = {"span": "json", "token": "conll"}
    return f"predictions.{kinds.get(predictions.task.level, 'csv')}"


def write_predictions(folder: Path, predictions: Predictions) -> Path:
    """Write ``predictions.csv``; for tags ``predictions.conll``: word, true tag, prediction.

    Answers to questions go to ``predictions.json``, which the script of SQuAD reads: id -> answer.
    """
    path = folder / _name_predictions(predictions)
    if predictions.task.level == "span":
        keys = [row.key for row in predictions.rows if isinstance(row, Question)]
        write_json(path, dict(zip(keys, predictions.found, strict=True)))
        return path
    # A text from JSON may hold a lone surrogate, which UTF-8 cannot encode.
    with (
        replacing_file(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        if predictions.task.level == "token":
            file.writelines(_list_lines(predictions))
        else:
            csv.writer(file).writerows(_list_rows(predictions))
    return path


def _list_lines(predictions: Predictions) -> Iterator[str]:
    for row, true, found in zip(predictions.rows, predictions.true, predictions.found, strict=True):
        assert isinstance(row, TaggedSentence)
        yield from (f"{w}\t{t}\t{f}\n" for w, t, f in zip(row.words, true, found, strict=True))
        yield "\n"


def _list_rows(predictions: Predictions) -> Iterator[list[str]]:
    has_probability = any(one is not None for one in predictions.probabilities)
    for number, (texts, true, found, probability) in enumerate(predictions):
        if number == 0:
            names = ["sentence1", "sentence2"][: len(texts)]
            yield [*names, "label", "prediction", *["probability"] * has_probability]
        shown = [_show_probability(probability, 4)] * has_probability
        yield [*texts, show_label(true), show_label(found), *shown]


def _show_probability(value: Probability, num_digits: int) -> str:
    """Return a probability, or those of several labels as ``0.9|0.7``, like the labels."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return "|".join(f"{one:.{num_digits}f}" for one in values)


def show_label(value: Any) -> str:
    """Return a label, several labels as ``a|b``, or a number."""
    if isinstance(value, float):
        return np.format_float_positional(np.float32(value), trim="-")  # all digits of float32
    return str(value) if isinstance(value, str) else "|".join(value)


def write_page(out: Path, results: Results, predictions: Predictions, report: Tell) -> None:
    """Write the HTML report; on an error only report it, since the run is complete without."""
    try:
        records, config = read_metrics(out / METRICS_NAME), read_yaml(out / CONFIG_NAME)
        page = render_page(out.absolute().name, results, records, predictions, config)
        write_text(out / REPORT_NAME, page)
    except Exception as error:
        report(f"no {REPORT_NAME}: {error}")


def render_page(
    name: str,
    results: Results,
    records: Sequence[Record],
    predictions: Predictions,
    config: Mapping[str, Any],
) -> str:
    """Return the report of a run as HTML.

    Args:
        records: the records of its metrics.jsonl.
        predictions: the saved model's, for the test examples, or else the validation examples.
    """
    judged = get_judged(results)
    models = ["random encoder"] * ("random_encoder" in judged) + ["this model"]
    confusions = judged.get("confusion_matrix", {})
    matrix = _shade(confusions, list(results["labels"]))
    return fill_template(
        "finetuning.html.j2",
        title=name,
        facts=list(_list_facts(results, judged, predictions.task)),
        columns=[*(_entitle(each, results) for each in judged["baselines"]), *models],
        scores=list_scores(judged),
        notes=describe_defeats(results),
        judged="test" if "test" in results else "validation",
        classes=judged.get("classes", {}),
        matrix=matrix if len(matrix) <= _MAX_CLASSES else [],
        confusions=_list_confusions(confusions),
        mistakes=[] if config.get("private") else list(_list_mistakes(predictions)),
        mistakes_note=predictions.task.mistakes_note,
        predictions_name=_name_predictions(predictions),
        curves=_draw_curves(records, results) if has_matplotlib() else None,
        config=[(key, str(value)) for key, value in config.items()],
    )


def _entitle(baseline: str, results: Results) -> str:
    return describe_constant(results["task"]) if baseline == "majority" else baseline


def _list_facts(results: Results, judged: SetResults, task: LabelTask) -> Iterator[tuple[str, str]]:
    metric = results["deciding_metric"]
    seeds, labels = len(results["runs"]), results["labels"]
    yield metric, show_mean(judged["scores"][metric])
    if folds := results.get("folds"):
        yield f"{metric} in {folds['count']} folds", show_mean(folds["scores"][metric])
    yield "task", results["task"]
    if task.problem != "regression":
        yield "labels", f"{len(labels):,}"
    extent = f"{results['train_examples']:,} training, {results['valid_examples']:,} validation"
    tested = f", {judged.get('examples', 0):,} test" if "test" in results else ""
    yield "examples", f"{extent}{tested}"
    yield "runs", f"{seeds} (saved: seed {results.get('saved_seed')})"
    seconds = sum(run["seconds"] for run in results["runs"])
    where = f", on {show_computation(results['computation'])}"
    yield "minutes of training", f"{seconds / 60:.1f}{where}"


def _shade(
    confusions: Mapping[str, Mapping[str, int]], labels: Sequence[str]
) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the count of each prediction for each label, and its share of the row in percent."""
    rows: list[tuple[str, list[tuple[int, int]]]] = []
    for label in labels if confusions else ():
        counts = confusions.get(label, {})
        total = sum(counts.values()) or 1
        row = [(counts.get(name, 0), round(100 * counts.get(name, 0) / total)) for name in labels]
        rows.append((label, row))
    return rows


def _list_confusions(confusions: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, int]]:
    found = [
        (true, prediction, count)
        for true, counts in confusions.items()
        for prediction, count in counts.items()
        if prediction != true
    ]
    return sorted(found, key=lambda each: -each[2])[:_MAX_CONFUSIONS]


def _list_mistakes(predictions: Predictions) -> Iterator[dict[str, Any]]:
    """Yield the mistakes, worst first: by the model's confidence, or by the numeric error."""
    rated = [
        (severity, row, example)
        for row, example in zip(predictions.rows, predictions, strict=True)
        if (severity := rate_mistake(predictions.task, *example[1:])) is not None
    ]
    rated.sort(key=lambda each: -each[0])
    for _, row, (texts, true, found, probability) in rated[:_MAX_MISTAKES]:
        if isinstance(row, TaggedSentence):
            yield {"parts": list(_mark_tags(row.words, true, found))}
            continue
        yield {
            "texts": [
                text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} …"
                for text in texts
            ],
            "true": show_label(true) or "none",
            "found": show_label(found) or "none",
            "probability": _show_probability(probability, 3),
        }


def _mark_tags(
    words: Sequence[str], true: Sequence[str], found: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield each word with its style (``right`` or ``wrong`` where there is a tag) and a note."""
    for word, tag, prediction in zip(words, true, found, strict=True):
        if tag == prediction:
            yield ("right" if tag != OUTSIDE else "", word, "")
        else:
            yield "wrong", word, f"{prediction}, not {tag}"


def _draw_curves(records: Sequence[Record], results: Results) -> str:
    """Return plots of the deciding metric and both losses by epoch, a line for each seed."""
    metric = results["deciding_metric"]
    panels = ((metric, f"{metric}, validation"), ("loss", "training loss"))
    panels = (*panels, ("valid_loss", "validation loss"))
    keys = dict.fromkeys((str(r.get("run", "")), int(r["seed"])) for r in records)

    def draw(figure: Any) -> None:
        grid = figure.subplots(1, 3)
        for axes, (name, title) in zip(grid, panels, strict=True):
            for run, seed in keys:
                mine = [r for r in records if (str(r.get("run", "")), r["seed"]) == (run, seed)]
                known = [(r["epoch"], r[name]) for r in mine if isinstance(r[name], int | float)]
                known = known or [(math.nan, math.nan)]
                color = FAINT if run else COLORS[seed % len(COLORS)]
                label = "random encoder" if run else f"seed {seed}"
                style = "--" if run else "-"
                axes.plot(*zip(*known, strict=True), style, color=color, linewidth=1.4, label=label)
            if name == metric:
                for baseline, scores in results["baselines"].items():
                    if (level := scores[metric]) is not None:
                        axes.axhline(level, color=FAINT, linewidth=1, linestyle=(0, (2, 3)))
                        annotate_level(axes, level, _entitle(baseline, results))
            axes.set_title(title, loc="left", fontsize=9.5)
            axes.set_xlabel("epochs")
            axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        handles = dict(zip(*reversed(grid[0].get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=6, frameon=False)

    return render(draw, 11, 3.4, f"{metric} and losses by epoch")
