"""``maskwright fill`` and ``score``: masked words, and how likely a model finds texts."""

import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee
from typing import TYPE_CHECKING

from rich.markup import escape

import maskwright
from maskwright.cli.flags import Parser
from maskwright.cli.inputs import add_arguments, read_filled_sentences, report_unanswered
from maskwright.console import make_console, say, say_json, tell
from maskwright.corpus.text_inputs import PlacedText
from maskwright.errors import InputError
from maskwright.formatting import count_noun, show_score, show_share
from maskwright.runs.evaluation_file import to_plain
from maskwright.runs.find_model import find_model_folder
from maskwright.tokenizer.lost import count_lost
from maskwright.tokenizer.token_text import TokenText, show_tokens

if TYPE_CHECKING:
    from maskwright.evaluation.pseudo_likelihood import PseudoLikelihood
    from maskwright.inference.fill_mask import FillMask, FillResult
    from maskwright.tokenizer.tokenizer import Tokenizer

_FILL_HELP = """\
A target is scored as the token that its place needs: where there is a blank before the
mask, or nothing, the token with the blank (▁good), if there is one; inside a word the token without
it. The token that is printed is the one that was scored.

A blank line, or one that cannot be filled, has an empty line, or with --json a row without masks.
A line on standard error names texts of which the model knows less than half.

examples:
  maskwright fill runs/NAME "The larvae are black and [MASK] on snails."
  maskwright fill runs/NAME "Paris is the [MASK] of [MASK]." --top-k 3
  maskwright fill runs/NAME "It was a [MASK] day." --targets good bad
  maskwright fill runs/NAME --file sentences.txt --json
  maskwright fill runs/NAME "Mask any word of this sentence." --random
"""
_TOP_K = 5
_MOSTLY_UNKNOWN = 0.5  # of the characters of a text


def fill_parser() -> Parser:
    parser = Parser("fill", "Predict masked words.", _FILL_HELP)
    add_arguments(parser, "sentences with [MASK], or what the model calls it, such as <mask>")
    add = parser.add_argument
    add("--top-k", type=int, help=f"predictions a mask [{_TOP_K}]")
    add("--targets", nargs="+", metavar="WORD", help="only these words, separated by spaces")
    add("--json", action="store_true", help="one JSON object a sentence")
    add("--random", action="store_true", help="mask a random word of each sentence and compare")
    add("--seed", type=int, help="of --random [0]")
    return parser


def fill(argv: Sequence[str]) -> int:
    arguments = fill_parser().parse(argv)
    if arguments.top_k is not None and arguments.top_k < 1:
        raise InputError(f"--top-k = {arguments.top_k} must be at least 1")
    if arguments.random and (arguments.json or arguments.top_k or arguments.targets):
        raise InputError("--random shows one word; it takes no --json, --top-k or --targets")
    if arguments.seed is not None and not arguments.random:
        raise InputError("--seed has no effect without --random. Remove it.")
    sentences, given = tee(read_filled_sentences(arguments, "there is no sentence to fill"))
    fill = maskwright.FillMask(find_model_folder(arguments.folder), arguments.device)
    num_bad = 0
    for sentence, answer in zip(sentences, _answer_fill(fill, given, arguments), strict=True):
        if isinstance(answer, InputError):  # the other sentences have nothing to do with it
            missing = {"masks": [], "unknown_share": None}
            num_bad += report_unanswered(sentence, answer, missing, arguments.json)
            continue
        _warn_of_unknown(sentence, fill.tokenizer)
        if isinstance(answer, list):
            say("\n".join(answer))
        elif arguments.json:
            say_json({**sentence.fields, **answer.to_json(), "error": None})
        else:
            _show_fill(answer, TokenText(fill.tokenizer))
    return 2 if num_bad else 0


