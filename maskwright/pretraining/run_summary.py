"""The description of a finished run: lines on the terminal, and a model card."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from maskwright.config import to_mapping, write_yaml
from maskwright.files import as_mapping
from maskwright.formatting import escape_markdown, write_code, write_code_block
from maskwright.logs import Record, of_sources
from maskwright.objectives.objective import Objective, ScoreLine
from maskwright.preparation.tasks import EXTENSION_KEY
from maskwright.pretraining.prepared_data import PreparedData, describe_sources
from maskwright.provenance import describe_cpu, describe_environment
from maskwright.runs.config import PretrainConfig
from maskwright.runs.metadata import shorten_path, shorten_paths

_CARD = """\
# {name}

{title} {origin} with maskwright {version}.

## Scores

On held-out text, with the same masks every time (15 % of the tokens, 80/10/10):

{scores}

{notes}

## Data

{text}: {train_tokens:,} tokens in {documents:,} documents, and {valid_tokens:,} held-out tokens.
{mixture}Tokenizer: {kind}, {vocabulary:,} tokens, {case}, fingerprint `{fingerprint}`.{extension}

## Training

Seed {seed}, {steps:,} steps, {minutes:.1f} minutes on {circumstances}.

<details>
<summary>The whole configuration</summary>

{recipe}
</details>
"""

_EXTENSION = """
Of these, {new:,} were added to a vocabulary of {base:,} and trained on this text. Held-out text now
has {after:.3f} tokens per word, before {before:.3f}.
"""
_REPLACEMENT = """
They replace a vocabulary of {base:,} and were trained on this text. Held-out text now has
{after:.3f} tokens per word, before {before:.3f}.
"""


def describe_training(
    name: str,
    version: str,
    config: PretrainConfig,
    data: PreparedData,
    objective: Objective[Any],
    title: str,
    final: Record,
    before: Record | None = None,
    origin: Mapping[str, Any] | None = None,
    teacher: Mapping[str, Any] | None = None,
) -> str:
    """Return Markdown for the card, from the run's last validation record.

    Args:
        title: kind of model, at the start of the first sentence.
        before: the validation record of the model that the run began with.
        origin: the entry of provenance.json on that model.
        teacher: the entry on the model that the run learned from.
    """
    source = data.train.manifest.source
    return _CARD.format(
        name=escape_markdown(name),
        title=title,
        version=version,
        origin=_describe_lineage(origin, teacher),
        scores=_tabulate(objective.scores, final, before),
        notes=objective.notes.format(**final),
        steps=final["step"],
        minutes=final["seconds"] / 60,
        text=_list_paths(source),
        train_tokens=data.train.num_tokens,
        documents=data.train.num_documents,
        valid_tokens=data.valid.num_tokens,
        mixture=_list_sources(data),
        kind=_describe_tokenizer(config),
        vocabulary=data.tokenizer.vocab_size,
        case=data.tokenizer.case,
        fingerprint=data.tokenizer.fingerprint[:12],
        extension=_describe_extension(source.get(EXTENSION_KEY)),
        seed=config.seed,
        circumstances=_describe_machine(config.train.device),
        recipe=write_code_block(write_yaml(shorten_paths(to_mapping(config))), "yaml"),
    )


def _describe_tokenizer(config: PretrainConfig) -> str:
    """Return the origin of the tokenizer, or its kind if the run trained it."""
    if config.init_from is not None:
        return f"that of {write_code(shorten_path(config.init_from))}"
    path = config.tokenizer.path
    return config.tokenizer.kind if path is None else write_code(shorten_path(path))


def _list_paths(source: Mapping[str, Any]) -> str:
    """Return the names of the texts in a manifest of unknown origin."""
    paths = source.get("paths")
    listed = cast(list[Any], paths) if isinstance(paths, list) else []
    names = [path for path in listed if isinstance(path, str)]
    return ", ".join(write_code(shorten_path(name)) for name in names) or "unknown text"


def _list_sources(data: PreparedData) -> str:
    """Return a Markdown list of the sources; empty for a single one."""
    lines = "".join(f"- {escape_markdown(line)}\n" for line in describe_sources(data))
    return f"\n{lines}\n" if lines else ""


def list_results(
    scores: Sequence[ScoreLine], final: Record, before: Record | None = None
) -> Iterator[str]:
    """Yield a line for each score of a run, with the score before it and the baseline."""
    lines = _list_lines(scores, final)
    width = max((len(line.title) for line in lines), default=0)
    for line in lines:
        old = before.get(line.name) if before is not None else None
        baseline = final.get(line.baseline)
        beside = "" if old is None else f"   before {old:.3f}"
        if baseline is not None:
            beside += f"   ({line.baseline_name}: {baseline:.3f})"
        yield f"  {line.title:<{width}}  {final[line.name]:.3f}{beside}"


def _tabulate(scores: Sequence[ScoreLine], final: Record, before: Record | None) -> str:
    """Return a table of the scores, the scores before the run if given, and the baselines."""
    lines = _list_lines(scores, final)
    names = {line.baseline_name for line in lines if line.baseline}
    baseline = names.pop() if len(names) == 1 else "baseline"
    columns = ["model", *["before"] * (before is not None), baseline]
    rows = [f"| | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for line in lines:
        figures = [final[line.name], final.get(line.baseline)]
        if before is not None:
            figures.insert(1, before.get(line.name))
        cells = ["" if figure is None else f"{figure:.4f}" for figure in figures]
        rows.append(f"| {escape_markdown(line.title)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _list_lines(scores: Sequence[ScoreLine], record: Record) -> list[ScoreLine]:
    """Return the lines for the scores of a record: of all text, then of each source."""
    lines = [line for line in scores if record.get(line.name) is not None]
    sources = dict.fromkeys(name for line in lines for name in of_sources(record, line.name))
    of_each = [
        replace(
            line,
            name=f"{line.name}/{source}",
            title=f"{line.title}, {source}",
            baseline=f"{line.baseline}/{source}",
        )
        for source in sources
        for line in lines
        if line.by_source
    ]
    return lines + [line for line in of_each if record.get(line.name) is not None]


def _describe_lineage(origin: Mapping[str, Any] | None, teacher: Mapping[str, Any] | None) -> str:
    began = f"continued from {_describe_origin(origin)}" if origin else "trained from scratch"
    if teacher is None:
        return began
    distilled = f"distilled from {_describe_origin(teacher)}"
    return distilled if origin is None else f"{began} and {distilled}"


def _describe_origin(origin: Mapping[str, Any]) -> str:
    """Return the name and the file hashes of the weights of a model that the run used."""
    hashes = as_mapping(origin.get("sha256")).items()
    files = [f"{escape_markdown(str(f))} {write_code(str(sha))}" for f, sha in hashes]
    name = write_code(shorten_path(str(origin.get("name"))))
    return f"{name} (sha256 of {', '.join(files)})"


def _describe_extension(extension: object) -> str:
    """Return a sentence on new tokens from a manifest of unknown origin; empty if none."""
    names = ("base_vocab_size", "vocab_size", "fertility_before", "fertility")
    found = as_mapping(extension)
    figures = [f for name in names if isinstance(f := found.get(name), int | float)]
    if len(figures) < len(names):
        return ""
    base, size, before, after = figures
    template = _REPLACEMENT if found.get("replaces") else _EXTENSION
    return template.format(new=size - base, base=base, before=before, after=after).rstrip()


def _describe_machine(device: str) -> str:
    """Return hardware and package versions of this machine, to end a sentence."""
    packages = describe_environment()["packages"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    if device != "cpu" and torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, with {versions}"
    return f"{describe_cpu()} ({os.cpu_count()} cores), with {versions}"
