"""Who runs the tasks, and what becomes of an error, a missing package, and a refusal of Slurm.

A Slurm of a few lines keeps the jobs, which `run_jobs` does in this process; real clusters are in
`tests.preparation.test_clusters`.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.errors import ConfigError, CorpusError, MissingPackageError
from maskwright.preparation import engines
from maskwright.preparation.config import ClusterConfig, EngineName, PrepareConfig
from maskwright.preparation.engines import choose_engine, run_locally
from maskwright.preparation.pipeline import describe_progress
from tests.forked import CONTEXT, ensure_server
from tests.preparation.helpers import cut_small, meet_with, read_folder, write_corpus, write_lines

pytestmark = pytest.mark.usefixtures("forked_workers")
needs_datatrove = pytest.mark.skipif(find_spec("datatrove") is None, reason="no datatrove")
SETTINGS = ["--block_megabytes", "1", "--tokenizer.vocab_size", "256", "--workers", "2"]


def test_the_default_is_this_machine() -> None:
    engine = choose_engine(PrepareConfig(workers=3))
    assert isinstance(engine, partial)
    assert (engine.func, engine.args) == (run_locally, (3,))


@pytest.mark.parametrize(
    ("engine", "missing", "extra"),
    [
        ("datatrove-local", "datatrove", "cluster"),
        ("datatrove-ray", "ray", "ray"),
        ("datatrove-slurm", "datatrove", "cluster"),
    ],
)
def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, engine: EngineName, missing: str, extra: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else 1)
    config = PrepareConfig(engine=engine, cluster=ClusterConfig(partition="cpu"))
    match = rf"engine = {engine} needs the package {missing}, .*\[{extra}\]'"
    with pytest.raises(MissingPackageError, match=match):
        choose_engine(config)


def test_a_machine_without_slurm_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "check_extra", lambda *_: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    config = PrepareConfig(engine="datatrove-slurm", cluster=ClusterConfig(partition="cpu"))
    with pytest.raises(ConfigError, match="needs sbatch, squeue and scancel"):
        choose_engine(config)


@needs_datatrove
def test_an_error_of_a_rank_is_that_of_its_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 500)
    texts = [write_lines(tmp_path / f"{n}.jsonl", [f"Text {n}."] * 50) for n in range(3)]
    texts[1].write_text('{"another": "field"}\n' * 50)
    out = tmp_path / "out"
    found: list[str] = []
    for engine in ("local", "datatrove-local"):
        command = [*map(str, texts), "--out", str(out), *SETTINGS, "--engine", engine]
        assert main(["prepare", *command]) == 2
        found.append(capsys.readouterr().err)
        assert not (out / "manifest.json").exists()
    assert found[0] == found[1]
    assert found[0].startswith("CorpusError: ")
    assert "1.jsonl" in found[0]
    assert len(found[0].splitlines()) == 1
    *_, failed, end = describe_progress(out)
    assert failed == f"failed: {found[0].removeprefix('CorpusError: ').strip()}"
    assert "logs" in end
    assert list(out.glob(".work-*/logs/read-0/logs/task_*.log"))
    texts[1].write_text('{"text": "A field."}\n' * 50)  # other text, so all begins again
    command = [*map(str, texts), "--out", str(out), *SETTINGS, "--engine", "datatrove-local"]
    assert main(["prepare", *command, "--corpus.valid_fraction", "0"]) == 0
    assert not list(out.glob(".work-*"))


@needs_datatrove
def test_another_engine_finds_what_is_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["prepare", str(write_corpus(tmp_path / "a.txt")), "--out", str(tmp_path / "out")]
    assert main([*command, *SETTINGS]) == 0
    before = read_folder(tmp_path / "out")
    assert main([*command, *SETTINGS, "--engine", "datatrove-local"]) == 0
    assert "reused" in capsys.readouterr().out
    assert read_folder(tmp_path / "out") == before


_SLURM = {
    "sbatch": """
script="${@: -1}"
value() { sed -n "s/^#SBATCH --$1=//p" "$script"; }
if [ "$(value partition)" != cpu ]; then
    echo "sbatch: error: invalid partition specified: $(value partition)" >&2
    exit 1
fi
echo >>"$HERE/submitted"
job=$(wc -l <"$HERE/submitted")
cp "$script" "$HERE/$job.sh"
echo "$*" >"$HERE/$job.arguments"
echo "$(value job-name) $job" >>"$HERE/queue"
echo "Submitted batch job $job"
""",
    "squeue": """
