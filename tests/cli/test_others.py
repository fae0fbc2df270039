"""fill, inspect, prepare, tokenizer and recipes through the command line."""

import json
import re
from pathlib import Path

import pytest

from maskwright.cli.main import COMMANDS
from maskwright.config import from_mapping
from maskwright.recipes import list_recipes
from maskwright.runs.config import PretrainConfig
from tests.command import Cli
from tests.workplace import data_of

SENTENCE = "The small horse in the river eats [MASK] every day."


def test_fill_json_has_one_object_for_each_input(workplace: Path, cli: Cli):
    two = "The [MASK] cat in the forest eats [MASK] every day."
    folder = str(workplace / "runs" / "small")
    lines = cli("fill", folder, SENTENCE, two, "--json", "--top-k", "3").splitlines()
    first, second = (json.loads(line) for line in lines)
    assert first["text"] == SENTENCE
    assert [len(masks) for masks in (first["masks"], second["masks"])] == [1, 2]
    for prediction in first["masks"][0]:
        assert prediction.keys() == {"token", "token_id", "score"}
    assert len(first["masks"][0]) == 3


def test_inspect_shows_counts_and_masked_rows(workplace: Path, cli: Cli):
    data = str(data_of(workplace))
    report = cli("inspect", data, "--data.max_seq_length", "32", "--rows", "3")
    for word in ("documents", "fertility", "fill rate", "hidden", "[MASK]⟨", "row 2", "[CLS]"):
        assert word in report, word


@pytest.mark.parametrize(("fraction", "is_ready"), [("0.1", True), ("0", False)])
def test_prepare_says_what_to_run_next_if_it_can_run(
    workplace: Path, tmp_path: Path, cli: Cli, fraction: str, is_ready: bool
):
    text, flags = str(workplace / "animals.txt"), ("--corpus.valid_fraction", fraction)
    said = cli("prepare", text, "--out", tmp_path / "d", *flags)
    assert ("maskwright pretrain" in said) is is_ready
    assert ("no text is held out" in said) is not is_ready


def test_inspect_takes_the_seed_of_the_run(workplace: Path, tmp_path: Path, cli: Cli):
    data = str(data_of(workplace))
    config = tmp_path / "run.yaml"
    config.write_text(
        "seed: 5\ndata:\n  max_seq_length: 32\nmasking:\n  rate: 0.3\n"
        "train:\n  max_steps: 5\n  seq_length_schedule: ['0:16', '0.5:32']\n",
        encoding="utf-8",
    )
    report = cli("inspect", data, "--config", config)
    assert "row length 16, mask rate 0.3, seed 5" in report
    assert cli("inspect", data, "--config", config, "--seed", "5") == report
    assert cli("inspect", data, "--config", config, "--seed", "6") != report


def test_tokenizer_train_and_inspect(workplace: Path, tmp_path: Path, cli: Cli):
    text, out = str(workplace / "animals.txt"), str(tmp_path / "tokenizer")
    flags = ["--tokenizer.kind", "bpe", "--tokenizer.vocab_size", "300"]
    assert "320 tokens" in cli("tokenizer", "train", text, "--out", out, *flags)
    exists = "exists already. Choose another folder"
    assert exists in cli.refuse("tokenizer", "train", text, "--out", out)
    other = ["--out", str(tmp_path / "other"), "--corpus.valid_fraction", "0.2"]
    assert "corpus.valid_fraction" in cli.refuse("tokenizer", "train", text, *other)
    assert cli("tokenizer", "inspect", out, "a(=c)[MASK]").split()[-1] == "[MASK]"
    report = cli("tokenizer", "inspect", out, "The cat eats fish.", "--on", text)
    assert "fertility" in report.lower()


