"""Pages stay short: a bound on the words of each page, and on their sum.

Words of code count; bars and dashes of tables do not.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The bounds of the pages of docs/, and of the files at the root. Lower a bound when a page shrinks.
BOUNDS = {
    "docs/api.md": 4500,
    "docs/choose.md": 810,
    "docs/commands.md": 620,
    "docs/configuration.md": 3000,
    "docs/data.md": 980,
    "docs/decisions/0001-own-strict-configuration.md": 180,
    "docs/decisions/0002-rows-are-numbered-by-window.md": 210,
    "docs/decisions/0003-masking-by-priorities.md": 220,
    "docs/decisions/0006-ranks-and-sharded-checkpoints.md": 210,
    "docs/decisions/0011-mixtures.md": 200,
    "docs/decisions/0018-a-job-lives-in-the-room-of-its-name.md": 180,
    "docs/decisions/0019-stages-without-a-driver.md": 210,
    "docs/decisions/0020-the-budget-chooses-the-size.md": 210,
    "docs/decisions/0023-steps-are-recorded.md": 210,
    "docs/decisions/0025-modernbert-is-the-default-family.md": 190,
    "docs/evaluation.md": 1490,
    "docs/finetune.md": 1710,
    "docs/formats.md": 680,
    "docs/get-started.md": 770,
    "docs/glossary.md": 510,
    "docs/howto/compare-settings.md": 540,
    "docs/howto/containers.md": 130,
    "docs/howto/distill.md": 400,
    "docs/howto/extend.md": 400,
    "docs/howto/from-run-mlm.md": 200,
    "docs/howto/from-sentence-transformers.md": 170,
    "docs/howto/memory.md": 480,
    "docs/howto/new-vocabulary.md": 290,
    "docs/howto/publish.md": 200,
    "docs/howto/question-answering.md": 280,
    "docs/howto/rerank.md": 190,
    "docs/howto/resume.md": 400,
    "docs/howto/search-texts.md": 130,
    "docs/howto/sequences.md": 650,
    "docs/howto/serve-behind-proxy.md": 180,
    "docs/howto/several-gpus.md": 560,
    "docs/howto/stream.md": 350,
    "docs/index.md": 240,
    "docs/interchange.md": 890,
    "docs/look.md": 550,
    "docs/mixtures.md": 480,
    "docs/objectives.md": 880,
    "docs/python.md": 450,
    "docs/reliability.md": 890,
    "docs/results.md": 2000,
    "docs/scale.md": 930,
    "docs/serve.md": 810,
    "docs/tour.md": 2620,
    "docs/troubleshooting.md": 1440,
    "docs/tutorials/adapt.md": 650,
    "docs/tutorials/entities.md": 830,
    "docs/tutorials/language.md": 600,
    "docs/tutorials/masking.md": 540,
    "docs/tutorials/search.md": 730,
    "docs/tutorials/slurm.md": 380,
    "docs/tutorials/tokenizers.md": 460,
    "docs/what-to-expect.md": 400,
    "README.md": 350,
    "CONTRIBUTING.md": 800,
    "CHANGELOG.md": 610,
}
MAX_WORDS_OF_DOCS = 42_000


def count_words(page: str) -> int:
    text = (ROOT / page).read_text(encoding="utf-8")
    return sum(any(map(str.isalnum, word)) for word in text.split())


def list_pages() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]


def test_each_page_has_a_bound() -> None:
    files = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    assert set(list_pages()) == BOUNDS.keys() - files


@pytest.mark.parametrize("page", BOUNDS)
def test_a_page_has_no_more_words_than_its_bound(page: str) -> None:
    assert count_words(page) <= BOUNDS[page]


def test_all_pages_together_have_few_words() -> None:
    assert sum(map(count_words, list_pages())) <= MAX_WORDS_OF_DOCS
