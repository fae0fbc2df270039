"""Training, and looking at data, from an S3 server of our own on this machine."""

import json
import shutil
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import boto3
import numpy as np
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from maskwright.cli.main import main
from maskwright.logs import read_metrics
from maskwright.runs.run_directory import read_provenance
from maskwright.shards.manifest import ShardInfo, read_manifest, write_manifest
from maskwright.shards.reader import TokenStore
from tests.command import Cli
from tests.distributed.worlds import list_names, run_command
from tests.shards.faults import FAULTS, Plan, faulty_proxy, hurry, start_anew
from tests.shards.helpers import write_shard
from tests.workplace import SMALL, data_of

URL = "s3://bucket/some/data"
NUM_SHARDS = 4
STEPS = ["--train.max_steps", "4", "--train.log_every_steps", "1", "--masking.strategy", "words"]
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "me",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def cut_into_shards(source: Path, out: Path) -> None:
    """The same data in `NUM_SHARDS` shards a split."""
    manifest, splits = read_manifest(source), {}
    for split, info in manifest.splits.items():
        store = TokenStore.open(source, split)
        ends = np.cumsum(store.document_lengths)
        begins, shards = ends - store.document_lengths, list[ShardInfo]()
        for name, part in enumerate(np.array_split(np.stack([begins, ends], 1), NUM_SHARDS)):
            documents = [(store.tokens(*span), store.word_starts(*span)) for span in part.tolist()]
            shards.append(write_shard(out / split, f"{name:05d}", documents, manifest.dtype))
        splits[split] = replace(info, shards=tuple(shards))
    for name in ("unigram.counts", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes((source / name).read_bytes())
    write_manifest(out, replace(manifest, splits=splits))


@pytest.fixture(scope="module")
def data(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "data"
    cut_into_shards(data_of(workplace), out)
    return out


@pytest.fixture(scope="module")
def port(data: Path) -> Generator[int]:
    """Of an S3 server that holds `data` at `URL`."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    me = {"aws_access_key_id": "me", "aws_secret_access_key": "secret"}
    url = f"http://127.0.0.1:{port}"
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **me)
    client.create_bucket(Bucket="bucket")
    for file in data.rglob("*"):
        if file.is_file():
            key = f"some/data/{file.relative_to(data).as_posix()}"
            client.put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
    client.close()
    yield port
    server.stop()


@pytest.fixture
def plan(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Plan]:
    """The faults of that server; the cache is empty."""
    plan = Plan()
    with faulty_proxy(port, plan) as endpoint:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
        hurry(monkeypatch)
        s3fs.S3FileSystem.clear_instance_cache()
        start_anew()
        yield plan


def pretrain(data: str, runs: Path, name: str, *flags: str) -> int:
    folders = ["--runs-dir", str(runs), "--name", name]
    return main(["pretrain", data, *SMALL, *STEPS, *folders, *flags])


def files_asked(plan: Plan) -> dict[str, int]:
    return {path.partition("/data/")[2]: n for path, n in plan.asked.items() if "/data/" in path}


def test_training_from_s3_with_faults_is_training_from_here(data: Path, plan: Plan, tmp_path: Path):
    files = sorted(file.relative_to(data).as_posix() for file in data.rglob("*.*"))
    files.remove("tokenizer/tokenizer_config.json")  # whose last byte nothing depends on
    for number, name in enumerate(files):
        plan.add(f"/data/{name}", FAULTS[number % len(FAULTS)])
    assert pretrain(URL, tmp_path, "there") == 0
    assert pretrain(str(data), tmp_path, "here") == 0
    met = [name for name, faults in plan.faults.items() if not faults]
    assert len(met) == len(files)
    weights, losses = zip(
        *[
            (
                (tmp_path / name / "model" / "model.safetensors").read_bytes(),
                [record["loss"] for record in read_metrics(tmp_path / name / "metrics.jsonl")],
            )
            for name in ("here", "there")
        ],
        strict=True,
    )
    assert losses[0] == losses[1]
    assert weights[0] == weights[1]
    config = (tmp_path / "there" / "config.yaml").read_text(encoding="utf-8")
    assert f"- {URL}" in config


def test_a_warm_cache_needs_the_manifest_alone_and_a_lost_one_comes_again(
    plan: Plan, tmp_path: Path
) -> None:
    assert pretrain(URL, tmp_path, "run") == 0
    assert set(files_asked(plan).values()) == {1}
    start_anew()
    plan.asked.clear()
    resume = ["pretrain", "--resume", str(tmp_path / "run"), "--train.max_steps"]
    assert main([*resume, "6"]) == 0
    assert files_asked(plan) == {"manifest.json": 1}
    mirror = Path(read_provenance(tmp_path / "run")["prepared_data"])
    mirror.rename(tmp_path / "away")
    start_anew()
    assert main([*resume, "7"]) == 0
    assert mirror.is_dir()


def test_other_commands_take_urls_and_fetch_what_they_read(
    plan: Plan, workplace: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(workplace / "runs" / "small")
    said: list[list[object]] = []
    for name, place in (("here", str(data)), ("there", URL)):
        out = tmp_path / f"{name}.json"
        assert main(["evaluate", run, "--data", place, "--fast", "--out", str(out)]) == 0
        suites = json.loads(out.read_text(encoding="utf-8"))["suites"]
        said.append([suite["scores"] for suite in suites])
    assert said[0] == said[1]
    assert not [name for name in files_asked(plan) if name.startswith("train/")]
    assert main(["pretrain", URL, *SMALL, "--train.max_steps", "3", "--dry-run"]) == 0
    asked = files_asked(plan)
    assert {name for name in asked if name.startswith("train/")} == {
        f"train/{number:05d}.ends" for number in range(NUM_SHARDS)
    }
    shown: list[str] = []
    for place in (str(data), URL):
        capsys.readouterr()
        flags = ["--json", "--rows", "40", "--epoch", "1", "--masking.strategy", "words"]
        assert main(["inspect", place, *flags]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0].count("\n") == 40
    assert shown[0] == shown[1]


def test_a_shard_that_is_always_corrupt_is_one_line(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.add("train/00003.tokens", "corrupt", 100)
    assert pretrain(URL, tmp_path, "run") == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "ShardError" in line]
    assert len(errors) == 1
    start = f"ShardError: {URL}/train/00003.tokens could not be downloaded in 5 attempts. The last "
    assert errors[0].startswith(start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", "s3://bucket/nothing"], "s3://bucket/nothing/manifest.json cannot be read"),
        (["inspect", "s3://nowhere/x"], "s3://nowhere/x/manifest.json cannot be read"),
        (["pretrain", URL, "more.txt"], f"{URL} is prepared data; it cannot be mixed"),
        (["pretrain", URL, "--corpus.deduplicate", "true"], f"has no effect: {URL} is prepared"),
    ],
)
def test_bad_urls(arguments: list[str], message: str, plan: Plan, cli: Cli) -> None:
    assert message in cli.refuse(*arguments)


def test_what_stays_forbidden_is_asked_for_once(plan: Plan, tmp_path: Path, cli: Cli) -> None:
    plan.add("/data/manifest.json", "forbid", 100)
    line = cli.refuse("inspect", URL)
    assert line.startswith(f"ShardError: {URL}/manifest.json cannot be read: PermissionError: ")
    assert line.endswith("Check the URL and the credentials " + line.partition("credentials ")[2])
    assert len(plan.faults["/data/manifest.json"]) == 99


def test_without_credentials_nothing_is_asked_for(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    line = cli.refuse("inspect", URL)
    assert line.startswith(f"ShardError: {URL}/manifest.json cannot be read: NoCredentialsError: ")
    assert "AWS_PROFILE" in line
    assert not plan.asked


@pytest.mark.parametrize("num_machines", [1, 2])
def test_each_file_is_fetched_once_a_machine(
    num_machines: int, plan: Plan, data: Path, tmp_path: Path
) -> None:
    """By two ranks, of a mixture with data that lies here."""
    near = str(shutil.copytree(data, tmp_path / "near"))
    command = ["pretrain", near, URL, *SMALL, *STEPS, "--runs-dir", str(tmp_path), "--name", "run"]
    homes = [
        {
            **names,
            "LOCAL_RANK": str(rank % (2 // num_machines)),
            "MASKWRIGHT_CACHE": str(tmp_path / f"cache-{rank % num_machines}"),
        }
        for rank, names in enumerate(list_names(2))
    ]
    assert run_command(homes, command) == [0, 0]
    asked = files_asked(plan)
    assert asked.pop("manifest.json") == 2
    assert set(asked.values()) == {num_machines}
    assert len(asked) == 3 + 2 * 3 * NUM_SHARDS