[ -e "$HERE/broken" ] && { echo "slurm_load_jobs error: Unable to contact controller" >&2; exit 1; }
for argument in "$@"; do case $argument in --name=*) name=${argument#--name=};; esac; done
sed -n "s/^$name //p" "$HERE/queue" 2>/dev/null
exit 0
""",
    "scancel": "",
    "scontrol": "echo here",
}


class Slurm:
    """Programs of Slurm's names with one partition, ``cpu``; jobs wait until they are run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.queue = folder, folder / "queue"
        for name, text in _SLURM.items():
            program = folder / name
            program.write_text(f"#!/bin/bash\nHERE={folder}\n{text.lstrip()}")
            program.chmod(0o755)

    def list_jobs(self) -> list[str]:
        """The scripts of the jobs that wait."""
        lines = self.queue.read_text().splitlines() if self.queue.exists() else []
        return [(self.folder / f"{line.split()[1]}.sh").read_text() for line in lines]

    def run_jobs(self, monkeypatch: pytest.MonkeyPatch, broken: str = "") -> None:
        """Does what the jobs would do, but for those of a broken stage, and of all after it."""
        dill: Any = import_module("dill")
        for script in self.list_jobs():
            executor = script.split("launch_pickled_pipeline ")[1].split()[0]
            if broken and f"/{broken}-" in executor:
                break
            [last] = [line.split("-")[-1] for line in script.splitlines() if "--array=" in line]
            for task in range(int(last) + 1):
                monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
                monkeypatch.setenv("SLURM_NODELIST", "here")
                with Path(executor).open("rb") as file:
                    dill.load(file).run()
            monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
        self.queue.unlink()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm(tmp_path / "slurm")
    monkeypatch.chdir(tmp_path)  # which jobs leave, too
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    return made


def list_arguments(text: Path, out: Path, partition: str = "cpu") -> list[str]:
    return [
        *("prepare", str(text), "--out", str(out), *SETTINGS, "--select.near_duplicates", "0.95"),
        *("--engine", "datatrove-slurm", "--cluster.partition", partition),
        *("--cluster.tasks", "2", "--cluster.memory_gigabytes", "3", "--cluster.time", "0:10:00"),
        *("--cluster.sbatch", "account=nlp"),
    ]


@needs_datatrove
def test_slurm_gets_a_job_for_each_stage_and_the_same_command_goes_on(
    tmp_path: Path,
    slurm: Slurm,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut_small(monkeypatch, 10_000)
    text, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    arguments, status = list_arguments(text, out), ["prepare", "--status", "--out", str(out)]
    assert main(arguments) == 0
    assert "as jobs 1 2 3 4 5 6 7," in capsys.readouterr().out
    jobs = slurm.list_jobs()
    for line in ("account=nlp", "array=0-1", "cpus-per-task=1", "mem-per-cpu=3G", "time=0:10:00"):
        assert f"#SBATCH --{line}\n" in jobs[0]
    assert not any("qos" in job for job in jobs)
    orders = [(slurm.folder / f"{n}.arguments").read_text() for n in range(1, 8)]
    assert "dependency" not in orders[0]
    assert all(f"afterok:{n}" in order for n, order in enumerate(orders[1:], start=1))
    assert main(arguments) == 2  # the jobs are not done
    assert "scancel 1 2 3 4 5 6 7" in capsys.readouterr().err
    slurm.run_jobs(monkeypatch, broken="encode")
    assert main(status) == 0
    said = capsys.readouterr().out
    for line in ("connect: 1 of 1", "vocabulary: 1 of 1 tokenizer", "encode: 0 of 5 blocks"):
        assert line in said
    assert "run the same prepare command again" in said
    assert main(arguments) == 0
    jobs = slurm.list_jobs()
    assert [stage in job for stage, job in zip(("/encode-", "/finish-"), jobs, strict=True)]
    slurm.run_jobs(monkeypatch)
    assert main(status) == 0
    assert f"{out}: finished" in capsys.readouterr().out
    here = [*arguments[:2], "--out", str(tmp_path / "here"), *arguments[4:-12]]
    assert main(here) == 0
    assert read_folder(out) == read_folder(tmp_path / "here")


@needs_datatrove
def test_a_partition_that_slurm_does_not_have_is_one_line(
    tmp_path: Path, slurm: Slurm, capfd: pytest.CaptureFixture[str]
) -> None:
    text, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    assert main(list_arguments(text, out, "gpu")) == 2
    told = capfd.readouterr().err.splitlines()
    assert "invalid partition specified: gpu" in told[-2]
    assert told[-1].startswith("ShardError: ")
    assert "rejects" in told[-1]
    assert main(list_arguments(text, out)) == 0  # with another one it is taken


@needs_datatrove
def test_an_error_of_a_job_is_told_by_its_status(
    tmp_path: Path,
    slurm: Slurm,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, out = write_lines(tmp_path / "a.jsonl", ["a"]), tmp_path / "out"
    text.write_text('{"another": "field"}\n')
    assert main(list_arguments(text, out)) == 0
    with pytest.raises(CorpusError) as caught:
        slurm.run_jobs(monkeypatch)
    slurm.queue.unlink()  # those that wait for a job that failed go with it
    capsys.readouterr()
    assert main(["prepare", "--status", "--out", str(out)]) == 0
    assert f"failed: {caught.value}\n" in capsys.readouterr().out
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    assert main(list_arguments(text, out)) == 0  # it is forgotten
    assert main(["prepare", "--status", "--out", str(out)]) == 0
    assert "failed" not in capsys.readouterr().out


@needs_datatrove
def test_a_slurm_that_does_not_answer_may_be_at_work(
    tmp_path: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    assert main(list_arguments(text, out)) == 0
    (slurm.folder / "broken").touch()
    capsys.readouterr()
    for command in (list_arguments(text, out), ["prepare", "--status", "--out", str(out)]):
        assert main(command) == 2
        assert "Unable to contact controller" in capsys.readouterr().err


def meet_and_work(mishap: str, function: Callable[..., None], *arguments: Any) -> None:
    meet_with(mishap, 20_000)
    function(*arguments)


class Ray:
    """What is used of Ray, with processes of this machine, which it does not start again."""

    def __init__(self) -> None:
        self.resources, self.processes = dict[str, int](), list[ForkServerProcess]()
        self.mishap = ""

    def is_initialized(self) -> bool:
        return True

    def remote(self, function: Callable[..., None]) -> Any:
        def options(**resources: int) -> Any:
            self.resources = resources
            return SimpleNamespace(remote=partial(self._start, function))

        return SimpleNamespace(options=options)

    def _start(self, function: Callable[..., None], *arguments: Any) -> ForkServerProcess:
        given = (self.mishap, function, *arguments)
        ensure_server()
        self.processes.append(CONTEXT.Process(target=meet_and_work, args=given))
        self.processes[-1].start()
        return self.processes[-1]

    def wait(self, waiting: list[ForkServerProcess], timeout: float) -> Any:
        waiting[0].join(timeout)
        return waiting[:1], waiting[1:]

    def cancel(self, process: ForkServerProcess, force: bool) -> None:
        assert force
        process.kill()
        process.join()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray()
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setattr(engines, "check_extra", lambda *_: None)
    return made


ON_RAY = ["--engine", "datatrove-ray", "--cluster.tasks", "2", "--cluster.memory_gigabytes", "3"]


@needs_datatrove
def test_ranks_on_ray_that_died_are_told_and_the_same_command_makes_the_same_folder(
    tmp_path: Path, ray: Ray, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 20_000)
    command = ["prepare", str(write_corpus(tmp_path / "a.txt")), *SETTINGS]
    assert main([*command, "--out", str(tmp_path / "here")]) == 0
    ray.mishap = f"read:0:{int(signal.SIGKILL)}:worker"
    assert main([*command, "--out", str(tmp_path / "out"), *ON_RAY]) == 2
    error = capsys.readouterr().err
    assert "2 of 3 tasks of the stage read did not finish" in error  # of two ranks the first
    assert len(error.splitlines()) == 1
    ray.processes.clear()
    ray.mishap = ""
    assert main([*command, "--out", str(tmp_path / "out"), *ON_RAY]) == 0
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "here")
    assert ray.resources == {"num_cpus": 1, "memory": 3 << 30}
    assert len(ray.processes) == 2 + 1 + 1 + 2 + 1  # of the stages


@needs_datatrove
def test_an_error_on_ray_is_that_of_its_task(
    tmp_path: Path, ray: Ray, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "a.jsonl"
    text.write_text('{"another": "field"}\n')
    assert main(["prepare", str(text), "--out", str(tmp_path / "out"), *SETTINGS, *ON_RAY]) == 2
    error = capsys.readouterr().err
    assert error.startswith("CorpusError: ")
    assert "a.jsonl" in error
    assert not any(process.is_alive() for process in ray.processes)
