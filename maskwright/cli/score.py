"""``maskwright score``: how likely a trained model finds texts."""

import math
from collections.abc import Sequence
from itertools import tee
from typing import TYPE_CHECKING

from rich.markup import escape

import maskwright
from maskwright.cli.flags import Parser
from maskwright.cli.inputs import add_arguments, read_filled_sentences, report_unanswered
from maskwright.cli.tables import make_console
from maskwright.console import say, say_json
from maskwright.errors import InputError
from maskwright.formatting import count_noun
from maskwright.runs.find_model import find_model_folder
from maskwright.tokenizer.token_text import show_tokens

if TYPE_CHECKING:
    from maskwright.evaluation.pseudo_likelihood import PseudoLikelihood

_METRICS = ("within_word_l2r", "original")
_EPILOG = """A text's score is its pseudo-log-likelihood, in nats: the sum of the log-probabilities
of its tokens, each masked in turn, together with the later tokens of its word (within_word_l2r) or
alone (original). The higher, the likelier; longer texts score lower. The last line is the
pseudo-perplexity of all texts, exp(-sum of scores / tokens). A blank line, or one that cannot be
scored, has an empty line, or with --json a row without a score; it is no text of the corpus.

examples:
  maskwright score runs/NAME "The cats sleep." "The cats sleeps."
  maskwright score runs/NAME "The larvae are black." --tokens
  maskwright score runs/NAME --file sentences.txt --json --metric original
"""


def build_parser() -> Parser:
    """Return the parser of ``maskwright score``."""
    parser = Parser("score", "Score how likely texts are to a model.", _EPILOG)
    add_arguments(parser, "sentences")
    masked = f"what is masked with a token [{_METRICS[0]}]"
    parser.add_argument("--metric", choices=_METRICS, default=_METRICS[0], help=masked)
    parser.add_argument("--tokens", action="store_true", help="show the score of each token too")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a sentence, and one of the corpus"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    metric = arguments.metric
    sentences, given = tee(read_filled_sentences(arguments, "there is no sentence to score"))
    score = maskwright.PseudoLikelihoodScorer(find_model_folder(arguments.folder), arguments.device)
    totals: list[float] = []
    num_tokens = num_bad = 0
    results = score.stream((sentence.text for sentence in given), metric)
    for sentence, result in zip(sentences, results, strict=True):
        if isinstance(result, InputError) or not sentence.text.strip():
            missing = {"score": None, "num_tokens": 0}
            num_bad += report_unanswered(sentence, result, missing, arguments.json)
            continue
        totals.append(result.total)
        num_tokens += result.num_tokens
        tokens = show_tokens(score.tokenizer, result.token_ids) if arguments.tokens else []
        if arguments.json:
            say_json(_describe(result, tokens, arguments.tokens))
        else:
            _show(result, tokens)
    perplexity = score.compute_perplexity(math.fsum(totals), num_tokens)
    if arguments.json:
        counts = {"num_texts": len(totals), "num_tokens": num_tokens}
        found = perplexity if math.isfinite(perplexity) else None
        say_json({"metric": metric, **counts, "pseudo_perplexity": found})
    elif num_tokens:
        say(
            f"pseudo-perplexity {perplexity:,.2f} · {count_noun(len(totals), 'text')} · "
            f"{count_noun(num_tokens, 'token')} · {metric}"
        )
    return 2 if num_bad else 0


def _describe(
    result: "PseudoLikelihood", tokens: list[str], with_tokens: bool
) -> dict[str, object]:
    found: dict[str, object] = {
        "text": result.text,
        "score": result.total,
        "num_tokens": result.num_tokens,
    }
    if with_tokens:
        pairs = zip(tokens, result.scores, strict=True)
        found["tokens"] = [{"token": token, "score": score} for token, score in pairs]
    return found


def _show(result: "PseudoLikelihood", tokens: list[str]) -> None:
    console = make_console()
    size = count_noun(result.num_tokens, "token")
    console.print(f"[bold]{result.total:10.3f}[/]  {escape(result.text)}  [dim]{size}")
    for token, score in zip(tokens, result.scores, strict=False):
        console.print(f"{score:14.3f}  {escape(token)}")
