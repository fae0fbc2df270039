"""Pairs that belong together: which are wrong answers to one another, and what is kept."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import label_ranking_average_precision_score

from maskwright.cli.main import main
from maskwright.corpus.table_files import TableRow
from maskwright.errors import CorpusError, InputError
from maskwright.finetuning.config import FinetuneConfig, TaskFiles
from maskwright.finetuning.contrastive import ContrastiveFitting, Pairs
from maskwright.finetuning.embedding import Embedding, halve, load_pairs
from maskwright.finetuning.examples import collate, encode_texts
from maskwright.finetuning.metrics import read_deciding_score
from maskwright.inference.embed import Embedder
from maskwright.interop.export import export
from maskwright.model.classifier import pool_mean
from maskwright.model_folder.folder import read_dimensions, save_model
from maskwright.runs.find_model import find_model_folder
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER, make_loaded
from tests.runs.hub import write_modules


def make_pairs(second: str = "{}") -> Pairs:
    """A text with itself, which any encoder finds, or with something else."""
    texts = [f"the {a} sees the {b}" for a in ("cat", "dog", "tree") for b in ("log", "bed", "ed")]
    sides = ([(text,) for text in texts], [(second.format(text),) for text in texts])
    first, other = (encode_texts(side, TOKENIZER, 64)[0] for side in sides)
    return Pairs(first, other)


def fit(
    pairs: Pairs, rate: float, **settings: Any
) -> tuple[ContrastiveFitting, list[dict[str, Any]]]:
    given = {"epochs": 4, "batch_size": 9, "learning_rate": rate, "layer_decay": 1.0}
    config = FinetuneConfig(**{**given, **settings})
    records: list[dict[str, Any]] = []
    model = make_loaded().model
    return ContrastiveFitting(model, pairs, pairs, TOKENIZER, config, records.append), records


def test_a_ruined_model_is_kept_as_it_was():
    fitting, records = fit(make_pairs(), rate=10.0)
    weights = {name: one.clone() for name, one in fitting.model.state_dict().items()}
    before = fitting.score()
    best = fitting.run()
    assert records[-1]["found"] < 1 == before["found"]
    assert best == records[0] == {"seed": 0, "step": 0, "epoch": 0.0, "seconds": 0.0, **before}
    after = fitting.model.state_dict()
    assert all(torch.equal(weights[name], after[name]) for name in weights)


def test_what_scored_best_is_kept():
    fitting, records = fit(make_pairs("and {} and that did"), rate=1e-3)
    best = fitting.run()
    assert best["step"] > 0
    assert best == max(records, key=lambda one: (one["found"], -one["valid_loss"]))
    assert best.items() >= fitting.score().items()


def test_another_pair_with_the_same_text_is_neither_found_nor_missed():
    """Of (A, B) and (B, A), the nearest to A is A, in the pair that is no wrong answer."""
    pairs = make_pairs("and {} and that did")
    one, other = pairs.first[:1], pairs.second[:1]
    fitting, _ = fit(Pairs(one + other, other + one), rate=1e-3)
    whole = {"found": 1, "recall_10": 1, "mrr": 1, "candidates": 2, "valid_loss": 0}
    assert fitting.score() == whole


def test_ranks_are_those_of_the_cosines():
    texts = make_pairs().first
    pairs = Pairs(texts[:4], texts[4:8])
    fitting, _ = fit(pairs, rate=1e-3)
    scores, encoder = fitting.score(), fitting.model.encoder
    batches = [collate(side, TOKENIZER.pad_id) for side in pairs.sides]
    with torch.no_grad():
        first, second = (pool_mean(encoder(b.input_ids, b.context), b.context) for b in batches)
    cosines = F.cosine_similarity(first[:, None], second[None], dim=-1)
    mrr = label_ranking_average_precision_score(torch.eye(len(pairs)), cosines)
    assert scores["mrr"] == pytest.approx(mrr)
    assert scores["found"] <= scores["mrr"] < 1 == scores["recall_10"]  # of four candidates


def test_numbers_order_the_cosines():
    pairs = make_pairs("and {} and that did")
    scores = torch.arange(len(pairs), dtype=torch.float32)
    fitting, records = fit(replace(pairs, scores=scores), rate=3e-3, epochs=15, patience=0)
    best = fitting.run()
    assert best["spearman"] > records[0]["spearman"] + 0.1
    assert best["spearman"] == max(record["spearman"] for record in records)


@pytest.mark.parametrize("settings", [{}, {"dimensions": (4, 8)}])
def test_negatives_are_told_from_partners(settings: dict[str, Any]):
    pairs = make_pairs("and {} and that did")
    negatives = [*pairs.second[1:], pairs.second[0]]
    fitting, records = fit(replace(pairs, negatives=negatives), rate=1e-3, **settings)
    fitting.run()
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < losses[0] - 0.1


def test_mined_negatives_are_partners_of_others():
    pairs = make_pairs("and {} and that did")
    fitting, _ = fit(pairs, rate=1e-3)
    fitting.mine()
    partners = [tuple(one.ids) for one in pairs.second]
    mined = [tuple(one.ids) for one in fitting.train.negatives]
    assert len(mined) == len(pairs)
    assert all(a in partners and a != b for a, b in zip(mined, partners, strict=True))


def write_table(path: Path, *columns: str) -> Path:
    words = ("cat", "dog", "tree", "log", "bed", "sees")
    texts = [" ".join(three) for three in permutations(words, 3)]
    more = {"score": [f"{n / 100}" for n in range(len(texts))]}
    lists = [texts, [f"the {text} and the" for text in texts]]
    lists += [more.get(name, [*texts[5:], *texts[:5]]) for name in columns]
    rows = [("query", "passage", *columns), *zip(*lists, strict=True)]
    path.write_text("\n".join(map("\t".join, rows)) + "\n")
    return path


def test_columns_choose_the_loss(tmp_path: Path):
    task = Embedding()
    pair = {"sentence1": "query", "sentence2": "passage"}
    assert task.find_columns(write_table(tmp_path / "a.tsv"), {}) == pair
    triplets = task.find_columns(write_table(tmp_path / "b.tsv", "hard_negative"), {})
    assert triplets == {**pair, "negative": "hard_negative"}
    scored = task.find_columns(write_table(tmp_path / "c.tsv", "similarity"), {})
    assert scored == {**pair, "score": "similarity"}
    with pytest.raises(InputError, match="negative"):
        task.find_columns(write_table(tmp_path / "d.tsv", "negative", "score"), {})
    capital = task.find_columns(write_table(tmp_path / "e.tsv", "Score"), {})
    assert capital == {**pair, "score": "Score"}
    labeled = write_table(tmp_path / "f.tsv", "label")
    with pytest.raises(InputError, match="column label"):  # 0: a pair that does not belong together
        task.find_columns(labeled, {})
    assert task.find_columns(labeled, {"score": "label"}) == {**pair, "score": "label"}


def test_runs(tmp_path: Path, cli: Cli):
    model = tmp_path / "model"
    save_model(model, make_loaded().model, TOKENIZER)
    flags = ["--epochs", "1", "--batch_size", "16"]
    for number, (columns, more) in enumerate(
        [
            ((), ["--negatives", "mined"]),
            (("score",), []),
            (("negative",), ["--dimensions", "8,16"]),
        ]
    ):
        table = write_table(tmp_path / f"{number}.tsv", *columns)
        out = tmp_path / f"out-{number}"
        command = ["finetune", str(model), "--task", "embedding", "--train", str(table)]
        assert main([*command, "--out", str(out), *flags, *more]) == 0
        results = json.loads((out / "results.json").read_text())
        assert ("spearman" in results) == (columns == ("score",))
        assert read_deciding_score(out) == results["spearman" if columns == ("score",) else "found"]
    assert read_dimensions(tmp_path / "out-2" / "model") == [8, 16, 32]
    assert read_dimensions(tmp_path / "out-0" / "model") == []
    card = (tmp_path / "out-0" / "model" / "README.md").read_text()
    assert "pipeline_tag: sentence-similarity" in card
    assert f"Fine-tuned by maskwright from `{tmp_path.name}` on" in card
    assert "fill-mask" not in card
    for more, field in (
        (["--dimensions", "100000"], "dimensions = 100000"),
        (["--negatives", "mined"], "negatives = mined"),
    ):
        table, out = tmp_path / "2.tsv", tmp_path / "no"
        command = ["finetune", str(model), "--task", "embedding", "--train", str(table)]
        assert field in cli.refuse(*command, "--out", out, *flags, *more)
    command = ["finetune", str(model), "--task", "classification", "--train", str(table)]
    assert "--dimensions has no effect" in cli.refuse(
        *command, "--out", tmp_path / "no", "--dimensions", "8"
    )


def write_sentences(folder: Path, how: str) -> Path:
    """A folder of sentence-transformers: our export, or one that the library saved."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import modules

    save_model(folder / "model", make_loaded().model, TOKENIZER)
    if how == "export":
        export(folder / "model", "sentence-transformers", folder / "out")
        return folder / "out"
    transformer = modules.Transformer(str(folder / "model"), max_seq_length=24)
    pooling = modules.Pooling(transformer.get_embedding_dimension(), "cls")
    library.SentenceTransformer(modules=[transformer, pooling], device="cpu").save(
        str(folder / "out")
    )
    if how == "older":
        (folder / "out" / "0_Transformer").mkdir()
        for path in (folder / "out").iterdir():
            if path.is_file() and path.name not in ("modules.json", "README.md"):
                path.rename(folder / "out" / "0_Transformer" / path.name)
        listed = json.loads((folder / "out" / "modules.json").read_text())
        listed[0]["path"] = "0_Transformer"
        (folder / "out" / "modules.json").write_text(json.dumps(listed))
    return folder / "out"


