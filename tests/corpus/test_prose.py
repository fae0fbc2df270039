import pytest

from maskwright.corpus.prose import extract_prose, is_prose

DOCSTRING = """\
Returns the :func:`torch.abs` of ``input``, as `the notes <notes>`_ say, in a long
sentence that goes on in the **second** line.

.. math::
    \\text{out}_{i} = |\\text{input}_{i}|

.. note::
    This is a note of several words.

Args:
    input (Tensor): the input tensor, described at great length and
        wrapped.
    {out}

Example::

    >>> torch.abs(torch.tensor([-1, -2, 3]))
    tensor([ 1,  2,  3])

    import torch and do it

See Also
--------
A sentence follows the heading.

>>> outside()
of an example

- an item which is long enough to be wrapped, so it
  goes on here
- another item
"""


def test_sentences_stay_and_code_goes() -> None:
    assert extract_prose(DOCSTRING).split("\n") == [
        "Returns the torch.abs of input, as the notes say, in a long sentence that goes on in"
        " the second line.",
        "This is a note of several words.",
        "Args:",
        "input (Tensor): the input tensor, described at great length and wrapped.",
        "See Also",
        "A sentence follows the heading.",
        "- an item which is long enough to be wrapped, so it goes on here",
        "- another item",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick (brown) fox's well-known jump, isn't it?", True),
        ("x = np.arange(6).reshape(2, 3)", False),
        ("[[1, 2, 3], [4, 5, 6]]", False),
        ("Parameters", False),
        ("", False),
    ],
)
def test_prose_is_mostly_words(text: str, expected: bool) -> None:
    assert is_prose(text) == expected