def _warn_of_unknown(sentence: PlacedText, tokenizer: "Tokenizer") -> None:
    """Say if the model sees most of a text as [UNK], and whether another case would help."""

    def measure(change: Callable[[str], str] = str) -> float:
        parts = map(change, sentence.text.split(tokenizer.mask_token))
        return tokenizer.find_unknown_share(
            tokenizer.encode_prompt(tokenizer.mask_token.join(parts))
        )

    if (share := measure()) > _MOSTLY_UNKNOWN:
        cases = {"upper": str.upper, "lower": str.lower}
        known = [name for name, change in cases.items() if measure(change) <= _MOSTLY_UNKNOWN]
        remedy = f" It knows the text in {known[0]} case: write it so." if known else ""
        lost = count_lost(tokenizer, sentence.text.split(tokenizer.mask_token))
        tell(
            f"{sentence.place}{show_share(share)} of the characters are unknown to the model "
            f"({tokenizer.unk_token}), {lost.name_causes()}, so its answer says little.{remedy}"
        )


def _answer_fill(
    fill: "FillMask", sentences: Iterable[PlacedText], arguments: Namespace
) -> "Iterator[FillResult | InputError | list[str]]":
    texts = (sentence.text for sentence in sentences)
    if not arguments.random:
        yield from fill.stream(texts, arguments.top_k or _TOP_K, arguments.targets)
    for text in texts:
        try:
            yield fill.describe_random(text, arguments.seed or 0)
        except InputError as error:
            yield error


def _show_fill(result: "FillResult", pieces: TokenText) -> None:
    console = make_console()
    console.print(f"[bold]{escape(result.text)}")
    for number, predictions in enumerate(result.masks, start=1):
        if len(result.masks) > 1:
            console.print(f"  mask {number}")
        for prediction in predictions:
            bar = "█" * round(30 * prediction.score)
            token = escape(pieces.show(prediction.token_id))
            console.print(f"  {show_share(prediction.score, 1):>6}  {token:<16} [dim]{bar}")


_ALTERNATIVES = 5
_METRICS = ("within_word_l2r", "original")
_SCORE_HELP = """\
A text's score is its pseudo-log-likelihood, in nats: the sum of the log-probabilities
of its tokens, each masked in turn, together with the later tokens of its word (within_word_l2r) or
alone (original). The higher, the likelier; longer texts score lower. Sort texts of several lengths
by the second number, the mean a token. The last line (with --json on standard error, so that all
rows are alike) is the pseudo-perplexity of all texts, exp(-sum of scores / tokens). A blank line,
or one that cannot be scored, has an empty line, or with --json a row without a score; it is no text
of the corpus.

--masks K masks K tokens at equal distances in a pass, which is up to K times as fast and ranks
texts nearly alike. --each prints for each position the log-probability of the token that is there
and of the likeliest others (masked marginals): the effect of a variant is their difference.

examples:
  maskwright score runs/NAME "The cats sleep." "The cats sleeps."
  maskwright score runs/NAME "The larvae are black." --tokens
  maskwright score runs/NAME --file sentences.txt --json --metric original
  maskwright score runs/NAME --file app.log --masks 8
  maskwright score runs/NAME --file proteins.fasta --each --alternatives 20 --json
"""


def score_parser() -> Parser:
    parser = Parser("score", "Score how likely texts are to a model.", _SCORE_HELP)
    add_arguments(parser, "sentences")
    masked = f"what is masked with a token [{_METRICS[0]}; with --masks {_METRICS[1]}]"
    add = parser.add_argument
    add("--metric", choices=_METRICS, help=masked)
    add("--tokens", action="store_true", help="show the score of each token too")
    add("--masks", type=int, default=1, metavar="K", help="tokens masked in a pass: faster [1]")
    add("--each", action="store_true", help="of each token also the likeliest others (variants)")
    add("--alternatives", type=int, metavar="N", help=f"of --each, how many [{_ALTERNATIVES}]")
    add("--json", action="store_true", help="one JSON object a sentence")
    return parser