@pytest.mark.parametrize(
    ("how", "pooling", "longest"),
    [("export", "mean", 64), ("saved", "cls", 24), ("older", "cls", 24)],
)
def test_a_model_of_sentence_transformers_becomes_one_again(
    how: str, pooling: str, longest: int, tmp_path: Path, cli: Cli
):
    start, table = write_sentences(tmp_path, how), write_table(tmp_path / "a.tsv")
    command = ["finetune", str(start), "--task", "embedding", "--train", str(table)]
    flags = ["--epochs", "2", "--batch_size", "16", "--learning_rate", "0.01"]
    assert main([*command, "--out", str(tmp_path / "run"), *flags, "--dimensions", "8"]) == 0
    library, folder = (
        pytest.importorskip("sentence_transformers"),
        find_model_folder(tmp_path / "run"),
    )
    theirs = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert theirs.max_seq_length == longest
    ours = Embedder(folder, "cpu")
    assert (ours.pooling, ours.longest) == (pooling, longest)
    texts = ["the cat sees the log", "the dog " * 40]
    np.testing.assert_allclose(ours(texts), theirs.encode(texts), atol=1e-5)
    before = Embedder(find_model_folder(start), "cpu")(texts)
    assert np.abs(ours(texts) - before).max() > 1e-3
    assert read_dimensions(folder) == [8, 32]
    assert "sentence-transformers loads this folder" in (folder / "README.md").read_text()
    assert "max_length = 100" in cli.refuse(
        *command, "--out", tmp_path / "other", "--max_length", "100"
    )


