"""``maskwright prepare``: text to a prepared folder, with the settings of the run to train with."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from maskwright.config import Plain, from_mapping, merge, read_yaml
from maskwright.console import say
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.sources import keep_texts
from maskwright.errors import InputError
from maskwright.files import write_text
from maskwright.preparation import pipeline
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import read_tally
from maskwright.recipes import load_recipe
from maskwright.report.charts import check_matplotlib
from maskwright.report.pages import render_selection
from maskwright.runs.config import PretrainConfig
from maskwright.runs.find_model import find_model_folder
from maskwright.runs.run_directory import REPORT_NAME
from maskwright.shards.manifest import Manifest


def prepare(
    text: str | Path | Sequence[str | Path] = (),
    *,
    out: str | Path,
    texts: Iterable[str] | None = None,
    recipe: str | None = None,
    config: str | Path | None = None,
    seed: int = 0,
    report: bool = False,
    private: bool = False,
    **sections: Any,
) -> Path:
    """Train a tokenizer and write token shards, to be reused by many runs::

        data = prepare("corpus/", out="data/mine", tokenizer={"vocab_size": 16384})
        folder = pretrain(data, out="runs/mine")

    Args:
        text: files, folders, globs, ``pydocs``, or ``hf:NAME#FIELD``.
        out: the folder to write. If it holds the same text prepared alike, it is reused; an
            interrupted preparation continues.
        texts: the documents themselves, instead of `text`: a list, or an iterator, which is read
            once. They are kept beside `out`, in ``texts-HASH.jsonl``.
        recipe: takes tokenizer and selection from the recipe to train with.
        config: a YAML file with the same keys, or a run's.
        seed: draws the sample that the tokenizer is trained on.
        report: writes ``out/report.html``: what was dropped and why. Not with ``engine:
            datatrove-slurm``, which returns before the text is read: call it again afterwards.
        private: the report shows no sample of the text.
        sections: values over the recipe, by section: ``corpus={"documents": "line"}``.

    Returns:
        The prepared folder, `out`.

    Raises:
        MaskwrightError: anything wrong with the input, as one line.
        TypeError: both `text` and `texts`, or `texts` that holds anything but strings.
    """
    if texts is not None:
        field = sections.get("corpus", {}).get("text_field", CorpusConfig.text_field)
        text = keep_texts(text, texts, Path(out).absolute().parent, field)
    if seed < 0:
        raise InputError(f"--seed = {seed} must not be negative")
    if private and not report:
        raise InputError("--private has no effect without --report. Remove it.")
    if report:
        check_matplotlib()  # before the work, not after it
        sections = merge(sections, {"select": {"describe": True}})
    settings = resolve_preparation(recipe, config, sections)
    paths, out = (text,) if isinstance(text, str | Path) else text, Path(out)
    try:
        manifest = pipeline.prepare_folder(tuple(map(str, paths)), out, settings, seed, say)
    except KeyboardInterrupt:
        message = "interrupted. Finished parts are kept: run the same command again to continue."
        raise KeyboardInterrupt(message) from None
    if manifest is None:
        say(f"how far it is: maskwright prepare --status --out {out}")
    elif report:
        _write_report(out, manifest, private)
    return out


def _write_report(out: Path, manifest: Manifest, private: bool) -> None:
    tally = read_tally(out)
    assert tally is not None, "the preparation has just written it"
    if private:
        tally.samples.clear()
    write_text(out / REPORT_NAME, render_selection(out.absolute().name, manifest, tally))
    say(f"{out / REPORT_NAME}: open it in a browser")


def resolve_preparation(
    recipe: str | None, config: str | Path | None, sections: Plain
) -> PrepareConfig:
    """Return the settings of a recipe, over them those of a YAML file, over them `sections`.

    The file may be that of a whole run. Only what shapes the data is taken: not the seed, because
    `pretrain` prepares the same data for every seed.

    Raises:
        ConfigError: an unknown key (naming the nearest), or a value outside its range.
    """
    values = read_yaml(Path(config)) if config is not None else {}
    named = values.pop("recipe", None)
    name = named if recipe is None else recipe
    if name is not None:
        values = merge(load_recipe(str(name)).values, values)
    model = values.get("init_from") or values.get("teacher")
    if model is not None:  # `pretrain` prepares with the tokenizer of that model
        folder = find_model_folder(str(model))
        values = merge({"tokenizer": {"path": str(folder)}}, values)
    names = {field.name for field in fields(PretrainConfig)}
    other = names - {field.name for field in fields(PrepareConfig)}
    kept = {name: value for name, value in values.items() if name not in other}
    return from_mapping(PrepareConfig, merge(kept, sections))