def test_tokenizers_are_compared_text_by_text(workplace: Path, tmp_path: Path, cli: Cli):
    text, letters = str(workplace / "animals.txt"), str(tmp_path / "letters")
    cli("tokenizer", "train", text, "--out", letters, "--tokenizer.kind", "character")
    other = tmp_path / "other.txt"
    other.write_text("The cat eats zebras.\n")
    arguments = [str(workplace / "runs" / "small"), letters, "--on", text, str(other)]
    report = cli("tokenizer", "compare", *arguments)
    assert "animals.txt" in report
    assert "other.txt: 4 words" in report
    assert "  |  e v e r y" in report
    (tmp_path / "strange.txt").write_text("漢字 かな 漢字\n")
    report = cli("tokenizer", "compare", *arguments[:3], tmp_path / "strange.txt")
    assert "of this text: that it needs few tokens is no advantage" in report
    rows = map(json.loads, cli("tokenizer", "compare", *arguments, "--json").splitlines())
    [words, characters] = [row for row in rows if row["text"] == text]
    assert words["num_words"] == characters["num_words"]
    assert words["fertility"] < 2 < characters["fertility"]
    for wrong, message in (
        ([letters, "--on", text], "at least two tokenizers"),
        ([letters, str(tmp_path), "--on", text], "holds no tokenizer.json"),
        ([letters, letters, "--on", "-"], "can be read only once"),
        ([letters, letters, "--on", text], "one is named twice"),
    ):
        assert message in cli.refuse("tokenizer", "compare", *wrong)


def test_the_text_of_on_is_read_as_the_flags_say(workplace: Path, tmp_path: Path, cli: Cli):
    letters, data = str(tmp_path / "letters"), tmp_path / "web.jsonl"
    text, small = str(workplace / "animals.txt"), str(workplace / "runs" / "small")
    cli("tokenizer", "train", text, "--out", letters, "--tokenizer.kind", "character")
    data.write_text('{"body": "The cat eats fish."}\n')
    for command in (["inspect", small], ["compare", small, letters]):
        arguments = ["tokenizer", *command, "--on", str(data)]
        assert "corpus.text_field" in cli.refuse(*arguments)
        assert " 4 words" in f" {cli(*arguments, '--corpus.text_field', 'body')}"
        cli.refuse(*arguments, "--corpus.valid_fraction", "0.1")


def test_words_are_compared_as_they_occur_in_running_text(
    workplace: Path, tmp_path: Path, cli: Cli
):
    text, folders = str(workplace / "animals.txt"), []
    for kind in ("bpe", "wordpiece"):
        folders.append(str(tmp_path / kind))
        options = ["--tokenizer.kind", kind, "--tokenizer.vocab_size", "512"]
        cli("tokenizer", "train", text, "--out", folders[-1], *options)
    # Both have room for all words of the text, which byte-level BPE spells with their blanks.
    report = cli("tokenizer", "compare", *folders, "--on", text)
    assert "take apart differently" not in report


def test_byte_level_tokens_are_readable(tmp_path: Path, cli: Cli):
    text, folders = tmp_path / "korean.txt", [str(tmp_path / kind) for kind in ("bpe", "character")]
    text.write_text("그의 고양이 그의 고양이 그의 고양이\n" * 20)
    for folder in folders:
        options = ["--tokenizer.kind", Path(folder).name, "--tokenizer.vocab_size", "300"]
        cli("tokenizer", "train", text, "--out", folder, *options)
    shown = cli("tokenizer", "inspect", folders[0], "그의 고양이\n", "--on", text)
    assert "<0xEA> <0xB7><0xB8>의 ▁고양이 ↵" in shown
    compared = cli("tokenizer", "compare", *folders, "--on", text)
    assert "그의 (3)   ▁그의  |  그 의" in compared
    assert not set("Ġê¸ìĿĺ") & set(shown + compared)


def test_a_run_s_tokenizer_is_inspected(workplace: Path, cli: Cli):
    run_folder = workplace / "runs" / "small"
    shown = cli("tokenizer", "inspect", run_folder, "The small horse")
    assert shown == cli("tokenizer", "inspect", run_folder / "model", "The small horse")


def test_recipes_are_valid_and_say_what_they_need(cli: Cli):
    shown = cli("recipes")
    for recipe in list_recipes():
        assert from_mapping(PretrainConfig, recipe.values)
        assert recipe.facts.keys() >= {"hardware", "time", "result", "command"}
        assert recipe.name in shown


def test_recipes_begin_with_what_people_use(cli: Cli):
    shown = cli("recipes")
    names = ["auto", "continue", "quickstart", "small", "base", "bert", "neobert-style"]
    places = [re.search(rf"^{name}  ", shown, re.MULTILINE) for name in names]
    starts = [place.start() for place in places if place]
    assert len(starts) == len(names)
    assert starts == sorted(starts)
    assert starts[0] == 0


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "tokenizer"])
def test_every_command_explains_itself(command: str, cli: Cli):
    assert "usage: maskwright" in cli(command, "--help")
