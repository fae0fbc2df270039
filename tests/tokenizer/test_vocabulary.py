from maskwright.tokenizer.files import find_unknown, is_filler, name_fillers, round_up


def test_sizes_are_rounded_up() -> None:
    assert [round_up(size) for size in (1, 64, 65, 8192)] == [64, 64, 128, 8192]


def test_fillers() -> None:
    assert name_fillers(2) == ["[unused0]", "[unused1]"]
    assert is_filler("[unused17]")
    assert not is_filler("[unused17] ")
    assert not is_filler("unused")


def test_an_unknown_token_that_is_no_text_is_none() -> None:
    assert find_unknown({"model": {"vocab": {"a": 0}, "unk_token": ["a"]}}) is None
    assert find_unknown({"model": {"vocab": {"a": 0}, "unk_token": "a"}}) == "a"