@pytest.mark.parametrize(
    ("pooling", "others", "named"),
    [
        ({"pooling_mode": "max"}, (), "names max"),
        ({"pooling_mode_lasttoken": True}, (), "names lasttoken"),
        ({"pooling_mode": "mean"}, ("Dense",), "names Dense"),
    ],
)
def test_modules_that_would_be_lost_are_refused(
    pooling: object, others: tuple[str, ...], named: str, tmp_path: Path, cli: Cli
):
    save_model(tmp_path / "model", make_loaded().model, TOKENIZER)
    write_modules(tmp_path / "model", pooling, *others)
    command = ["finetune", str(tmp_path / "model"), "--task", "embedding"]
    table = str(write_table(tmp_path / "a.tsv"))
    assert named in cli.refuse(*command, "--train", table, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_text_without_labels_is_enough(tmp_path: Path, cli: Cli):
    model, text = tmp_path / "model", tmp_path / "notes.txt"
    save_model(model, make_loaded().model, TOKENIZER)
    words = ("cat", "dog", "tree", "log", "bed", "sees")
    lines = [" ".join([*three, "and the", *three]) for three in permutations(words, 3)]
    text.write_text("\n\n".join(lines))
    command = ["finetune", str(model), "--task", "embedding", "--train", str(text)]
    flags = ["--epochs", "2", "--batch_size", "16"]
    assert "SimCSE" in cli(*command, "--out", tmp_path / "out", *flags)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["train_pairs"] + results["candidates"] == len(lines)
    scored = write_table(tmp_path / "scored.tsv", "score")
    valid = ["--valid", str(scored)]
    assert main([*command, "--out", str(tmp_path / "other"), *flags, *valid]) == 0
    assert "spearman" in json.loads((tmp_path / "other" / "results.json").read_text())
    assert "dropout = 0" in cli.refuse(*command, "--out", tmp_path / "no", "--dropout", "0")


def test_halves_are_of_one_text():
    row = halve(TableRow("a.txt:1", {"sentence1": "one two three four five"}))
    assert row.texts == ["one two three", "four five"]


def test_halves_of_a_script_without_blanks():
    text = "去年 北京大学附属中学的学生参观了中华人民共和国全国人民代表大会会议中心"
    first, second = halve(TableRow("a.txt:1", {"sentence1": text})).texts
    assert first + second == text
    assert abs(len(first) - len(second)) <= 1


def load_lines(folder: Path, lines: list[str], valid: list[str] | None = None) -> tuple[int, int]:
    """The number of training pairs and of validation pairs of text without labels."""
    paths = [folder / "train.txt", folder / "valid.txt"]
    for path, content in zip(paths, (lines, valid or []), strict=True):
        path.write_text("\n".join(content) + "\n")
    train, held_out = paths[0], paths[1] if valid else None
    files = TaskFiles(task="embedding", train=train, valid=held_out, valid_share=0.2)
    pairs, scored, _ = load_pairs(files, TOKENIZER, 16)
    return len(pairs), len(scored)


def test_short_lines_are_trained_on_and_not_scored(tmp_path: Path):
    words = ("cat", "dog", "tree", "log", "bed", "sees")
    short = [" ".join(three) for three in permutations(words, 3)]
    long = [f"{text} and the {text}" for text in short]
    assert max(map(len, short)) < 24 < min(map(len, long))
    train, scored = load_lines(tmp_path, short + long)
    assert train + scored == len(short + long)
    assert 0 < scored < len(long)
    trained, held_out = load_lines(tmp_path, short, [*long, *short])
    assert (trained, held_out) == (len(short), len(long))
    for lines, valid, name in ((short, None, "train"), (long, short, "valid")):
        with pytest.raises(CorpusError, match=rf"{name}\.txt: .* 24 characters.* --valid\.$"):
            load_lines(tmp_path, lines, valid)


def test_scores_without_an_order_are_an_error(tmp_path: Path):
    columns: dict[str, str | int] = {"sentence1": "query", "sentence2": "passage", "score": "score"}
    table, equal = (write_table(tmp_path / name, "score") for name in ("a.tsv", "b.tsv"))
    rows = [line.rpartition("\t")[0] for line in equal.read_text().splitlines()[1:]]
    equal.write_text("\n".join(["query\tpassage\tscore", *(f"{row}\t0.5" for row in rows)]) + "\n")
    for train, valid in ((equal, table), (table, equal), (equal, None)):
        files = TaskFiles(task="embedding", train=train, valid=valid, columns=columns)
        with pytest.raises(CorpusError, match=r"b\.tsv: all \d+ pairs have the score 0\.5"):
            load_pairs(files, TOKENIZER, 16)
