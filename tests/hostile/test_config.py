"""Configurations that are made to hang, fill the memory or run something."""

from pathlib import Path

import pytest

from maskwright.config import MAX_YAML_BYTES, from_mapping, parse_yaml, read_yaml
from maskwright.errors import ConfigError
from maskwright.runs.config import PretrainConfig, resolve
from tests.hostile.sandbox import run_limited

_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
_MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 10)
)


def message_of(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        from_mapping(PretrainConfig, parse_yaml(text, "my.yaml"))
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("text", [_LAUGHS, _MERGES, "a: &a [*a]"])
def test_aliases_are_refused(text: str) -> None:
    assert "is not supported" in message_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "!!python/name:os.system ''",
        "!!python/module:antigravity ''",
        "seed: !!python/object/apply:os.system [id]",
        "text: !!python/tuple [a]",
        "? !!python/object:object {}\n: 1",
    ],
)
def test_tags_that_name_python_are_refused(text: str) -> None:
    assert "could not determine a constructor" in message_of(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2", "key seed occurs twice"),
        ("train: {max_steps: 1, max_steps: 2}", "key max_steps occurs twice"),
        ("[" * 10_000, "nested too deeply"),
        ("- " * 10_000, "nested too deeply"),
        ("? [a]\n: 1", "unhashable"),
        ("seed: 0x" + "f" * 5_000, "seed = (an integer of 20000 bits) must be"),
        ("seed: " + "9" * 5_000, "Exceeds the limit"),
        ("? 0x" + "f" * 5_000 + "\n: 1", "unknown key (an integer of 20000 bits)"),
        ("data: {max_seq_length: .inf}", "data.max_seq_length = inf must be int"),
        ("train: {grad_clip: .nan}", "train.grad_clip = nan must be float"),
        ("text: [[[a]]]", "must be str"),
        ('corpus: {text_field: "\\uD800"}', "corpus.text_field = "),
        ("corpus: {text_field: !!set {a}}", "must be str"),
        ("seed: 2001-13-45", "is not valid YAML"),
        ("recipe: [1]\nx: \x00", "is not valid YAML"),
        ("model: {num_hidden_layers: 1000000000}", "must be at most 1000"),
        ("model: {hidden_size: 1000000000007}", "must be at most 131072"),
        ("model: {hidden_size: 131071, num_attention_heads: 7}", "does not divide"),
        ("tokenizer: {vocab_size: 1e30}", "must be between 32 and 1000000"),
        ("x: " + "y" * 100_000, "unknown key x"),
        ("seed: " + "y" * 100_000, "yyy … "),
    ],
)
def test_traps(text: str, message: str) -> None:
    found = message_of(text)
    assert message in found
    assert len(found) < 1_100


def test_files_that_are_no_text_or_too_long(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    for content, message in (
        (b"seed: \xff", "not UTF-8 text"),
        (b"# \n" * (MAX_YAML_BYTES // 3 + 1), "has more than 1,000,000 bytes"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            read_yaml(path)
    with pytest.raises(ConfigError, match="has more than"):
        read_yaml(Path("/dev/zero"))


def test_keys_are_counted_in_time() -> None:
    text = "".join(f"key{n}: 1\n" for n in range(20_000))
    assert "unknown key key0" in run_limited(
        "import sys\nfrom maskwright.config import from_mapping, parse_yaml\n"
        "from maskwright.runs.config import PretrainConfig\n"
        "from maskwright.errors import ConfigError\n"
        f"text = ''.join(f'key{{n}}: 1\\n' for n in range({len(text.splitlines())}))\n"
        "try: from_mapping(PretrainConfig, parse_yaml(text, 'x'))\n"
        "except ConfigError as error: print(error)\n"
    )


def test_a_model_that_nobody_has_takes_no_memory() -> None:
    code = (
        "from maskwright.runs.config import resolve\n"
        "from maskwright.errors import ConfigError\n"
        "for value in (10**9, 10**30):\n"
        "    try: resolve(overrides={'model': {'num_hidden_layers': value}})\n"
        "    except ConfigError as error: print(error)\n"
    )
    assert run_limited(code).count("must be at most 1000") == 2


def test_a_file_may_not_be_a_section(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    for text in ("train: 3", "train: [a]", "train:", "model: !!binary aGVsbG8="):
        path.write_text(text)
        with pytest.raises(ConfigError, match="must be a section with keys and values"):
            resolve(None, path)
