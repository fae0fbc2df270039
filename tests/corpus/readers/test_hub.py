import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from maskwright.corpus.readers.hub import HubName, expand_home, parse_hub_name
from maskwright.errors import CorpusError
from tests.corpus.helpers import read_all, write


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "hf:wikimedia/wikipedia:20231101.en#text",
            HubName("wikimedia/wikipedia", "20231101.en", "text"),
        ),
        ("hf:wikitext", HubName("wikitext", "", "")),
        ("hf:owner/set#body", HubName("owner/set", "", "body")),
        ("hf:/data/a:b#text", HubName("/data/a:b", "", "text")),
    ],
)
def test_names(name: str, expected: HubName) -> None:
    assert parse_hub_name(name) == expected


@pytest.mark.parametrize("name", ["hf:", "hf:#text", "hf::config"])
def test_a_name_without_a_dataset_is_an_error(name: str) -> None:
    with pytest.raises(CorpusError, match="names no dataset"):
        parse_hub_name(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = [{"id": n, "text": f"document {n}"} for n in range(10)] + [{"id": 10, "text": None}]
    lines = "\n".join(json.dumps(row) for row in rows)
    write(tmp_path / "set" / "train.jsonl", lines)
    return tmp_path / "set"


def test_a_local_dataset_folder_is_streamed(folder: Path) -> None:
    counts: Counter[str] = Counter()
    texts = [f"document {n}" for n in range(10)]
    assert read_all(f"hf:{folder}#text", counts) == texts
    assert counts == {"missing field text": 1}
    assert read_all(f"hf:{folder}") == texts


def test_a_saved_dataset_is_read(folder: Path) -> None:
    datasets: Any = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"body": ["one", "two"]})
    rows.save_to_disk(str(folder / "one"))
    datasets.DatasetDict(train=rows).save_to_disk(str(folder / "several"))
    datasets.DatasetDict(test=rows).save_to_disk(str(folder / "other"))
    assert read_all(f"hf:{folder / 'one'}#body") == ["one", "two"]
    assert read_all(f"hf:{folder / 'several'}#body") == ["one", "two"]
    with pytest.raises(CorpusError, match="cannot be read: it has no split train but test"):
        read_all(f"hf:{folder / 'other'}#body")


def test_a_name_with_brackets_is_no_pattern(folder: Path) -> None:
    datasets: Any = pytest.importorskip("datasets")
    saved = folder / "saved[1]"
    datasets.Dataset.from_dict({"text": ["one"]}).save_to_disk(str(saved))
    assert read_all(f"hf:{saved}") == ["one"]
    with pytest.raises(CorpusError, match=r"\[a\] cannot be read: .* give it without hf:"):
        read_all(f"hf:{folder.rename(folder.with_name('[a]'))}")


def test_a_missing_field_names_those_there_are(folder: Path) -> None:
    with pytest.raises(CorpusError, match="has no field body; it has: id, text"):
        read_all(f"hf:{folder}#body")


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(CorpusError, match="cannot be read: there is no folder"):
        read_all(f"hf:{tmp_path}/nowhere#text")


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_home("~/x") == Path("/home/me/x")
    assert expand_home("a~b") == Path("a~b")
    with pytest.raises(CorpusError, match="~nobody-of-this-name/x: "):
        expand_home("~nobody-of-this-name/x")
