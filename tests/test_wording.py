from maskwright.wording import count_noun


def test_count_noun() -> None:
    assert [count_noun(number, "document") for number in (0, 1, 2, 8731)] == [
        "0 documents",
        "1 document",
        "2 documents",
        "8,731 documents",
    ]
