import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.config import (
    check_numbers,
    convert,
    describe_type,
    fields_of,
    from_mapping,
    merge,
    nested,
    parse_yaml,
    read_yaml,
    section,
    setting,
    write_yaml,
)
from maskwright.errors import ConfigError, UnknownKeyError


@dataclass(frozen=True)
class Inner:
    rate: float = setting(0.15, "how much")
    kind: Literal["gelu", "relu"] | None = setting(None, "which")
    switch: Literal["auto", "on", "off"] = setting("auto", "whether")
    names: tuple[str, ...] = setting((), "who")

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError("rate", self.rate, "must be between 0 and 1", "Try 0.15.")


@dataclass(frozen=True)
class Outer:
    steps: int = setting(10, "how long")
    title: str = setting("none", "what")
    loud: bool = setting(False, "how")
    inner: Inner = section(Inner)


def test_values_are_put_into_their_sections() -> None:
    config = from_mapping(Outer, {"steps": 3, "inner": {"kind": "relu", "names": ["a", "b"]}})
    assert config == Outer(steps=3, inner=Inner(kind="relu", names=("a", "b")))


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"stepps": 1}, "unknown key stepps; did you mean steps?"),
        ({"inner": {"rte": 1}}, "unknown key inner.rte; did you mean inner.rate?"),
        ({"inner": {"xyz": 1}}, "unknown key inner.xyz."),
        ({"inner": 5}, "inner = 5 must be a section with keys and values."),
        ({"inner": {"rate": 1.5}}, "inner.rate = 1.5 must be between 0 and 1. Try 0.15."),
        ({"inner": {"kind": "gleu"}}, "inner.kind = gleu must be gelu|relu or none. Did you mean"),
        ({"inner": {"switch": "onn"}}, "inner.switch = onn must be auto|on|off. Did you mean on?"),
        ({"steps": "many"}, "steps = many must be int."),
        ({"steps": 1.5}, "steps = 1.5 must be int."),
        ({"steps": True}, "steps = True must be int."),
        ({"steps": None}, "steps = None must be int."),
        ({"steps": "inf"}, "steps = inf must be int."),
        ({"inner": {"rate": "nan"}}, "inner.rate = nan must be float."),
        ({"inner": {"rate": 10**400}}, "must be float."),
        ({"loud": "maybe"}, "loud = maybe must be bool."),
        ({"title": ["a"]}, "title = ['a'] must be str."),
        ({"inner": {"names": [1, None]}}, "inner.names[1] = None must be str."),
    ],
)
def test_errors_name_the_field_its_value_and_the_rule(mapping: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(Outer, mapping)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("1e-3", float, 1e-3),
        (8, float, 8.0),
        ("8", int, 8),
        ("1e3", int, 1000),
        (8.0, int, 8),
        ("12345678901234567890", int, 12345678901234567890),
        ("true", bool, True),
        ("off", bool, False),
        ("No", bool, False),
        (5, str, "5"),
        ("none", float | None, None),
        (None, int | None, None),
        ("0.5", float | None, 0.5),
        (True, Literal["auto", "on", "off"], "on"),  # YAML 1.1 reads a bare on as true
        (False, Literal["auto", "on", "off"], "off"),
        ("a, b,c", tuple[str, ...], ("a", "b", "c")),
        ("[UNK],the", tuple[str, ...], ("[UNK]", "the")),
        ("none", tuple[str, ...], ()),
        (["1", 2], tuple[int, ...], (1, 2)),
        ("x", tuple[str, ...], ("x",)),
    ],
)
def test_values_are_converted_where_nothing_is_lost(
    value: Any, annotation: Any, expected: Any
) -> None:
    converted = convert(value, annotation, "name")
    assert converted == expected
    assert type(converted) is type(expected)


