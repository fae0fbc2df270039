"""What is published of a run's provenance: of each path the last part, and all else as it is."""

from typing import Any

import pytest

from maskwright.runs.run_directory import shorten_provenance


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"command": ["client data/acme corp/x.txt"]}, {"command": ["x.txt"]}),
        ({"command": ["--text=client data/acme corp/x.txt"]}, {"command": ["--text=x.txt"]}),
        ({"prepared_data": "my data/acme-1234"}, {"prepared_data": "acme-1234"}),
        ({"prepared_data": {"days": "my data/acme"}}, {"prepared_data": {"days": "acme"}}),
        ({"teacher": {"folder": "/home/me/my data/bert"}}, {"teacher": {"folder": "bert"}}),
    ],
)
def test_blanks_do_not_keep_the_folders_of_a_path(
    values: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert shorten_provenance(values) == shown


@pytest.mark.parametrize(
    "values",
    [
        {"cpu": "AMD Ryzen 7 w/ Radeon Graphics"},
        {"resumptions": [{"cpu": "AMD Ryzen 7 w/ Radeon Graphics", "step": 3}]},
        {"command": ["pretrain", "hf:me/larvae:en#body", "--text=hf:me/larvae"]},
        {"command": ["s3://bucket/my data/wiki"], "cpu_count": 2},
    ],
)
def test_what_is_no_path_is_shown_whole(values: dict[str, Any]) -> None:
    assert shorten_provenance(values) == values