def score(argv: Sequence[str]) -> int:
    arguments = score_parser().parse(argv)
    if arguments.each:
        return _score_each(arguments)
    if arguments.alternatives is not None:
        raise InputError("--alternatives has no effect without --each. Remove it.")
    metric = arguments.metric or _METRICS[arguments.masks > 1]
    sentences, given = tee(read_filled_sentences(arguments, "there is no sentence to score"))
    score = maskwright.PseudoLikelihoodScorer(find_model_folder(arguments.folder), arguments.device)
    totals: list[float] = []
    num_tokens = num_bad = 0
    results = score.stream((sentence.text for sentence in given), metric, arguments.masks)
    for sentence, result in zip(sentences, results, strict=True):
        if isinstance(result, InputError) or not sentence.text.strip():
            missing: dict[str, object] = {"score": None, "mean": None, "num_tokens": 0}
            missing |= {"tokens": []} if arguments.tokens else {}
            num_bad += report_unanswered(sentence, result, missing, arguments.json)
            continue
        totals.append(result.total)
        num_tokens += result.num_tokens
        _warn_of_unknown(sentence, score.tokenizer)
        tokens = show_tokens(score.tokenizer, result.token_ids) if arguments.tokens else []
        if arguments.json:
            say_json({**sentence.fields, **_describe_score(result, tokens, arguments.tokens)})
        else:
            _show_score(result, tokens, sentence.id or result.text)
    perplexity = score.compute_perplexity(math.fsum(totals), num_tokens)
    if num_tokens:
        (tell if arguments.json else say)(
            f"pseudo-perplexity {perplexity:,.2f} · {count_noun(len(totals), 'text')} · "
            f"{count_noun(num_tokens, 'token')} · {metric}"
        )
    return 2 if num_bad else 0


def _score_each(arguments: Namespace) -> int:
    from maskwright.evaluation.marginals import find_marginals  # late: it needs torch

    if arguments.metric == _METRICS[0] or arguments.tokens:
        raise InputError("--each masks single tokens. Remove --metric and --tokens.")
    count = _ALTERNATIVES if arguments.alternatives is None else arguments.alternatives
    sentences, given = tee(read_filled_sentences(arguments, "there is no sentence to score"))
    score = maskwright.PseudoLikelihoodScorer(find_model_folder(arguments.folder), arguments.device)
    num_bad = 0
    results = find_marginals(score, (one.text for one in given), count, arguments.masks)
    for sentence, result in zip(sentences, results, strict=True):
        if isinstance(result, InputError) or not sentence.text.strip():
            num_bad += report_unanswered(sentence, result, {"positions": []}, arguments.json)
            continue
        _warn_of_unknown(sentence, score.tokenizer)
        if arguments.json:
            positions = [one.to_json() for one in result]
            say_json({**sentence.fields, "positions": positions, "error": None})
            continue
        console = make_console()
        console.print(f"[bold]{escape(sentence.id or sentence.text)}")
        for one in result:
            others = "  ".join(f"{token} {value:.2f}" for token, value in one.alternatives.items())
            line = f"{one.position:>6}  {escape(one.token):<12} {one.score:8.3f}"
            console.print(f"{line}  [dim]{escape(others)}")
    return 2 if num_bad else 0


def _describe_score(
    result: "PseudoLikelihood", tokens: list[str], with_tokens: bool
) -> dict[str, object]:
    found: dict[str, object] = {
        "score": result.total,
        "mean": to_plain(result.mean),
        "num_tokens": result.num_tokens,
    }
    if with_tokens:
        pairs = zip(tokens, result.scores, strict=True)
        found["tokens"] = [{"token": token, "score": score} for token, score in pairs]
    return {**found, "error": None}


def _show_score(result: "PseudoLikelihood", tokens: list[str], name: str) -> None:
    console = make_console()
    size = count_noun(result.num_tokens, "token")
    mean = f"{show_score(result.mean, 3)} a token"
    console.print(f"[bold]{result.total:10.3f}[/]  {mean:>15}  {escape(name)}  [dim]{size}")
    for token, score in zip(tokens, result.scores, strict=False):
        console.print(f"{score:14.3f}  {escape(token)}")
