"""Nothing that a user can hand us is executed, and nothing is written elsewhere."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.config import parse_yaml
from maskwright.errors import ConfigError
from tests.architecture.sources import read_sources
from tests.workplace import SMALL, write_corpus

_FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "torch.load",
    "np.load", "numpy.load", "yaml.unsafe_load", "yaml.full_load", "marshal.loads", "os.system",
    "shelve.open",
}  # fmt: skip
_PLAIN = "allow_pickle=False"  # of NumPy: arrays of numbers, and nothing else


def calls_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _PLAIN not in map(ast.unparse, node.keywords):
            yield ast.unparse(node.func), node.lineno


def test_no_code_of_ours_executes_data() -> None:
    found = [
        f"{source.name}:{line} {name}"
        for source in read_sources("maskwright")
        for name, line in calls_in(source.tree)
        if name in _FORBIDDEN
    ]
    assert found == []


def test_yaml_is_read_in_one_place_as_plain_data() -> None:
    loads = [
        ast.unparse(node)
        for source in read_sources("maskwright")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "yaml.load"
    ]
    assert loads == ["yaml.load(text, loader)"]
    for escape in ("", "\\uD800"):  # which another loader reads
        with pytest.raises(ConfigError, match="could not determine a constructor"):
            parse_yaml(f'a: !!python/object/apply:os.getcwd []\nb: "{escape}"', "x")


class Bomb:
    """Pickled, it writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture
def bomb(tmp_path: Path) -> tuple[bytes, Path]:
    content, trace = pickle.dumps(Bomb(tmp_path / "went-off")), tmp_path / "went-off"
    pickle.loads(content)
    assert trace.exists()  # it would be noticed
    trace.unlink()
    return content, trace


@pytest.mark.parametrize(
    "name",
    ["a.txt", "a.jsonl", "a.csv", "a.parquet", "a.txt.gz", "a.txt.zst", "a.pkl", "a.arrow"],
)
def test_a_pickle_as_text_is_not_executed(
    tmp_path: Path, bomb: tuple[bytes, Path], name: str
) -> None:
    content, trace = bomb
    (tmp_path / name).write_bytes(content)
    main(["prepare", str(tmp_path / name), "--out", str(tmp_path / "out")])
    assert not trace.exists()


@pytest.mark.parametrize(
    "name",
    [
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "pytorch_model.bin", "model.safetensors.index.json", "special_tokens_map.json",
    ],
)  # fmt: skip
def test_a_pickle_in_a_model_folder_is_not_executed(
    tmp_path: Path, bomb: tuple[bytes, Path], workplace: Path, name: str
) -> None:
    content, trace = bomb
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (workplace / "runs" / "small" / "model").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    if name in ("pytorch_model.bin", "model.safetensors.index.json"):
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    code = main(["fill", str(folder), "the [MASK] eats grass"])
    assert code == (0 if name == "special_tokens_map.json" else 2) or not trace.exists()
    assert not trace.exists()


@pytest.mark.parametrize(
    "text",
    [
        "class_path: os.system\ninit_args: {command: touch TRACE}",
        "model: {class_path: subprocess.Popen}",
        "train: !!python/object/apply:pathlib.Path.touch [TRACE]",
        "_target_: os.system",
        "!!python/object/new:os.system [touch TRACE]",
    ],
)
def test_a_configuration_names_no_code(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, config = tmp_path / "trace", tmp_path / "my.yaml"
    config.write_text(text.replace("TRACE", str(trace)))
    assert main(["pretrain", "x.txt", "--config", str(config)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ConfigError: ")
    assert len(error.splitlines()) == 1
    assert not trace.exists()


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside", ".", "..", ""])
def test_a_run_s_name_leads_nowhere_else(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, runs = write_corpus(tmp_path / "animals.txt", 30), tmp_path / "in" / "runs"
    folders = ["--runs-dir", str(runs), "--data-dir", str(tmp_path / "data")]
    code = main(["pretrain", str(text), *folders, "--name", name, *SMALL, "--train.max_steps", "1"])
    assert code == 2
    assert "--name" in capsys.readouterr().err
    assert not runs.exists() or not any(runs.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["animals.txt"]
