"""Each limit that the documentation states is that of the code, and holds."""

import json
import lzma
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright import config, files
from maskwright.cli.main import main
from maskwright.config import MAX_YAML_BYTES, parse_yaml, read_yaml
from maskwright.corpus import unpack
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.readers import columns, records
from maskwright.corpus.sources import stream_corpus
from maskwright.errors import ConfigError, MaskwrightError, ModelFolderError, TokenizerError
from maskwright.files import read_json
from maskwright.model.config import MAX_SIZES, check_sizes
from maskwright.model_folder import folder as model_folder
from maskwright.model_folder.folder import load_model, read_config_file, save_model
from maskwright.serving.config import ServeConfig
from maskwright.tokenizer import bounds
from maskwright.tokenizer import files as tokenizer_files
from maskwright.tokenizer.bounds import check_bounds
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.model.helpers import tiny_model
from tests.model_folder.helpers import tiny_tokenizer

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
Patch = pytest.MonkeyPatch


def read_counts(path: Path, **settings: Any) -> tuple[int, Counter[str]]:
    counts = Counter[str]()
    texts = [one.text for one in stream_corpus([str(path)], CorpusConfig(**settings), counts)]
    return max(map(len, texts), default=0), counts


def cut_document(path: Path, patch: Patch) -> None:
    (path / "x.txt").write_text("some words " * 1_000, "utf-8")
    assert CorpusConfig().max_document_characters == 1_000_000
    longest, counts = read_counts(path / "x.txt", max_document_characters=1_000)
    assert longest <= 1_000
    assert counts


def unpack_file(path: Path, patch: Patch) -> None:
    assert (unpack.BLOCK_BYTES, unpack._XZ_BYTES) == (1 << 20, 256 << 20)
    patch.setattr(unpack, "_XZ_BYTES", 1 << 16)
    (path / "x.txt.xz").write_bytes(lzma.compress(b"some words " * 100_000))
    with pytest.raises(MaskwrightError):
        read_counts(path / "x.txt.xz")


def read_record(path: Path, patch: Patch) -> None:
    """The same limits, in full, are in tests/hostile/test_bombs.py."""
    assert records.MAX_RECORD_CHARACTERS == 16_000_000
    assert records.MAX_ROW_CHARACTERS == 10_000_000


def read_parquet(path: Path, patch: Patch) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    assert columns.MAX_RECORD_CHARACTERS == 16_000_000
    patch.setattr(columns, "MAX_RECORD_CHARACTERS", 20)
    parquet.write_table(arrow.table({"text": ["some words", "x" * 21]}), path / "x.parquet")
    assert read_counts(path / "x.parquet")[1]["record too long"] == 1


def read_yaml_file(path: Path, patch: Patch) -> None:
    assert (MAX_YAML_BYTES, config._MAX_YAML_DEPTH) == (1_000_000, 50)
    (path / "x.yaml").write_bytes(b"# \n" * 400_000)
    with pytest.raises(ConfigError, match="more than 1,000,000 bytes"):
        read_yaml(path / "x.yaml")
    with pytest.raises(ConfigError):
        parse_yaml("a: " + "[" * 51 + "]" * 51, "x")


def check_tables(path: Path, patch: Patch) -> None:
    """The other tables are in tests/tokenizer/test_bounds.py."""
    found = (bounds.MAX_TOKENS, bounds.MAX_ADDED_TOKENS, bounds.MAX_TOKEN_CHARACTERS)
    assert (*found, bounds.MAX_PIECE_CHARACTERS) == (2_000_000, 50_000, 4_096, 128)
    assert tokenizer_files.MAX_TOKENIZER_BYTES == 64 << 20
    patch.setattr(tokenizer_files, "MAX_TOKENIZER_BYTES", 100)
    (path / "tokenizer.json").write_text(json.dumps({"model": "x" * 100}))
    with pytest.raises(TokenizerError, match="more than the 100 bytes"):
        Tokenizer.load(path)
    with pytest.raises(ValueError, match="max_input_chars_per_word = 257"):
        check_bounds({"model": {"max_input_chars_per_word": 257}})


def replace(content: str, times: int = 1, **pattern: str) -> dict[str, Any]:
    step = {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}
    return {"normalizer": {"type": "Sequence", "normalizers": [step] * times}}


def check_steps(path: Path, patch: Patch) -> None:
    assert (bounds.MAX_STEPS, bounds.MAX_TABLE_GROWTH) == (64, 18)
    assert check_bounds(replace("a" * 16)) == bounds.MAX_WHOLE_CHARACTERS // 16
    check_bounds(replace("a", 63))
    for steps in (replace("a" * 17), replace("a", 64), replace("aa", 5)):
        with pytest.raises(ValueError, match=r"times longer|65 steps"):
            check_bounds(steps)


def check_patterns(path: Path, patch: Patch) -> None:
    """Each kind of pattern is in tests/tokenizer/test_regex_cost.py."""
    assert check_bounds(replace("", Regex="a+b")) == 4_000
    check_bounds(replace("", 32, Regex="a"))
    for steps in (replace("", 33, Regex="a"), replace("", Regex="a+a+b")):
        with pytest.raises(ValueError, match=r"33 regular|takes too much time"):
            check_bounds(steps)


