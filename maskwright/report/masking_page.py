"""The page of `maskwright inspect --html`: rows in color, with a slider for the mask rate."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from maskwright.data.row_view import RowView
from maskwright.report.pages import fill_template
from maskwright.tokenizer.tokenizer import Tokenizer

_KINDS = ("masked", "random", "kept")


def render_rows(
    title: str,
    rows: Mapping[float, Sequence[RowView]],
    chosen: float,
    tokenizer: Tokenizer,
    note: str = "",
) -> str:
    """Return the page as HTML: the same rows at each rate, one rate at a time.

    Args:
        title: of the page.
        rows: the rows by mask rate, ascending.
        chosen: the rate that is shown first.
        tokenizer: that of the rows.
        note: where the rows come from.
    """
    views = [
        {
            "rate": f"{rate:.0%}",
            "rows": [_describe(row, tokenizer) for row in of_rate],
            "counts": _count(of_rate, tokenizer),
        }
        for rate, of_rate in rows.items()
    ]
    first = [*rows].index(chosen)
    return fill_template("masking.html.j2", title=title, views=views, first=first, note=note)


def _describe(row: RowView, tokenizer: Tokenizer) -> dict[str, object]:
    tokens = groupby(row.list_tokens(tokenizer), key=lambda token: token.segment)
    segments = [(row.describe_pair(segment), [*found]) for segment, found in tokens]
    return {"name": row.name, "segments": segments}


def _count(rows: Sequence[RowView], tokenizer: Tokenizer) -> str:
    """Return how many of the tokens are masked, and how."""
    found = Counter(token.kind for row in rows for token in row.list_tokens(tokenizer))
    chosen = sum(found[kind] for kind in _KINDS)
    parts = ", ".join(f"{found[kind]:,} {kind}" for kind in _KINDS)
    return f"{chosen:,} of {found.total():,} tokens are predicted: {parts}"
