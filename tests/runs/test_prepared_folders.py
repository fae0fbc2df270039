"""The tokenizer of remote data, which the manifest has no sums of."""

from pathlib import Path

import fsspec
import pytest

from maskwright.errors import ShardError
from maskwright.preparation.pipeline import prepare_folder
from maskwright.runs.prepared_folders import locate
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.preparation.helpers import small_config, write_corpus
from tests.shards.faults import Plan, break_memory, start_anew, upload

URL = "memory://bucket/data"
FILES = ("tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare_folder([str(write_corpus(folder / "text.txt", 0.02))], folder / "data", small_config())
    return folder / "data"


@pytest.fixture
def plan(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    start_anew()
    fsspec.filesystem("memory").store.clear()
    upload(data, URL)
    return break_memory(monkeypatch)


def test_a_path_stays_what_it_is(data: Path) -> None:
    assert locate(str(data)) == data
    assert locate("no/where") == Path("no/where")


def test_manifest_and_tokenizer_come_first_and_nothing_else(data: Path, plan: Plan) -> None:
    folder = locate(URL)
    assert Tokenizer.load(folder / "tokenizer").fingerprint == (
        Tokenizer.load(data / "tokenizer").fingerprint
    )
    names = {path.removeprefix("/bucket/data/") for path in plan.asked}
    assert names == {"manifest.json", *(f"tokenizer/{name}" for name in FILES)}
    start_anew()
    assert locate(URL) == folder
    assert [plan.asked[f"/bucket/data/tokenizer/{name}"] for name in FILES] == [1, 1]


@pytest.mark.parametrize("name", FILES)
def test_what_is_damaged_in_the_cache_comes_again(name: str, data: Path, plan: Plan) -> None:
    file = locate(URL) / "tokenizer" / name
    content = file.read_bytes()
    file.write_bytes(content.replace(b"[MASK]", b"[MOSK]", 1))
    start_anew()
    locate(URL)
    assert file.read_bytes() == content


def test_another_tokenizer_is_refused(plan: Plan) -> None:
    system = fsspec.filesystem("memory")
    path = "/bucket/data/tokenizer/tokenizer.json"
    system.pipe_file(path, system.cat_file(path).replace(b'"ka"', b'"kaka"'))
    with pytest.raises(ShardError) as caught:
        locate(URL)
    assert str(caught.value) == (
        f"{URL}/tokenizer is not the tokenizer that the tokens were made with. Copy the prepared "
        "folder there again."
    )
