"""Values in the tables of `specification.yaml` that are computed from result files.

Each function takes the results that a block names and that exist.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any

from benchmarks.common import Result
from maskwright.config import from_mapping
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model_folder.families import native_family
from maskwright.objectives.scores import ACCURACY

Record = Mapping[str, Any]
TableCells = tuple[Sequence[str], Sequence[Sequence[str]]]


# Measures of speed.


def _compare(
    result: Result, what: str, peer: str, aim: float, ratio: Record, at_most: bool = False
) -> Record:
    """Return a measure by a ratio with the least and the most of its rounds; the median decides."""
    is_met = ratio["median"] <= aim if at_most else ratio["median"] >= aim
    return _measure(result, what, peer, f"{'at most ' * at_most}{aim:g}x", is_met, _show(ratio))


def _show(ratio: Record) -> str:
    return f"{ratio['median']:.2f}x ({ratio['least']:.2f} to {ratio['most']:.2f})"


def _measure(result: Result, what: str, peer: str, aim: str, is_met: bool, found: str) -> Record:
    verdict = "met" if is_met else "missed"
    return {**result, "what": what, "peer": peer, "aim": aim, "verdict": verdict, "found": found}


def _measure_training(result: Result) -> Iterator[Record]:
    aims = {"packed": {"bert": 2.2, "modernbert": 1.8}}
    aims["sentences"] = dict.fromkeys(aims["packed"], 6.0)
    ways = {"ours": "", "ours, compiled,": ", compiled"}
    padded = {"transformers": "", "transformers, padded to whole rows,": ", padded to 128"}
    for corpus, measured in result["corpora"].items():
        rows, ratios = "full rows" if corpus == "packed" else "sentences", measured["ratios"]
        what, precision = f"tokens/s, {rows}, ", f", {result['precision']}"
        for (peer, aim), (kind, padding), (ours, way) in product(
            aims[corpus].items(), padded.items(), ways.items()
        ):
            if ratio := ratios.get(f"{ours} {peer} over {kind} {peer}"):
                same = f"{what}same model{way}{precision}"
                yield _compare(result, same, f"Trainer, {peer}{padding}", aim, ratio)
        for model, (ours, way) in product(("tiny", "bert", "modernbert"), ways.items()):
            if ratio := ratios.get(f"{ours} {model} over products of {model}"):
                own = f"{what}`{model}`{way}{precision}"
                yield _compare(result, own, "its matrix products alone", 0.85, ratio)


def _measure_quality(result: Result) -> Iterator[Record]:
    for peer, aim in (("bert", 30), ("modernbert", 6)):
        if answer := result["answers"].get(peer):
            seconds, times = answer["our_seconds"], answer.get("times_faster") or 0.0
            found = f"{times:.1f}x ({seconds:.0f} s)" if seconds else "not reached"
            what = f"time to loss {answer['loss']:.2f} on English Wikipedia"
            name = (
                f"Trainer, {peer}, AdamW {answer['best_rate']:g}, after {result['minutes']:g} min"
            )
            yield _measure(result, what, name, f"{aim}x", times >= aim, found)


def _measure_collation(result: Result) -> Iterator[Record]:
    for size, measured in result["batches"].items():
        for kind in ("transformers pt", "transformers np"):  # as in `Trainer`
            what = f"tokens/s of packing, masking, collation, {size}"
            yield _compare(result, what, f"collator of {kind}", 10, measured["ratios"][kind])


def _measure_growth(result: Result) -> Iterator[Record]:
    slopes = {name.replace("_", " "): grown["slope"] for name, grown in result["grown"].items()}
    found = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
    is_linear = max(slopes.values()) <= 1.1
    yield _measure(result, "growth of time with work", "linear", "slope 1", is_linear, found)


def _measure_gpu(result: Result) -> Iterator[Record]:
    for model in result["models"]:
        what = f"`{model['recipe']}`, rows of {model['row_length']}, on {result['device']}"
        if ratio := model.get("ratio"):
            yield _compare(result, what, "Trainer, ModernBERT", 2, ratio)
        shares = model["model_flops_utilisation"]
        aim = {"base": 0.5, "babylm-10m": 0.5, "small": 0.25}.get(model["recipe"])
        if shares and aim:
            peer = f" (peer: {shares['transformers']:.1%})" if "transformers" in shares else ""
            peak, is_met = "the card's bf16 peak", shares["ours"] >= aim
            found = f"{shares['ours']:.1%}{peer}"
            yield _measure(result, f"MFU of {what}", peak, f"{aim:.0%}", is_met, found)


def list_gpu_variants(result: Result) -> Iterator[Record]:
    """Yield the variants that were measured, each with its name."""
    for name, found in result["variants"].items():
        if "tokens_per_second" in found:
            yield {"name": name, **found}


def _measure_shares(collation: Result, training: Result) -> Iterator[Record]:
    """Yield the seconds of a step's collation over those of the step, both of 16 rows."""
    batch = collation["batches"]["16 rows"]["tokens_per_second"]["ours"]
    for model in ("bert", "modernbert"):
        step = training["corpora"]["packed"]["tokens_per_second"][f"ours {model}"]
        share = median(step) / median(batch)
        what, peer = "time of packing, masking and collation, 16 rows", f"a step of `{model}`"
        yield _measure(collation, what, peer, "below 1 %", share < 0.01, f"{share:.2%}")


