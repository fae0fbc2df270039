from maskwright.artifact.card import change_card

FRONT = "---\ntags:\n- a\nlicense: mit\n---\n\n"
INTRODUCTION = "# Larvae\n\nThey glow.\n"
THANKS = "\n## Thanks\n\nTo the larvae.\n"


def test_the_use_comes_before_all_other_sections() -> None:
    card = f"---\ntags: [a]\n---\n{INTRODUCTION}{THANKS}"
    changed = change_card(card, {"license": "mit"}, "\nNew words.\n")
    assert changed == f"{FRONT}{INTRODUCTION}\n## Use\n\nNew words.\n{THANKS}"
    again = change_card(changed, {}, "\nNewer words.\n")
    assert again == changed.replace("New words", "Newer words")


def test_the_section_of_an_older_card_is_replaced_and_moves_to_the_front() -> None:
    card = f"{FRONT}{INTRODUCTION}{THANKS}\n## Format\n\nOld words.\n"
    changed = change_card(card, {}, "\nNew words.\n")
    assert changed == f"{FRONT}{INTRODUCTION}\n## Use\n\nNew words.\n{THANKS}"


def test_a_card_of_a_title_gets_a_section() -> None:
    assert change_card("# Larvae\n", {}, "\nWords.\n").endswith("# Larvae\n\n## Use\n\nWords.\n")
