"""Pages stay short: a bound on the words of each page, and on their sum.

Words of code count; bars and dashes of tables do not.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The bounds of the pages of docs/, and of the files at the root. Lower a bound when a page shrinks.
BOUNDS = {
    "docs/api.md": 4550,
    "docs/choose.md": 850,
    "docs/commands.md": 650,
    "docs/configuration.md": 3100,
    "docs/data.md": 1000,
    "docs/decisions/0001-own-strict-configuration.md": 220,
    "docs/decisions/0002-rows-are-numbered-by-window.md": 250,
    "docs/decisions/0003-masking-by-priorities.md": 250,
    "docs/decisions/0006-ranks-and-sharded-checkpoints.md": 250,
    "docs/decisions/0011-mixtures.md": 250,
    "docs/decisions/0018-a-job-lives-in-the-room-of-its-name.md": 200,
    "docs/decisions/0019-stages-without-a-driver.md": 250,
    "docs/decisions/0020-the-budget-chooses-the-size.md": 250,
    "docs/decisions/0023-steps-are-recorded.md": 250,
    "docs/decisions/0025-modernbert-is-the-default-family.md": 200,
    "docs/evaluation.md": 1500,
    "docs/finetune.md": 2100,
    "docs/formats.md": 900,
    "docs/get-started.md": 800,
    "docs/glossary.md": 500,
    "docs/howto/compare-settings.md": 550,
    "docs/howto/containers.md": 150,
    "docs/howto/distill.md": 450,
    "docs/howto/extend.md": 450,
    "docs/howto/from-run-mlm.md": 250,
    "docs/howto/from-sentence-transformers.md": 200,
    "docs/howto/memory.md": 500,
    "docs/howto/new-vocabulary.md": 300,
    "docs/howto/publish.md": 250,
    "docs/howto/question-answering.md": 300,
    "docs/howto/rerank.md": 200,
    "docs/howto/resume.md": 450,
    "docs/howto/search-texts.md": 150,
    "docs/howto/sequences.md": 1000,
    "docs/howto/few-labels.md": 500,
    "docs/howto/serve-behind-proxy.md": 200,
    "docs/howto/several-gpus.md": 600,
    "docs/howto/stream.md": 400,
    "docs/index.md": 250,
    "docs/interchange.md": 900,
    "docs/look.md": 600,
    "docs/mixtures.md": 500,
    "docs/objectives.md": 900,
    "docs/python.md": 500,
    "docs/reliability.md": 900,
    "docs/results.md": 2000,
    "docs/scale.md": 950,
    "docs/serve.md": 850,
    "docs/tour.md": 2800,
    "docs/troubleshooting.md": 1450,
    "docs/tutorials/adapt.md": 700,
    "docs/tutorials/entities.md": 850,
    "docs/tutorials/language.md": 680,
    "docs/tutorials/masking.md": 680,
    "docs/tutorials/search.md": 850,
    "docs/tutorials/slurm.md": 400,
    "docs/tutorials/tokenizers.md": 620,
    "docs/what-to-expect.md": 450,
    "README.md": 450,
    "CONTRIBUTING.md": 820,
    "CHANGELOG.md": 800,
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
