"""How long BLiMP takes: all minimal pairs, and a part of them beside transformers.

python -m benchmarks.minimal_pairs [--model small runs/NAME/model …] [--pairs-each 1000]

``small`` is 6 layers of 256 with 8,192 words and random weights, which make no difference to the
time. The peer is what one writes with transformers: the masked copies of a sentence as rows of a
batch, in batches of 64, and log_softmax of the logits; on the first pairs of each paradigm, in
turn with ours, after comparing the scores.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import find_corpus, write_result
from benchmarks.inference import make_model, race, read_documents
from maskwright.evaluation.minimal_pairs import MinimalPair, read_minimal_pairs
from maskwright.evaluation.pseudo_likelihood import Metric, PseudoLikelihoodScorer
from maskwright.evaluation.suite_blimp import (
    choose_pairs,
    evaluate_minimal_pairs,
)

_ROWS = 64
_SMALL = "small"
_MOST_DIFFERENCE = 1e-3  # between two sums of some 15 tokens
_METRIC: Metric = "original"  # what the peer computes; as many masked copies as the other one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=[_SMALL], help="small, or model folders")
    parser.add_argument("--pairs", nargs="+", help="files or folders [blimp of MASKWRIGHT_DATA]")
    parser.add_argument("--pairs-each", type=int, default=1000, help="of each paradigm")
    parser.add_argument("--peer-pairs-each", type=int, default=2, help="beside transformers")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    pairs = read_minimal_pairs(arguments.pairs or [find_corpus("blimp")])
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.model:
            folder = Path(name)
            if name == _SMALL:
                folder = Path(scratch) / name
                make_model(folder, name, read_documents(None))
            chosen = choose_pairs(pairs, arguments.pairs_each)
            few = choose_pairs(pairs, arguments.peer_pairs_each)
            measured[_name_model(folder)] = {
                **measure(folder, chosen),
                "beside_transformers": compare(folder, few, arguments.rounds),
            }
    write_result("minimal-pairs", {"threads": torch.get_num_threads(), "models": measured})


def _name_model(folder: Path) -> str:
    return folder.resolve().parent.name if folder.name == "model" else folder.name


def measure(folder: Path, pairs: Sequence[MinimalPair]) -> dict[str, Any]:
    """Seconds for all pairs, tokenizing included, and what they say."""
    scorer = PseudoLikelihoodScorer(folder, "cpu")
    started, processor = time.perf_counter(), time.process_time()
    result = evaluate_minimal_pairs(scorer.model, scorer.tokenizer, pairs)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    encoded = scorer.tokenizer.encode_batch([text for p in pairs for text in (p.good, p.bad)])
    lengths = [len(text.ids) for text in encoded]
    around = len(scorer.wrap([]))
    found: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in scorer.model.parameters()),
        "pairs": len(pairs),
        "tokens": sum(lengths),
        "tokens_of_masked_copies": sum(length * (length + around) for length in lengths),
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "pairs_per_second": round(len(pairs) / seconds, 1),
        "seconds_for_34000_pairs": round(34_000 / len(pairs) * seconds),
        "accuracy": {
            score.name: [round(f, 4) for f in (score.value, score.low, score.high) if f is not None]
            for score in result.scores
        },
    }
    first, *_ = result.scores
    print(folder.name, found["seconds"], "seconds", first.name, first.value, flush=True)
    return found


def compare(folder: Path, pairs: Sequence[MinimalPair], rounds: int) -> dict[str, Any]:
    """How many times as long transformers takes for the same scores."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    theirs: Any = AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    scorer = PseudoLikelihoodScorer(folder, "cpu")
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    ours = torch.tensor([result.total for result in scorer(texts, _METRIC)])
    difference = (ours - score_with_transformers(theirs, tokenizer, texts)).abs().max().item()
    if difference > _MOST_DIFFERENCE:
        raise SystemExit(f"ours and theirs do not score the same: they differ by {difference}")
    found = race(
        rounds,
        lambda: scorer(texts, _METRIC),
        lambda: score_with_transformers(theirs, tokenizer, texts),
        len(texts),
    )
    print(found, flush=True)
    return {"pairs": len(pairs), "largest_difference_of_scores": difference, **found}


@torch.inference_mode()
def score_with_transformers(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Pseudo-log-likelihoods [N] as transformers lets one write them, in batches of copies."""
    copies: list[tuple[int, list[int], int, int]] = []  # text, ids, place, label
    for number, text in enumerate(texts):
        encoded = tokenizer(text, return_special_tokens_mask=True)
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
        for place, label in enumerate(ids):
            if not special[place]:
                masked = [*ids[:place], tokenizer.mask_token_id, *ids[place + 1 :]]
                copies.append((number, masked, place, label))
    scores = torch.zeros(len(texts))
    for start in range(0, len(copies), _ROWS):
        numbers, rows, places, labels = map(list, zip(*copies[start : start + _ROWS], strict=True))
        batch = tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        logits = model(**batch).logits[torch.arange(len(rows)), places]
        found = logits.log_softmax(-1)[torch.arange(len(rows)), labels]
        scores.index_add_(0, torch.tensor(numbers), found)
    return scores


if __name__ == "__main__":
    main()