@given(
    st.builds(
        Outer,
        steps=st.integers(),
        title=st.text(st.characters(codec="utf-8", exclude_categories=["C"])),
        loud=st.booleans(),
        inner=st.builds(
            Inner,
            rate=st.floats(0.001, 0.999),
            kind=st.sampled_from(["gelu", "relu", None]),
            switch=st.sampled_from(["auto", "on", "off"]),
            names=st.lists(st.text("abc[]:# "), max_size=3).map(tuple),
        ),
    )
)
def test_yaml_gives_back_the_configuration(config: Outer) -> None:
    assert from_mapping(Outer, parse_yaml(write_yaml(config), "test")) == config


def test_leaves_have_dotted_names_and_help() -> None:
    leaves = {info.name: info for info in fields_of(Outer)}
    assert list(leaves) == [
        "steps",
        "title",
        "loud",
        "inner.rate",
        "inner.kind",
        "inner.switch",
        "inner.names",
    ]
    assert leaves["inner.rate"].help == "how much"
    assert leaves["inner.rate"].default == 0.15
    assert describe_type(leaves["inner.kind"].annotation) == "gelu|relu or none"
    assert describe_type(leaves["inner.names"].annotation) == "list of str"


@pytest.mark.parametrize("text", ["", " ", ","])
def test_a_list_is_not_empty_by_accident(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^inner\.names = '' is empty\. Give a value"):
        convert(text, tuple[str, ...], "inner.names")


def test_merging_goes_section_by_section_and_changes_neither() -> None:
    base, over = {"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}, "b": {"z": 1}}
    assert merge(base, over) == {"a": {"x": 1, "y": 5}, "b": {"z": 1}}
    assert base == {"a": {"x": 1, "y": 2}, "b": 3}
    assert over == {"a": {"y": 5}, "b": {"z": 1}}


def test_dotted_names_become_sections() -> None:
    assert nested("train.max_steps", 3) == {"train": {"max_steps": 3}}
    assert nested("seed", 3) == {"seed": 3}


@pytest.mark.parametrize(
    "text", ["a: [", "- 1\n- 2", "just words", "a: !!python/object:os.system x", "? {a: 1}\n: 2"]
)
def test_what_is_no_yaml_of_keys_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert "my.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_yaml(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        read_yaml(tmp_path / "binary.yaml")


def test_an_empty_file_sets_nothing() -> None:
    assert parse_yaml("# nothing\n", "empty.yaml") == {}


def test_keys_that_are_no_words_are_unknown() -> None:
    with pytest.raises(UnknownKeyError, match="unknown key 7"):
        from_mapping(Outer, parse_yaml("7: x", "test"))


@dataclass(frozen=True)
class Numbers:
    share: float | None = None


@pytest.mark.parametrize(
    ("limits", "inside", "outside", "rule"),
    [
        ({"above": 0}, (1e-9, math.inf), (0, -1, math.nan), "be above 0"),
        ({"at_least": 8}, (8, math.inf), (7,), "be at least 8"),
        ({"at_least": 0}, (0,), (-1e-9,), "not be negative"),
        ({"above": 0, "below": 1}, (1e-9, 0.5), (0, 1), "be between 0 and 1"),
        ({"at_least": 0, "at_most": 0.5}, (0, 0.5), (-1e-9, 0.6), "be between 0 and 0.5"),
        ({"above": 0, "at_most": 1}, (1e-9, 1), (0, 1.1), "be above 0 and at most 1"),
        ({"at_least": 0, "below": 1}, (0, 0.9), (-1e-9, 1), "be at least 0 and below 1"),
    ],
)
def test_numbers_keep_their_limits(
    limits: dict[str, Any], inside: tuple[float, ...], outside: tuple[float, ...], rule: str
) -> None:
    for value in (None, *inside):
        check_numbers(Numbers(value), "share", **limits)
    for value in outside:
        with pytest.raises(ConfigError, match=rf"^share = \S+ must {rule}\. Try 0\.1\.$"):
            check_numbers(Numbers(value), "share", remedy="Try 0.1.", **limits)


def test_names_of_files_that_are_not_utf8_come_back():
    config = Outer(title="caf\udce9.txt")
    for text in (write_yaml(config), r'title: "caf\udce9.txt"', r'title: "caf\U0000dce9.txt"'):
        assert from_mapping(Outer, parse_yaml(text, "test")) == config