# What is measured, beside what, the aim, the field of the ratio, and whether less is better.
_RATIOS = {
    "preparation-speed": (
        ("MB/s from text to shards", "run_mlm.py", 3, "ratio", False),
        ("memory of that", "run_mlm.py", 0.33, "ratio_of_memory", True),
    ),
    "tokenizer-speed": (
        ("MB/s of tokenizer training, {megabytes:.0f} MB", "`tokenizers` alone", 0.9, "ratio", 0),
    ),
    "start-speed": (("seconds to the first step", "Trainer", 0.5, "ours_over_theirs", True),),
}


def _measure_ratios(result: Result) -> Iterator[Record]:
    for what, peer, aim, ratio, at_most in _RATIOS[result["name"]]:
        yield _compare(result, what.format_map(result), peer, aim, result[ratio], bool(at_most))


_MEASURES = {
    **dict.fromkeys(_RATIOS, _measure_ratios),
    "training-speed-fp32": _measure_training,
    "training-speed-bf16": _measure_training,
    "time-to-quality": _measure_quality,
    "collation": _measure_collation,
    "growth": _measure_growth,
    **dict.fromkeys(("gpu-speed", "gpu-first-contact"), _measure_gpu),
}


def list_measures(*results: Result) -> Iterator[Record]:
    by_name = {result["name"]: result for result in results}
    for name, result in by_name.items():
        yield from _MEASURES[name](result) if name in _MEASURES else ()
    if {"collation", "training-speed-fp32"} <= by_name.keys():
        yield from _measure_shares(by_name["collation"], by_name["training-speed-fp32"])


def count_measures(*results: Result) -> Iterator[Record]:
    found = list(list_measures(*results))
    num_met = sum(measure["verdict"] == "met" for measure in found)
    yield {"num_aims": len(found), "num_met": num_met}


# Serving and fine-tuning.


def list_ways(load: Result) -> Iterator[Record]:
    for name, found in load["ways"].items():
        refused = found["statuses"].get("503", 0)
        other = sum(found["statuses"].values()) - refused - found["statuses"].get("200", 0)
        yield {**found, "name": name, "refused": refused, "other": other}


def describe_fuzzing(fuzz: Result) -> Iterator[Record]:
    yield {"what": "nothing" if fuzz["nothing_found"] else "failures"}


# Our model and what stands beside it, and where the scores are in the result of a task.
BESIDE = {
    "majority": ("baselines", "majority"),
    "bag of words": ("baselines", "bag of words"),
    "random encoder": ("random_encoder",),
    "our model": ("scores",),
}