def check_model_config(path: Path, patch: Patch) -> None:
    assert (MAX_SIZES["num_hidden_layers"], MAX_SIZES["hidden_size"]) == (1_000, 131_072)
    with pytest.raises(ConfigError, match="must be at most 131072"):
        check_sizes({"hidden_size": 131_073})
    assert model_folder.MAX_CONFIG_BYTES == 4 << 20
    (path / "config.json").write_bytes(b" " * ((4 << 20) + 1))
    with pytest.raises(ModelFolderError, match="more than the 4,194,304 bytes"):
        read_config_file(path)


def check_weights(path: Path, patch: Patch) -> None:
    save_model(path / "model", tiny_model(), tiny_tokenizer(path / "tokenizer"))
    weights = path / "model" / "model.safetensors"
    content = weights.read_bytes()
    header = (100_000_001).to_bytes(8, "little")
    for damaged in (header + b" " * 1_000, content[:-4]):
        weights.write_bytes(damaged)
        with pytest.raises(ModelFolderError):
            load_model(path / "model")


def check_json(path: Path, patch: Patch) -> None:
    assert files._MAX_JSON_BYTES == 64 << 20
    (path / "x.json").write_bytes(b"[" + b" " * 1_000 + b"]")
    with pytest.raises(ValueError, match="more than the 1,000 bytes"):
        read_json(path / "x.json", 1_000)


# The row of docs/reliability.md: its first cell and the limit, and what shows it.
ROWS: dict[tuple[str, str], Callable[[Path, Patch], None]] = {
    ("line or paragraph of text", "a document is cut at `corpus.max_document_characters` (a "
     "million characters)"): cut_document,
    ("compressed file", "read in blocks of 1 MB; the decompressor may use 256 MB"): unpack_file,
    ("record of `.jsonl`, row of `.csv` or `.tsv`", "16 and 10 million characters"): read_record,
    ("`.parquet`", "a text may have 16 MB"): read_parquet,
    ("configuration (YAML)", "1 MB, nested 50 deep"): read_yaml_file,
    ("`tokenizer.json`: tables", "64 MB, 2,000,000 tokens, 50,000 added tokens, tokens of 4,096 "
     "characters (128 in Unigram), words of 256 in WordPiece"): check_tables,
    ("`tokenizer.json`: steps", "64 steps; all that replace or insert make a text at most 16 times "
     "longer, a table of SentencePiece 18 times"): check_steps,
    ("`tokenizer.json`: regular expressions", "32; one that may take time beyond the square of the "
     "text is refused, with one that may take the square a text is encoded in parts of 4,000 "
     "characters"): check_patterns,
    ("`config.json` of a model", "4 MB; 1,000 blocks, width 131,072 ([model/config.py]"
     "(../maskwright/model/config.py) has the others)"): check_model_config,
    ("safetensors", "a header of 100 MB, and no tensor beyond the end of the file, both checked by "
     "the library"): check_weights,
    ("manifests and other JSON", "64 MB"): check_json,
}  # fmt: skip


def list_rows(page: str, heading: str) -> list[tuple[str, ...]]:
    """Return the cells of the first table below a heading, without its head."""
    section = (ROOT / page).read_text("utf-8").partition(f"\n## {heading}\n")[2]
    lines = section.partition("\n## ")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    return [tuple(row) for row in rows[2:]]


def test_each_stated_limit_is_shown() -> None:
    assert list_rows("docs/reliability.md", "Limits for input files") == list(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_limit_for_input_files_holds(row: Any, tmp_path: Path, monkeypatch: Patch) -> None:
    ROWS[row](tmp_path, monkeypatch)


DEFAULTS = {name: value for name, value in vars(ServeConfig()).items() if name != "port"}
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def find_numbers(text: str) -> set[float]:
    return {float(number.replace(",", "")) for number in _NUMBER.findall(text)}


def test_limits_of_the_server_are_its_defaults() -> None:
    limits = {name for name, value in DEFAULTS.items() if isinstance(value, int | float)}
    stated: set[str] = set()
    for names, default, *_ in list_rows("docs/serve.md", "Limits"):
        own = re.findall(r"`(\w+)`", names)
        assert {float(DEFAULTS[name]) for name in own} <= find_numbers(default), names
        stated.update(own)
    assert stated == {name for name in limits if not isinstance(DEFAULTS[name], bool)}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_states_another_limit_of_the_server(path: Path) -> None:
    """A line that names a flag of the server and numbers has its default among them."""
    for line in path.read_text("utf-8").splitlines():
        for name in re.findall(r"\(`--(\w+)`\)", line):
            numbers = find_numbers(line)
            if name in DEFAULTS and numbers:
                assert float(DEFAULTS[name]) in numbers, line


def test_a_flag_of_a_limit_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    told = capsys.readouterr().out
    assert all(f"--{name}" in told for name in DEFAULTS if name.startswith("max_"))
