import pytest

from maskwright.formatting import (
    count_noun,
    describe_cut,
    name_group,
    shorten_names,
    show_duration,
    show_share,
)


def test_count_noun() -> None:
    assert [count_noun(number, "document") for number in (0, 1, 2, 8731)] == [
        "0 documents",
        "1 document",
        "2 documents",
        "8,731 documents",
    ]


def test_names_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    assert shorten_names(["runs/a", "runs/b"]) == ["a", "b"]
    assert shorten_names(["x/a", "y/a"]) == ["x/a", "y/a"]
    assert shorten_names([".", "../b"])[1] == "b"
    assert all(shorten_names(["."]))


def test_cut_texts_are_a_number_a_share_and_a_limit() -> None:
    line = describe_cut(1_250, 5_000, 128)
    assert [part in line for part in ("1,250 of 5,000 texts", "25.0%", "128 tokens")] == [True] * 3


@pytest.mark.parametrize(
    ("share", "num_decimals", "shown"),
    [
        (0.5, 0, "50%"),
        (0.123, 1, "12.3%"),
        (0.005, 0, "0.50%"),
        (0.0049, 0, "0.49%"),
        (0.0049, 1, "0.49%"),
        (0.003, 1, "0.30%"),
        (0.00000123, 1, "0.00012%"),
        (0.0, 0, "0%"),
    ],
)
def test_small_shares_have_two_significant_digits(
    share: float, num_decimals: int, shown: str
) -> None:
    assert show_share(share, num_decimals) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (30, "0.5 minutes"),
        (1200, "20 minutes"),
        (3.6 * 3600, "3.6 hours"),
        (47 * 3600, "47 hours"),
        (1e8, "1,157 days"),
    ],
)
def test_a_duration_has_the_unit_that_suits_it(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["mask15-0", "mask15-1"], "mask15 (2 runs)"),
        (["a-10", "a-11", "a-12"], "a (3 runs)"),
        (["runs/x", "y"], "runs/x, y (2 runs)"),
        (["one"], "one (1 run)"),
        (["0", "1"], "0, 1 (2 runs)"),
    ],
)
def test_name_group_is_what_the_names_share(names: list[str], shown: str) -> None:
    assert name_group(names) == shown
