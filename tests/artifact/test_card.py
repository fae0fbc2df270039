from maskwright.artifact.card import change_card

CARD = "---\ntags: [a]\n---\n# Larvae\n\n## Format\n\nOld words.\n{after}"


def test_another_format_leaves_the_sections_around_it() -> None:
    after = "\n## Thanks\n\nTo the larvae.\n"
    changed = change_card(CARD.format(after=after), {"license": "mit"}, "\nNew words.\n")
    assert changed == (
        "---\ntags:\n- a\nlicense: mit\n---\n\n# Larvae\n\n## Format\n\nNew words.\n" + after
    )


def test_a_card_without_a_format_gets_one() -> None:
    assert change_card("# Larvae\n", {}, "\nWords.\n").endswith("# Larvae\n\n## Format\n\nWords.\n")
