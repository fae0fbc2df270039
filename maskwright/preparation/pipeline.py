"""The stages of a preparation, run in order by a coordinator.

It lists the blocks of the input, writes the plan, and has an engine run the stages
(`maskwright.preparation.engines`). It may be interrupted at any point, and so may any task:
the same command resumes, and the result is the same, byte for byte.
"""

import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from maskwright.console import Pulse
from maskwright.errors import CorpusError, ShardError
from maskwright.files import is_locked, naming_file
from maskwright.formatting import count_noun
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.engines import Engine, choose_engine, find_jobs, submit_to_slurm
from maskwright.preparation.folder import (
    STDIN_NAME,
    STDIN_TEMPORARY,
    Report,
    check_use,
    find_work,
    fingerprint_input,
    identify_plan,
    list_blocks,
    making_folder,
    open_work,
    read_tally,
    reuse_finished,
    tidy_folder,
)
from maskwright.preparation.stages import Stage, list_stages, list_undone
from maskwright.preparation.tasks import EVALUATION_NAME, LOST_KEY, describe_source
from maskwright.preparation.work import LOGS, PLAN_NAME, VOCABULARY, Plan, Work
from maskwright.selection.config import SelectionConfig
from maskwright.selection.contamination import EvaluationTexts, read_evaluation
from maskwright.selection.selector import Selector
from maskwright.shards.manifest import (
    MANIFEST_NAME,
    Manifest,
    read_manifest,
)
from maskwright.tokenizer.lost import MUCH, Lost

# 15 % of 10,000 tokens are 1,500 masked tokens: an accuracy of 0.3 is then within 0.025.
_MIN_HELD_OUT = 10_000
_SAMPLE_SLACK = 1.5  # more candidates for the tokenizer's sample, as duplicates are dropped later


def prepare_folder(
    paths: Sequence[str],
    out: Path,
    config: PrepareConfig,
    seed: int = 0,
    report: Report = lambda line: None,
    fingerprint: str | None = None,
    private: bool = False,
) -> Manifest | None:
    """Prepare the text that `paths` name into the folder `out`, which is made if missing.

    The result depends on the text, the configuration and the seed alone: not on the engine, the
    number of workers, or interruptions. An existing, undamaged result is reused; the text is read
    again only if ``config.select.describe`` asks for counts that are missing. While another
    process prepares `out`, this one waits.

    Args:
        paths: files, folders, patterns, ``pydocs``, ``hf:NAME``, ``-`` (see `find_sources`).
        seed: the seed of the tokenizer's sample.
        report: called with a line about each stage.
        fingerprint: the input's fingerprint, if it is known (`fingerprint_input`).
        private: no word of the text is reported.

    Returns:
        The manifest; None if the stages were submitted to Slurm, which runs them.
    """
    engine = choose_engine(config)
    Selector(config.select)  # raises now, not after hours of reading, if a package is missing
    with making_folder(out, report):
        check_use(out)
        if jobs := " ".join(find_jobs(out)):
            raise ShardError(
                f"{out} is being prepared by the Slurm jobs {jobs}. Wait for them (prepare --status"
                f" shows their progress), or cancel them: scancel {jobs}"
            )
        inputs = _spool_stdin(paths, out) if "-" in paths else list(paths)
        if (out / MANIFEST_NAME).is_file():
            fingerprint = fingerprint or fingerprint_input(inputs, config, seed)
            source = describe_source(paths, config, seed)
            if (finished := reuse_finished(out, fingerprint, source, report)) is not None:
                report(f"{out}: already prepared from the same text and configuration, reused")
                if not config.select.describe or ((tally := read_tally(out)) and tally.languages):
                    tidy_folder(out)
                    return finished
                report("reading the text again for select.describe; the shards do not change")
        work = plan_work(inputs, paths, out, config, seed, report)
        if engine is None:
            submit_to_slurm(work, config.cluster)
            report(f"{out}: submitted to Slurm as jobs {' '.join(find_jobs(out))}, one a stage")
            return None
        try:
            for stage in list_stages(work):
                _run_stage(work, stage, engine, report)
        except CorpusError as error:  # names the copy of standard input; the user wrote -
            raise CorpusError(str(error).replace(", ".join(inputs), ", ".join(paths))) from None
        manifest = _report_result(work, out, private, report)
        tidy_folder(out)
        return manifest


def describe_progress(out: Path) -> list[str]:
    """Return a line about each stage of a preparation, on any engine, then lines about failures.

    Raises:
        ShardError: `out` holds no preparation, finished or not.
    """
    folder, jobs = find_work(out), find_jobs(out)
    if (out / MANIFEST_NAME).is_file() and not jobs:
        if not is_locked(out):
            tidy_folder(out)  # no coordinator did it if Slurm ran the stages
        return [f"{out}: finished", _summarize(read_manifest(out))]
    if folder is None:
        raise ShardError(f"{out} holds no preparation. Check --out.")
    work, lines = Work(folder), list[str]()
    stages = list(list_stages(work, ahead=True))
    for stage in stages:
        done = stage.num_tasks - len(list_undone(work, stage))
        lines.append(f"{stage.name}: {done:,} of {count_noun(stage.num_tasks, stage.unit)}")
    failures = [error for stage in stages if (error := work.find_failure(stage.name))]
    lines += [f"failed: {error}" for error in failures]
    end = f"Running or pending: Slurm jobs {' '.join(jobs)}." if jobs else "A process is running."
    if not (jobs or is_locked(out)):
        logs = folder / LOGS
        end = "No job or process is running. To resume, run the same prepare command again."
        end += f" Logs are in {logs}." if logs.exists() else ""
    return [*lines, end]


