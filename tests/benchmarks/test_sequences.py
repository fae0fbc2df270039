"""The scores of the benchmark of sequences, on tables whose answer is known."""

import re
from pathlib import Path

import pytest

from benchmarks.sequences import (
    ATOM,
    build_baselines,
    list_auc,
    replace_numbers,
    score_k_mers,
    score_variants,
)
from examples.make_sequences import make_molecules


def test_score_variants_ranks_by_the_difference_of_log_probabilities():
    places = [{"token": "A", "score": -1.0, "alternatives": {"C": -1.5, "D": -6.0}}]
    rows = [
        {"id": "x", "position": "1", "residue": residue, "tolerated": tolerated}
        for residue, tolerated in (("C", "1"), ("D", "0"))
    ]
    found = score_variants([{"id": "x", "positions": places}], rows, ["AAACDDDD"])
    assert found == {"model": 1.0, "frequency of residues": 0.0}


def test_list_auc_compares_each_kind_with_ordinary_lines():
    kinds, scores = ["", "pair", "", "rare"], [-1.0, -0.5, -2.0, -9.0]
    assert list_auc(kinds, scores) == {"all": 0.5, "pair": 0.0, "rare": 1.0}


def test_build_baselines_counts_words_and_templates():
    lines = [f"user u{n} opened <num>" for n in range(400)] + ["disk is full"]
    found = build_baselines(lines)
    assert found["count of the template"]("user u999 opened <num>") == 400
    assert found["count of the line"]("user u999 opened <num>") == 0
    assert found["count of the line"]("disk is full") == 1
    assert found["unigram, mean"]("user opened") > found["unigram, mean"]("disk full")
    assert found["unigram, rarest word"]("user full") == found["unigram, rarest word"]("full")


def test_replace_numbers_has_addresses_first():
    assert replace_numbers("10.0.1.22 took 0.5 ms") == "IP took NUM.NUM ms"


def test_score_k_mers_tells_letters_apart():
    train, test = (
        [{"text": letter * n, "label": letter} for letter in "AC" for n in sizes]
        for sizes in (range(4, 8), range(8, 12))
    )
    assert score_k_mers(train, test) == 1.0


def test_atoms_of_made_molecules_are_all_of_their_text(tmp_path: Path):
    make_molecules(tmp_path, 50)
    texts = [line.split()[0] for line in (tmp_path / "molecules.smi").read_text().splitlines()[1:]]
    assert len(texts) == 50
    for text in texts:
        assert "".join(re.findall(ATOM, text)) == text


@pytest.mark.parametrize("text", ["C[C@H](N)Cl", "Br"])
def test_atoms_are_whole(text: str):
    assert {"[C@H]", "Cl", "Br"} & {*re.findall(ATOM, text)}
