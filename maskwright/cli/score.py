"""``maskwright score``: how likely a trained model finds texts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from maskwright.cli.flags import Parser
from maskwright.cli.inputs import Sentence, add_arguments, read_sentences
from maskwright.console import Console, say, say_json, tell
from maskwright.errors import InputError
from maskwright.formatting import count_noun
from maskwright.inference.text_model import split_blocks
from maskwright.runs.find_model import find_model_folder

if TYPE_CHECKING:
    from maskwright.evaluation.pseudo_likelihood import PseudoLikelihood
    from maskwright.tokenizer.tokenizer import Tokenizer

_METRICS = ("within_word_l2r", "original")

_EPILOG = """A text's score is its pseudo-log-likelihood, in nats: the sum of the log-probabilities
of its tokens, each hidden in turn, together with the later tokens of its word (within_word_l2r) or
alone (original). The higher, the likelier; longer texts score lower. At the end stands the
pseudo-perplexity of all texts, exp(-sum of scores / tokens). Blank lines are passed over.

examples:
  maskwright score runs/NAME "The cats sleep." "The cats sleeps."
  maskwright score runs/NAME "The larvae are black." --tokens
  maskwright score runs/NAME --file sentences.txt --json --metric original
"""


def build_parser() -> Parser:
    """The command line of ``maskwright score``."""
    parser = Parser("score", "Tell how likely texts are to a model.", _EPILOG)
    add_arguments(parser, "sentences")
    parser.add_argument(
        "--metric",
        choices=_METRICS,
        default=_METRICS[0],
        help=f"what is hidden with a token [{_METRICS[0]}]",
    )
    parser.add_argument("--tokens", action="store_true", help="show the score of each token too")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a sentence, and one of the corpus"
    )
    return parser


@dataclass
class _Corpus:
    """Sums over all texts so far."""

    num_texts: int = 0
    num_tokens: int = 0
    totals: list[float] = field(default_factory=list)

    def add(self, result: "PseudoLikelihood") -> None:
        self.num_texts += 1
        self.num_tokens += result.num_tokens
        self.totals.append(result.total)


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    sentences = (s for s in read_sentences(arguments) if s.text.strip())
    blocks = split_blocks(sentences, Sentence.measure)
    first = next(blocks, None)
    if first is None:
        raise InputError("there is no sentence to score")
    from maskwright.evaluation.pseudo_likelihood import PseudoLikelihoodScorer

    score = PseudoLikelihoodScorer(find_model_folder(arguments.folder), arguments.device)
    corpus, num_bad = _Corpus(), 0
    for block in chain([first], blocks):
        texts = [sentence.text for sentence in block]
        for sentence, result in zip(block, score.attempt(texts, arguments.metric), strict=True):
            if isinstance(result, InputError):  # the other sentences have nothing to do with it
                num_bad += 1
                tell(f"InputError: {sentence.place}{result}")
                continue
            corpus.add(result)
            tokens = score.tokenizer if arguments.tokens else None
            if arguments.json:
                say_json(_describe(result, tokens))
            else:
                _show(result, tokens)
    _show_corpus(corpus, arguments.metric, arguments.json)
    return 2 if num_bad else 0


def _describe(result: "PseudoLikelihood", tokenizer: "Tokenizer | None") -> dict[str, Any]:
    found: dict[str, Any] = {
        "text": result.text,
        "score": result.total,
        "num_tokens": result.num_tokens,
    }
    if tokenizer is not None:
        pairs = zip(tokenizer.tokens(result.token_ids), result.scores, strict=True)
        found["tokens"] = [{"token": token, "score": score} for token, score in pairs]
    return found


def _show(result: "PseudoLikelihood", tokenizer: "Tokenizer | None") -> None:
    console = Console(highlight=False, soft_wrap=True)
    size = count_noun(result.num_tokens, "token")
    console.print(f"[bold]{result.total:10.3f}[/]  {escape(result.text)}  [dim]{size}")
    if tokenizer is not None:
        pairs = zip(tokenizer.tokens(result.token_ids), result.scores, strict=True)
        for token, score in pairs:
            console.print(f"{score:14.3f}  {escape(token)}")


def _show_corpus(corpus: _Corpus, metric: str, as_json: bool) -> None:
    from maskwright.evaluation.pseudo_likelihood import compute_pseudo_perplexity

    perplexity = math.inf
    if corpus.num_tokens:
        perplexity = compute_pseudo_perplexity(math.fsum(corpus.totals), corpus.num_tokens)
    if as_json:
        counts = {"num_texts": corpus.num_texts, "num_tokens": corpus.num_tokens}
        found = perplexity if math.isfinite(perplexity) else None
        say_json({"metric": metric, **counts, "pseudo_perplexity": found})
    elif corpus.num_tokens:
        say(
            f"pseudo-perplexity {perplexity:,.2f} · {count_noun(corpus.num_texts, 'text')} · "
            f"{count_noun(corpus.num_tokens, 'token')} · {metric}"
        )