def plan_work(
    inputs: Sequence[str],
    paths: Sequence[str],
    out: Path,
    config: PrepareConfig,
    seed: int,
    report: Report,
) -> Work:
    """List the blocks of the input and write the plan, unless it exists."""
    ignored: Counter[str] = Counter()
    blocks, num_held_out = list_blocks(inputs, config, ignored, report)
    identity = identify_plan(blocks, num_held_out, config, seed)
    work = Work(open_work(out, identity))
    for failure in work.folder.glob("*/*.error"):  # of an earlier attempt
        failure.unlink()
    if not (work.folder / PLAN_NAME).exists():
        if config.select.decontaminate:
            _read_evaluation(config.select, work, report)
        sampled = _SAMPLE_SLACK * config.tokenizer.sample_megabytes * 1e6
        num_bytes = sum(block.num_bytes for block in blocks[num_held_out:])
        Plan(
            paths=list(paths),
            blocks=blocks,
            num_held_out=num_held_out,
            ignored=ignored,
            config=config,
            seed=seed,
            sample_share=sampled / max(num_bytes, 1),
            directory=str(Path.cwd()),
        ).write(work.folder / PLAN_NAME)
    return work


def _read_evaluation(config: SelectionConfig, work: Work, report: Report) -> None:
    ignored: Counter[str] = Counter()
    texts = EvaluationTexts(read_evaluation(config.decontaminate, ignored))
    if not len(texts):
        names = ", ".join(config.decontaminate)
        raise CorpusError(f"select.decontaminate = {names}: no text has 8 words. Name other files.")
    texts.save(work.folder / EVALUATION_NAME)
    skipped = "".join(f", {count:,} {reason}" for reason, count in ignored.items())
    report(f"decontamination: {len(texts):,} word runs of evaluation texts{skipped}")


def _run_stage(work: Work, stage: Stage, engine: Engine, report: Report) -> None:
    start, total, pulse = time.monotonic(), stage.num_tasks, Pulse(report)
    before = done = total - len(list_undone(work, stage))
    if before:
        report(f"{stage.verb} {before:,} of {count_noun(total, stage.unit)} before")
    elif stage.name == VOCABULARY and work.plan.config.tokenizer.path is None:
        report(f"training a {work.plan.config.tokenizer.kind} tokenizer on the text")
    elif stage.beginning:
        report(stage.beginning)
    for num_done in filter(None, engine(work, stage)):
        tenths, done = 10 * done // total, done + num_done
        left = round((time.monotonic() - start) * (total - done) / max(done - before, 1))
        counted = f"{stage.verb} {done:,} of {count_noun(total, stage.unit)}"
        line = f"{counted} ({done / total:.0%}, {timedelta(seconds=left)} left)"
        say = pulse.say if 10 * done // total > tenths else pulse.beat
        if total > 1:
            say(line)
    if stage.name == VOCABULARY:
        for line in work.facts(VOCABULARY)["lines"]:
            report(line)


def _report_result(work: Work, out: Path, private: bool, report: Report) -> Manifest:
    if (new := work.facts(VOCABULARY)["new"]) and not private:
        report(f"new tokens: {' '.join(new)} …")
    report(_summarize(manifest := read_manifest(out)))
    lost = Lost.from_plain(manifest.source[LOST_KEY])
    if lost.share > MUCH:
        report(f"{lost.describe()}. {lost.advise(work.plan.config.tokenizer.trains)}")
    return manifest


def _summarize(manifest: Manifest) -> str:
    train, valid = manifest.splits["train"], manifest.splits["valid"]
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in manifest.dropped.items())
    sizes = [
        f"{count_noun(split.num_documents, 'document')}, {count_noun(split.num_tokens, 'token')}"
        for split in (train, valid)
    ]
    line = f"{sizes[0]} to train on; {sizes[1]} held out; dropped or repaired: "
    line += dropped or "nothing"
    if not valid.num_tokens:
        line += "\nno text is held out, which pretrain and inspect need. Prepare it again without "
        return line + "--corpus.valid_fraction 0."
    if valid.num_tokens < _MIN_HELD_OUT:
        line += f"\nonly {valid.num_tokens:,} validation tokens: scores will be noisy. Raise "
        line += "--corpus.valid_fraction or name files with --corpus.valid_text."
    return line


def _spool_stdin(paths: Sequence[str], out: Path) -> list[str]:
    """Write standard input to a file that is named by its content, because it can be read once."""
    temporary, digest = out / STDIN_TEMPORARY, hashlib.sha256()
    with naming_file(temporary), temporary.open("wb") as file:
        while block := sys.stdin.buffer.read(1 << 20):
            digest.update(block)
            file.write(block)
    os.utime(temporary, (0, 0))  # the same text has the same name, and so the same identity
    spool = temporary.replace(out / STDIN_NAME.format(digest.hexdigest()[:16]))
    return [str(spool) if path == "-" else path for path in paths]