def list_tasks(result: Result) -> Iterator[Record]:
    """Yield each task with mean and deviation of its deciding metric."""
    for name, task in result["tasks"].items():
        pairs: dict[str, tuple[float, float | None]] = {}
        for kind, path in BESIDE.items():
            scores: Any = task["test"]
            for key in (*path, task["deciding_metric"]):
                scores = (scores or {}).get(key)
            is_mean = isinstance(scores, dict)
            pairs[kind] = (scores["mean"], scores["deviation"]) if is_mean else (scores, None)
        yield {**task, "name": name, **pairs}


def combine(*results: Result) -> Iterator[Record]:
    """Yield one record of several results, by their names."""
    yield {result["name"]: result for result in results}


def describe_tasks(result: Result) -> Iterator[Record]:
    threads = max(task["threads"] for task in result["tasks"].values())
    yield {"most_threads": f"{threads} thread{'s' * (threads != 1)}"}


def describe_ratios(result: Result) -> Iterator[Record]:
    random, grouped = map(_show, result["ratios"].values())
    yield {"random": random, "grouped": grouped}


# Reliability.


def describe_losses(result: Result) -> Iterator[Record]:
    """Yield the greatest difference after each number of steps, by precision."""
    shown: dict[str, Any] = {}
    for precision in ("fp32", "bf16"):
        ways = [w["greatest_difference"] for w in result["ways"] if w["precision"] == precision]
        worst = {steps: max(way[steps] for way in ways) for steps in ways[0]}
        shown[precision] = ", ".join(f"{steps} steps {value:.1e}" for steps, value in worst.items())
        shown["ways"] = len(ways)
    yield shown


def describe_kills(result: Result) -> Iterator[Record]:
    yield {key: sum(run[field] for run in result["runs"])
           for key, field in (("kills", "kills"), ("same", "same_bits"))}  # fmt: skip


# The classic systems, reproduced.


def list_systems(*results: Result) -> Iterator[Record]:
    for result in results:
        final, environment = result["final"], result["environment"]
        cores = result.get("threads", environment["cpu_count"])
        maker = environment["cpu"].split()[0].replace("(R)", "")
        has_mask = ACCURACY.name in final
        accuracy = f"{final[ACCURACY.name if has_mask else 'masked_accuracy']:.3f} "
        accuracy += f"{'' if has_mask else 'on all masked positions '}(most frequent: "
        accuracy += f"{final.get('unigram_accuracy', 0.0):.3f})"
        if "pair_accuracy" in final:
            accuracy += f"; next sentences {final['pair_accuracy']:.3f} (always the same answer: "
            accuracy += f"{final['pair_baseline']:.3f})"
        yield {
            **result,
            "short_title": result["title"].replace(f" (`{result['recipe']}`)", ""),
            "time": f"{result['minutes']:g} min, {cores} core{'s' * (cores != 1)} ({maker})",
            "accuracy": accuracy,
        }


def sort_systems(*results: Result) -> Iterator[Record]:
    """Yield the systems by time and loss."""
    yield from list_systems(*sorted(results, key=lambda r: (r["minutes"], r["final"]["loss"])))


def list_minimal_pairs(*results: Result, titles: Mapping[str, str]) -> Iterator[Record]:
    """Yield the models that have a title, with accuracy and interval over all paradigms."""
    models = {
        name: {"accuracy": found["accuracy"]["blimp/mean_over_paradigms"], **result}
        for result in results
        for name, found in result["models"].items()
    }
    yield from ({**models[name], "title": titles[name]} for name in titles if name in models)


# Interchange with transformers.


def count_models(result: Result) -> Iterator[Record]:
    families = result["families"]
    yield {
        "models": sum(len(family["configurations"]) for family in families),
        "largest": max(max(family["differences"].values()) for family in families),
    }


def explain_homeless(architectures: Mapping[str, Record]) -> Iterator[Record]:
    """Yield architectures that no class of transformers computes, as their model cards say it."""
    for architecture, fields in architectures.items():
        config = from_mapping(ModelConfig, dict(fields))
        _, reason = native_family(resolve_config(config, vocab_size=64, max_seq_length=64))
        yield {"architecture": architecture, "reason": reason}
