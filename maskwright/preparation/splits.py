"""The corpus in its two splits, neither of them empty.

Documents are held out by hash, unless the user names the files to hold out. That leaves nothing or
next to nothing to validate on when there are only a few. If it is less than half of its share of
the text, and little at that, the end of the longest document makes up the share, cut at a line end.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.progress import ReadProgress
from maskwright.corpus.split import LEAST_VALID_FRACTION, MOST_BYTES_COUNTED, choose_valid_fraction
from maskwright.corpus.stream import Split, stream_corpus
from maskwright.errors import CorpusError

_ENOUGH_CHARACTERS = 2_000  # to validate on, however small a share of the text


def settle_valid_fraction(paths: Sequence[str], config: CorpusConfig) -> CorpusConfig:
    """Return `config` with the share of the text that is held out, chosen by the text's size.

    The text is read as far as its size matters (8 MB), so that the share depends on nothing else.

    Raises:
        CorpusError: as `stream_corpus`.
    """
    if config.valid_fraction is not None or config.valid_text:
        return config
    everything = replace(config, valid_fraction=0.0)
    num_bytes = 0
    for _, document in stream_corpus(paths, everything, Counter()):
        num_bytes += len(document.text.encode())
        if num_bytes >= MOST_BYTES_COUNTED:
            break
    return replace(config, valid_fraction=choose_valid_fraction(num_bytes))


def split_corpus(
    paths: Sequence[str],
    config: CorpusConfig,
    counts: Counter[str],
    progress: ReadProgress | None = None,
) -> Iterator[tuple[Split, str]]:
    """Yield the cleaned text of each document with its split; see `stream_corpus`.

    Raises:
        CorpusError: as `stream_corpus`, or too little text to hold some of it out.
    """
    held_back: str | None = None  # the longest document for training so far
    num_characters = num_valid = 0
    fraction = LEAST_VALID_FRACTION if config.valid_fraction is None else config.valid_fraction
    enough = not fraction or bool(config.valid_text)
    for split, document in stream_corpus(paths, config, counts, progress):
        text = document.text
        num_characters += len(text)
        num_valid += len(text) * (split == "valid")
        enough = enough or num_valid >= _ENOUGH_CHARACTERS
        if split == "train" and not enough:
            if held_back is None or len(text) > len(held_back):
                held_back, text = text, held_back
            if text is None:
                continue
        yield split, text
    if held_back is None:
        return
    num_missing = round(fraction * num_characters) - num_valid
    enough = enough or (num_valid > 0 and num_valid >= num_missing)
    head, tail = (held_back, "") if enough else cut_tail(held_back, num_missing)
    if head and tail:
        counts["document cut in two to hold out its end"] += 1
        yield "train", head
        yield "valid", tail
    elif num_valid:
        yield "train", held_back
    else:
        raise CorpusError(
            f"{', '.join(paths)}: {num_characters} characters are too few to hold some out for "
            "validation. Give more text."
        )


def cut_tail(text: str, num_characters: int) -> tuple[str, str]:
    """Cut about `num_characters`, at most half, off the end: at a line end, else at a blank."""
    place = len(text) - min(max(num_characters, 1), len(text) // 2)
    for blank in ("\n", " "):
        found = text.rfind(blank, len(text) // 4, place)
        if found > 0:
            place = found
            break
    return text[:place].strip(), text[place:].strip()
