"""Fine-tuning with its output: what is printed, and what a run directory holds afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from maskwright.console import Console
from maskwright.files import read_json, write_json
from maskwright.finetuning.answers import choose_example
from maskwright.finetuning.config import PROBLEMS, FinetuneConfig
from maskwright.finetuning.files import TaskFiles
from maskwright.finetuning.folder import (
    RESULTS_NAME,
    Asked,
    begin_run,
    end_run,
    owning_run,
)
from maskwright.finetuning.network import Pretrained, check_pooling
from maskwright.finetuning.report import (
    add_answers,
    show_classes,
    write_answers,
    write_page,
)
from maskwright.finetuning.scoring import VALID_LOSS, beats, describe_scores
from maskwright.finetuning.seeds import read_finished
from maskwright.finetuning.task import (
    Outcome,
    Problem,
    Summary,
    answer_sets,
    read_task,
    run_task,
)
from maskwright.formatting import count_noun, describe_cut, write_code
from maskwright.logs import MetricsLog
from maskwright.model_folder.card import add_example
from maskwright.model_folder.classifier_folder import open_pretrained, save_classifier
from maskwright.model_folder.folder import Loaded
from maskwright.progress import Pulse
from maskwright.runs.run_directory import CHECKPOINTS_NAME, METRICS_NAME, MODEL_NAME
from maskwright.train.device import choose_device

MAX_RESULTS_BYTES = 64 << 20
_SHOWN_LABELS = 12
_FEW = 100  # examples, of which scores have steps of a hundredth or more


def finetune_labels(
    folder: Path, files: TaskFiles, config: FinetuneConfig, out: Path, with_control: bool
) -> dict[str, Any]:
    """Train all seeds, print the table and write the run directory; return its ``results.json``.

    An unfinished run of the same arguments is resumed, a finished one left as it is.

    Raises:
        InputError: another process trains in `out`, or it holds something else.
    """
    console = Console(highlight=False, soft_wrap=True)

    def say(line: str) -> None:
        console.print(line, markup=False)

    asked = Asked(folder, files, config, with_control)
    with owning_run(out, asked, say) as is_due:
        if is_due:
            results = _run(asked, out, console)
            end_run(out)
        else:
            say(f"{out} is finished already: nothing is left to do")
            results = read_json(out / RESULTS_NAME, MAX_RESULTS_BYTES)
        say(f'\n{out / MODEL_NAME}: try  maskwright predict {out} "…"')
        return results


def _run(asked: Asked, out: Path, console: Console) -> dict[str, Any]:
    """What is left of a run."""
    files = asked.files
    assert isinstance(files, TaskFiles)
    device = choose_device(asked.config.device, field="device")
    loaded = open_pretrained(asked.model)
    level = "token" if files.task == "tokens" else "text"
    check_pooling(loaded.model.config, level, asked.config.pooling)
    console.print(f"reading {files.train}, scoring the baselines", markup=False)
    problem = read_task(files, loaded, asked.config)
    if files.columns:
        named = ", ".join(f"{role} = {column}" for role, column in files.columns.items())
        console.print(f"columns: {named}", markup=False)
    describe_problem(problem, console)
    config = asked.config.settle(len(problem.material.train), loaded.model.config.hidden_size)
    console.print(describe_budget(config))
    begin_run(out, asked, config, lambda line: console.print(line, markup=False))
    with _Seeds(out, problem, loaded.model, config, device, console) as seeds:
        outcome = seeds.train()
        results = summarise(problem, outcome)
        answers = answer_sets(problem, outcome.model, config, device, seeds.pulse)
        add_answers(results, answers, outcome.saved_seed)
        save_labels(
            out / MODEL_NAME,
            outcome,
            problem,
            loaded,
            results,
            asked.model,
            config.max_length,
            choose_example(answers[-1]),
        )
        write_json(out / RESULTS_NAME, results)
        if asked.control:  # the model is safe by now
            console.print("the same shape with random weights:")
            add_control(results, seeds.train(from_scratch=True))
            write_json(out / RESULTS_NAME, results)
    show_run(results, files, console)
    console.print()
    write_answers(out, answers, console)
    write_page(out, results, answers, describe_defeats(results), console)
    return results


class _Seeds:
    """All seeds of a run and of its control, with a line for each score and in metrics.jsonl."""

    def __init__(
        self,
        out: Path,
        problem: Problem,
        pretrained: Pretrained,
        config: FinetuneConfig,
        device: torch.device,
        console: Console,
    ) -> None:
        self.checkpoints, self.problem, self.pretrained = (
            out / CHECKPOINTS_NAME,
            problem,
            pretrained,
        )
        self.config, self.device = config, device
        self.pulse = Pulse(lambda line: console.print(line, markup=False))
        self.shown = {*problem.material.metrics, "span_f1", "accuracy", VALID_LOSS}
        path = out / METRICS_NAME
        path.unlink(missing_ok=True)  # the records of finished seeds are in their checkpoint
        self.log = MetricsLog(path)

    def __enter__(self) -> "_Seeds":
        return self

    def __exit__(self, *error: object) -> None:
        self.log.close()

    def train(self, from_scratch: bool = False) -> Outcome:
        """Train the seeds that are not finished yet."""
        marks = {"run": "control"} if from_scratch else {}
        folder = self.checkpoints / "control" if from_scratch else self.checkpoints
        finished = read_finished(folder, self.pulse.say)
        deciding = self.problem.material.deciding
        for run in finished.runs:
            for record in run.history:
                self.log.write({**record, **marks})
            score = f"{deciding} {run.scores[deciding]:.4f}"
            self.pulse.say(f"  seed {run.seed} is finished already: {score}")

        def report(record: dict[str, Any]) -> None:
            self.log.write({**record, **marks})
            counts = (
                f"seed {record['seed']}  epoch {record['epoch']:.2f}  loss {record['loss']:.4f}"
            )
            metrics = {name: record[name] for name in list(record) if name in self.shown}
            self.pulse.say(f"  {counts}  {describe_scores(metrics)}")

        return run_task(
            self.problem,
            self.pretrained,
            self.config,
            self.device,
            report,
            from_scratch=from_scratch,
            pulse=self.pulse,
            finished=finished,
        )


def show_run(results: Mapping[str, Any], files: TaskFiles, console: Console) -> None:
    """The tables of a run, and what they say against it."""
    if "test" in results:
        console.print(f"\non the {results['valid_examples']:,} examples that chose the weights:")
    show_results(results, console)
    if "test" in results:
        console.print(
            f"\non {results['test']['examples']:,} examples of {files.test}:", markup=False
        )
        show_results(results["test"], console)
    show_classes(results, console)
    for line in describe_defeats(results):
        console.print(line)


def describe_problem(problem: Problem, console: Console) -> None:
    """Labels with their counts, and how much there is."""
    material = problem.material
    labels = material.labels
    if labels.task != "regression":
        pairs = list(zip(labels.names, labels.counts, strict=True))
        named = "  ".join(f"{name} {count:,}" for name, count in pairs[:_SHOWN_LABELS])
        more = f"  and {len(pairs) - _SHOWN_LABELS} more" if len(pairs) > _SHOWN_LABELS else ""
        console.print(f"{count_noun(len(pairs), 'label')}: {named}{more}", markup=False)
    sets = (material.train, material.valid, material.test)
    given = [each for each in sets if each is not None]
    if cut := sum(each.num_cut for each in given):
        longest = max(max(each.lengths) for each in given)
        console.print(describe_cut(cut, sum(map(len, given)), longest))
    console.print(
        f"{len(material.train):,} examples to train on, {len(material.valid):,} to score on"
        + (f", {len(material.test):,} to test" if material.test else "")
    )
    for line in describe_skipped(problem):
        console.print(line, markup=False)
    judged, flag = (
        (material.valid, "--valid") if material.test is None else (material.test, "--test")
    )
    if len(judged) < _FEW:
        console.print(
            f"so few examples judge the model that scores will be rough: give {_FEW} or more "
            f"with {flag}"
        )
    for name, scores in problem.baselines.items():
        console.print(f"  {name}: {describe_scores(scores)}")


def describe_budget(config: FinetuneConfig) -> str:
    """What was chosen for this many examples and this model, if it was not given."""
    return f"epochs at most {config.epochs:g}, learning rate {config.learning_rate:g}"


def describe_skipped(problem: Problem) -> list[str]:
    """A line for each file that has rows with too few columns."""
    return [
        f"{count_noun(count, 'row')} of {name} skipped: fewer columns than the task needs"
        for name, count in problem.skipped.items()
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, Summary):
        return value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return value


def summarise(problem: Problem, outcome: Outcome) -> dict[str, Any]:
    """All that is known, for ``results.json``."""
    material, test = problem.material, problem.material.test
    found: dict[str, Any] = {
        "task": material.labels.task,
        "deciding_metric": material.deciding,
        "labels": dict(zip(material.labels.names, material.labels.counts, strict=True)),
        "train_examples": len(material.train),
        "valid_examples": len(material.valid),
        "skipped_rows": dict(problem.skipped),
        "baselines": problem.baselines,
        "scores": _plain(outcome.summarise()),
        "runs": [asdict(run) for run in outcome.runs],
    }
    if test is not None:
        judged = {"baselines": problem.test_baselines, "scores": outcome.summarise_test()}
        found["test"] = {"examples": len(test), **_plain(judged)}
    return found


def add_control(results: dict[str, Any], control: Outcome) -> None:
    """Adds what the same shape learned from random weights."""
    results["random_encoder"] = _plain(control.summarise())
    results["random_encoder_runs"] = [asdict(run) for run in control.runs]
    if "test" in results:
        results["test"]["random_encoder"] = _plain(control.summarise_test())


def save_labels(
    folder: Path,
    outcome: Outcome,
    problem: Problem,
    loaded: Loaded[Any],
    results: Mapping[str, Any],
    origin: Path,
    max_length: int | None,
    example: Sequence[str],
) -> None:
    """The classifier of the best run, with a card that says what it scores and has an example."""
    labels, deciding = problem.material.labels, outcome.deciding
    name = origin.parent.name if origin.name == MODEL_NAME else origin.name
    judged = results.get("test", {"examples": results["valid_examples"], **results})
    score = judged["scores"][deciding]["mean"]
    card = (
        f"# A model fine-tuned for {labels.task}\n\n"
        f"Fine-tuned by maskwright from {write_code(name)} on "
        f"{results['train_examples']:,} examples. {deciding} on "
        f"{judged['examples']:,} others{'' if 'test' in results else ', which chose the weights'}: "
        f"{score:.4f} ({count_noun(len(outcome.runs), 'run')}; always the most frequent answer: "
        f"{judged['baselines']['majority'][deciding]:.4f}, bag of words: "
        f"{judged['baselines']['bag of words'][deciding]:.4f}).\n"
    )
    save_classifier(
        folder,
        outcome.model,
        loaded.tokenizer,
        labels.names,
        PROBLEMS[labels.task],
        add_example(card, example),
        add_special_tokens=loaded.add_special_tokens,
        max_length=max_length,
        num_texts=None if labels.task == "tokens" else len(example),
    )


def show_results(results: Mapping[str, Any], console: Console) -> None:
    """A row for each metric: baselines, the random encoder if there is one, and the model.

    Means with their deviations are wide, and there are four of them at most, so that they stand in
    one line of a terminal; metrics may be more.
    """
    baselines = results["baselines"]
    models = {"random encoder": "random_encoder", "this model": "scores"}
    models = {title: key for title, key in models.items() if key in results}
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for title in (*baselines, *models):
        table.add_column(title, justify="right", no_wrap=True)
    for name in baselines["majority"]:
        if "/" in name:  # of one kind of entity
            continue
        row = [f"{scores[name]:.4f}" for scores in baselines.values()]
        table.add_row(name, *row, *(show_mean(results[key][name]) for key in models.values()))
    console.print()
    console.print(table)


def describe_defeats(results: Mapping[str, Any]) -> list[str]:
    """A line for each baseline that leaves no use for the model; on the test if there is one."""
    metric, judged = results["deciding_metric"], results.get("test", results)
    ours, baselines = judged["scores"][metric]["mean"], judged["baselines"]
    lines: list[str] = []
    if not beats(metric, ours, baselines["majority"][metric]):
        lines.append(
            "It says no more than the most frequent answer: more epochs, or more examples."
        )
    bag = baselines["bag of words"][metric]
    if beats(metric, bag, ours):
        lines.append(
            f"A bag of words does better: {metric} {bag:.4f}, this model {ours:.4f}. Such a model "
            "is not worth deploying."
        )
    return lines


def show_mean(found: Mapping[str, float | None]) -> str:
    """``0.9012 ± 0.0034``, or the value of a single run."""
    deviation = found["deviation"]
    return f"{found['mean']:.4f}" + (f" ± {deviation:.4f}" if deviation is not None else "")
