import pytest

from maskwright.model_folder.model_card import add_example, change_card, read_example, split_card

FRONT = "---\ntags:\n- a\nlicense: mit\n---\n\n"
INTRODUCTION = "# Larvae\n\nThey glow.\n"
THANKS = "\n## Thanks\n\nTo the larvae.\n"


def test_the_use_comes_before_all_other_sections() -> None:
    card = f"---\ntags: [a]\n---\n{INTRODUCTION}{THANKS}"
    changed = change_card(card, {"license": "mit"}, "\nNew words.\n")
    assert changed == f"{FRONT}{INTRODUCTION}\n## Use\n\nNew words.\n{THANKS}"
    again = change_card(changed, {}, "\nNewer words.\n")
    assert again == changed.replace("New words", "Newer words")


def test_a_card_of_a_title_gets_a_section() -> None:
    assert change_card("# Larvae\n", {}, "\nWords.\n").endswith("# Larvae\n\n## Use\n\nWords.\n")


@pytest.mark.parametrize(
    "texts",
    [
        ("The [MASK] glows.",),
        ("It's: a", "# b"),
        ("a\n---\n\n## Use\nb\x1b[2J",),
        ("half of a pair \ud800", "日本"),
    ],
)
def test_an_example_comes_back_as_it_was(texts: tuple[str, ...]) -> None:
    card = add_example(f"{FRONT}{INTRODUCTION}", texts)
    card.encode()
    assert read_example(card) == texts
    assert read_example(change_card(card, {"license": "cc0-1.0"}, "\nWords.\n")) == texts
    assert split_card(card)[0]["license"] == "mit"
    assert card.endswith(f"\n\n{INTRODUCTION}")


@pytest.mark.parametrize(
    "widget", ["3", "[]", "[a]", "[{src: a.png}]", "{text: a}", "[{text: 3}]", "[{text_pair: a}]"]
)
def test_what_is_no_text_is_no_example(widget: str) -> None:
    assert read_example(f"---\nwidget: {widget}\n---\n{INTRODUCTION}") == ()
    assert read_example(INTRODUCTION) == ()
