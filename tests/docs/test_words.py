"""Pages stay short: a bound on the words of each page, and on their sum.

Words of code count; bars and dashes of tables do not.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The bounds of the pages of docs/, and of the files at the root. Lower a bound when a page shrinks.
BOUNDS = {
    "docs/api.md": 4500,
    "docs/choose.md": 1810,
    "docs/commands.md": 820,
    "docs/configuration.md": 3000,
    "docs/data.md": 1590,
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
    "docs/evaluation.md": 4560,
    "docs/finetune.md": 4670,
    "docs/formats.md": 680,
    "docs/get-started.md": 980,
    "docs/glossary.md": 510,
    "docs/howto/compare-settings.md": 1100,
    "docs/howto/containers.md": 250,
    "docs/howto/distill.md": 660,
    "docs/howto/extend.md": 490,
    "docs/howto/from-run-mlm.md": 430,
    "docs/howto/from-sentence-transformers.md": 480,
    "docs/howto/memory.md": 550,
    "docs/howto/new-vocabulary.md": 390,
    "docs/howto/publish.md": 360,
    "docs/howto/question-answering.md": 530,
    "docs/howto/rerank.md": 280,
    "docs/howto/resume.md": 400,
    "docs/howto/search-texts.md": 270,
    "docs/howto/sequences.md": 650,
    "docs/howto/serve-behind-proxy.md": 330,
    "docs/howto/several-gpus.md": 760,
    "docs/howto/stream.md": 360,
    "docs/index.md": 420,
    "docs/interchange.md": 3040,
    "docs/look.md": 690,
    "docs/mixtures.md": 810,
    "docs/objectives.md": 880,
    "docs/python.md": 540,
    "docs/reliability.md": 890,
    "docs/results.md": 1990,
    "docs/scale.md": 1890,
    "docs/serve.md": 2220,
    "docs/tour.md": 2620,
    "docs/troubleshooting.md": 2190,
    "docs/tutorials/adapt.md": 1440,
    "docs/tutorials/entities.md": 1470,
    "docs/tutorials/language.md": 1360,
    "docs/tutorials/masking.md": 1010,
    "docs/tutorials/search.md": 1410,
    "docs/tutorials/slurm.md": 900,
    "docs/tutorials/tokenizers.md": 1120,
    "README.md": 670,
    "CONTRIBUTING.md": 800,
    "CHANGELOG.md": 610,
}
MAX_WORDS_OF_DOCS = 60_100  # aim: 42,000


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
