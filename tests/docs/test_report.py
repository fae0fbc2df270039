"""The pages are what the result files say; what has no file is left out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import list_programs
from benchmarks.common import ROOT
from benchmarks.reproduce import PEER, SYSTEMS
from docs.tools.report import BEGIN, END, read_pages
from maskwright.cli.flags import config_values
from maskwright.cli.pretrain import pretrain_parser
from maskwright.pretraining.build import build_schedule
from maskwright.runs.config import resolve

ENVIRONMENT = {"cpu": "Some CPU (Family 1)", "cpu_count": 2, "packages": {"torch": "2.13"}}
RATIO = {"median": 2.5, "least": 2.25, "most": 3.0}
GROWN = {"sizes": [1, 2], "work": [1e9, 2e9], "seconds": [0.1, 0.2], "slope": 1.0}
DIMENSIONS = ("hidden_size", "num_hidden_layers", "max_seq_length", "text_megabytes")
RESULTS: dict[str, dict[str, Any]] = {
    "training-speed-fp32": {
        "precision": "fp32",
        "corpora": {
            "packed": {
                "tokens_per_second": {"ours bert": [4e3], "ours modernbert": [8e3]},
                "ratios": {
                    "ours bert over transformers bert": RATIO,
                    "ours modernbert over transformers modernbert": RATIO,
                    "ours, compiled, bert over transformers bert": RATIO,
                    "ours tiny over products of tiny": {**RATIO, "median": 0.75},
                }
            }
        },
    },
    "time-to-quality": {
        "minutes": 30,
        "answers": {
            "bert": {"loss": 6.4, "best_rate": 0.001, "our_seconds": 60.0, "times_faster": 30.0},
            "modernbert": {"loss": 1.0, "best_rate": 0.002, "our_seconds": None},
        },
        "runs": {
            "bert-0.001": {"curve": [{"seconds": 60, "loss": 7.0}, {"seconds": 1800, "loss": 6.4}]},
            "modernbert-0.002": {"curve": [{"seconds": 1800, "loss": 1.0}]},
            "ours-60": {"seconds": 60.0, "loss": 6.3},
            "ours-30": {"seconds": 30.0, "loss": 6.6},
        },
    },
    "collation": {
        "batches": {
            "16 rows": {
                "ratios": {"transformers pt": RATIO, "transformers np": RATIO},
                "tokens_per_second": {"ours": [2e6]},
            }
        }
    },
    "preparation-speed": {"ratio": RATIO, "ratio_of_memory": RATIO},
    "tokenizer-speed": {"megabytes": 150.2, "ratio": RATIO},
    "start-speed": {"ours_over_theirs": RATIO},
    "bench": {"minutes": 57.4},
    "step-profile": {
        "milliseconds": {
            "bert": {"matrix products": 8.0, "copies": 2.0},
            "tiny": {"matrix products": 5.0, "AdamW": 5.0},
        }
    },
    "growth": {"grown": dict.fromkeys(DIMENSIONS, GROWN)},
    "gpu-speed": {
        "device": "H100",
        "models": [
            {
                "recipe": "base", "row_length": 512, "ratio": RATIO,
                "model_flops_utilisation": {"ours": 0.5, "transformers": 0.2},
            }
        ],
    },
}  # fmt: skip


LATENCIES = {"p50": 41.2, "p90": 60.0, "p99": 80.6}
RESULTS |= {
    "finetuning": {
        "about": "An encoder of some sort",
        "tasks": {
            "sst2": {
                "train_examples": 67349,
                "deciding_metric": "accuracy",
                "test": {
                    "baselines": {
                        "majority": {"accuracy": 0.509}, "bag of words": {"accuracy": 0.8},
                    },
                    "random_encoder": {"accuracy": {"mean": 0.79, "deviation": 0.01}},
                    "scores": {"accuracy": {"mean": 0.83, "deviation": None}},
                },
                "threads": 1,
                "runs": [{}, {}, {}],
                "minutes_a_seed": 3.26,
            }
        },
    },
    "finetuning-speed": {
        "model": "a BERT",
        "ratios": {
            "Trainer": {"median": 2.345, "least": 2.2, "most": 2.5},
            "Trainer, grouped by length": {"median": 1.6, "least": 1.5, "most": 1.7},
        },
    },
    "serving-load": {
        "connections": 64,
        "seconds": 60.0,
        "batching_over_none": {"queries": 4.56, "sentences": 2.5},
        "ways": {
            "queries, batching": {
                "requests_per_second": 1234.5, "milliseconds": LATENCIES,
                "statuses": {"200": 74000, "503": 7, "500": 2},
            }
        },
    },
    "serving-fuzz": {"examples": 200, "nothing_found": True},
    "dump-guide": {
        "pages": 658, "dump_megabytes_packed": 2.19, "prepare_seconds": 31.4, "epochs": 8.0,
        "dropped": {"near duplicate": 3, "redirect": 1}, "tokens_to_train_on": 2_345_678,
        "held_out": {
            "masked_accuracy": {
                "value": 0.2345, "low": 0.222, "high": 0.251, "baseline": 0.0456,
                "num_samples": 4321,
            },
            "loss": {
                "value": 5.126, "low": 5.08, "high": 5.21, "baseline": 7.011, "num_samples": 4321,
            },
        },
    },
    "near-duplicates": {
        "thresholds": [
            {
                "documents": 6000, "threshold": 0.8, "bands": 21, "rows_in_a_band": 6,
                "planted_above_threshold": 547, "recall": 0.963, "precision": 0.98,
                "other_finds": 0,
            }
        ]
    },
}  # fmt: skip


def write_result(folder: Path, name: str, result: dict[str, Any]) -> None:
    content = {"name": name, "environment": ENVIRONMENT, **result}
    (folder / f"2026-01-01_cpu_{name}.json").write_text(json.dumps(content))


def write_section(folder: Path, page: str) -> str:
    return read_pages(folder, folder)[page].write_section()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """All results of `RESULTS`."""
    for name, result in RESULTS.items():
        write_result(tmp_path, name, result)
    return tmp_path


@pytest.mark.parametrize("path", read_pages())
def test_a_page_is_what_the_committed_files_say(path: str):
    page = read_pages()[path]
    text = page.file.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert page.read_section() == page.write_section()


@pytest.mark.parametrize(
    "path", sorted(set(read_pages()) - {"docs/interchange.md", "docs/reliability.md"})
)
def test_without_results_a_page_says_so(path: str, tmp_path: Path):
    assert write_section(tmp_path, path) == "Nothing has been measured yet.\n"


def test_every_command_and_test_of_a_page_exists():
    programs = {package: list_programs(package) for package in ("benchmarks", "docs.tools")}
    for page in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "Makefile"):
        text = page.read_text(encoding="utf-8")
        for package, name in re.findall(r"python -m (benchmarks|docs\.tools)[ .]([\w-]+)", text):
            assert name in programs[package], (page, name)
    for name in re.findall(r"`(tests/[^`]*)`", read_pages()["docs/reliability.md"].read_section()):
        assert (ROOT / name).exists(), name


def test_each_measure_of_speed_has_its_rows(results: Path):
    section = write_section(results, "docs/speed.md")
    num_rows = 4 + 2 + 2 + 2 + 1 + 1 + 1 + 2 + 2
    assert section.startswith(f"Of {num_rows} aims ")
    assert section.count("| [2 cores, Some CPU](../benchmarks/results/2026-01-01") == num_rows - 2
    assert section.count("| [H100](../benchmarks/results/2026-01-01") == 2
    assert "| 2.50x (2.25 to 3.00) | [2 cores, Some CPU]" in section
    assert "| its matrix products alone | 0.85x: missed | 0.75x" in section
    assert "| time to loss 6.40 on English Wikipedia" in section
    assert "| 30.0x (60 s) |" in section
    assert "| 6x: missed | not reached |" in section
    assert "| a step of `bert` | below 1 %: met | 0.20% |" in section
    assert "| 50%: met | 50.0% (peer: 20.0%) |" in section
    assert "| | `bert` | `tiny` |\n|---|--:|--:|\n| matrix products | 80% | 50% |" in section
    assert "| AdamW | 0% | 50% |" in section
    assert "took [57 minutes](../benchmarks/results/2026-01-01_cpu_bench.json)" in section


@pytest.mark.usefixtures("drawn_charts")
def test_pictures_are_drawn_of_what_there_is(results: Path, tmp_path: Path):
    pages = read_pages(results, tmp_path)
    assert pages["docs/speed.md"].draw() == ["quality", "growth"]
    assert "(images/quality.svg)" in pages["docs/speed.md"].write_section()
    assert pages["docs/finetune.md"].draw() == ["finetuning"]
    assert "bag of words" in (tmp_path / "finetuning.svg").read_text(encoding="utf-8")
    assert pages["docs/reproduce.md"].draw() == []
    for name in ("shakespeare-128", "shakespeare-longer", "wiki-bert", "wiki-ours-10"):
        curve = [{"seconds": 60 * minute, "loss": 7 - minute / 10} for minute in (1, 2, 3)]
        write_system(results, name, curve=curve)
    write_ablations(results, worst=9.0)
    assert pages["docs/reproduce.md"].draw() == ["classics", "shakespeare", "ablations"]
    text = (tmp_path / "ablations.svg").read_text(encoding="utf-8")
    assert "whole-words" in text
    assert "+2." in text  # the variant that is far worse is cut off, and says so


def test_a_preparation_on_a_cluster(tmp_path: Path):
    run = {
        "step": "everything", "megabytes": 600.0, "cores": 1, "megabytes_per_second": 1.1,
        "peak_megabytes": 507, "largest_megabytes": 480, "files_a_block": 19.4,
    }  # fmt: skip
    stage = {
        "stage": "near", "tasks": 1344, "seconds": [128.0, 26.0, 19.0], "limit": "cores",
        "files": 2688, "gigabytes_read": 1919.0, "gigabytes_written": 0.1,
    }  # fmt: skip
    total = {"step": "nothing", "nodes": 100, "hours": 0.05, "times_one_node": 52.3}
    write_result(tmp_path, "preparation-scale", {"runs": [run]})
    write_result(tmp_path, "preparation-schedule", {"totals": [total], "everything": [stage]})
    section = write_section(tmp_path, "docs/scale-measured.md")
    assert "| everything | 600 MB | 1 | 1.1 | 507 | 480 | 19.4 |" in section
    assert "| nothing | 100 | 0.05 | 52.3 |" in section
    assert "| `near` | cores | 1,344 | 128 | 26 | 19 | 2,688 | 1,919 | 0 |" in section


def test_fine_tuning(results: Path):
    section = write_section(results, "docs/finetune.md")
    assert "An encoder of some sort; mean and deviation over runs of 1 thread each" in section
    row = "| sst2 | 67,349 | accuracy | 0.8000 | 0.8300 | 3.3 |"
    assert row in section
    assert "a BERT trains 1.60x (1.50 to 1.70) as fast if both put" in section
    assert "2.35x (2.20 to 2.50) as fast as its default" in section


def test_serving(results: Path):
    section = write_section(results, "docs/serve.md")
    assert "batching serves 4.6 times as many queries and 2.5 times as many sentences" in section
    assert "| queries, batching | 1,234 | 41 | 81 | 7 |" in section
    assert "200 examples of each operation found nothing" in section


def test_data(results: Path):
    section = write_section(results, "docs/data.md")
    assert "| 0.8 | 96.3% | 98.0% |" in section
    assert "8 epochs: accuracy on all masked positions 0.234 (0.222 to 0.251)" in section
    assert "of token frequencies alone 0.046" in section


FINAL = {
    "step": 1200, "tokens": 2_500_000, "seconds": 900.0, "loss": 5.4321, "masked_accuracy": 0.234,
    "unigram_accuracy": 0.048,
}  # fmt: skip
TEST = {
    "parameters": 6_861_056, "sentences": 2000, "masked_loss": 5.1, "masked_accuracy": 0.2,
    "masked_predictions": 9000, "single_mask_accuracy": 0.3215, "single_mask_interval": 0.02,
}  # fmt: skip


def write_system(folder: Path, name: str, **changes: Any) -> None:
    system = SYSTEMS[name]
    result = {
        "title": system.title, "corpus": system.corpus, "recipe": system.recipe, "minutes": 15,
        "options": list(system.options), "ended": True, "curve": [], "final": FINAL,
    }  # fmt: skip
    write_result(folder, f"reproduce-{name}", {**result, **changes})


def write_ablations(folder: Path, worst: float) -> None:
    runs = [
        {"variant": variant, "seed": seed, "options": [], **FINAL, "loss": 5 + n / 10 + seed / 5}
        for n, variant in enumerate(["baseline", "spans", "whole-words", "mask-15", "layers-6"])
        for seed in (0, 1)
    ]
    runs[-1]["loss"] = worst
    result = {"minutes": 5, "runs_at_once": 2, "baseline": ["--x=1"], "runs": runs}
    write_result(folder, "ablations-wiki_en", result)


def test_each_system_that_ended_has_a_row(tmp_path: Path):
    for name in ("shakespeare-32", "wiki-bert"):
        write_system(tmp_path, name)
    ours = {"title": "ours", "recipe": "sprint", "minutes": 15, "options": [], "ended": True}
    write_result(tmp_path, "reproduce-sentences-ours", {**ours, "final": FINAL, "test": TEST})
    write_system(tmp_path, "wiki-ours-10", final={**FINAL, "loss": 5.1})
    pairs = {"pair_accuracy": 0.61, "pair_baseline": 0.5}
    write_system(tmp_path, "wiki-bert", final={**FINAL, **pairs, "seen_mask_accuracy": 0.123})
    longer = [*SYSTEMS["wiki-ours-30"].options, "--model.num_hidden_layers", "4"]
    write_system(tmp_path, "wiki-ours-30", minutes=95, options=longer)
    write_system(tmp_path, "wiki-neobert", ended=False)
    section = write_section(tmp_path, "docs/reproduce.md")
    assert "On 2 cores of an Some CPU (Family 1), torch 2.13." in section
    row = "| `shakespeare-32`: rows of 32 | 15 min, 2 cores (Some) | 1,200 | 2.50 M | 5.432"
    assert row in section
    assert "| 15 min, 2 cores (Some) | 2.50 M | 5.100 | 0.200 | 0.3215 ± 0.0200 |" in section
    wiki = section.partition("### English Wikipedia")[2]
    assert wiki.index("`auto`") < wiki.index("`bert`")  # the best comes first
    assert "| 0.123 (most frequent: 0.048); next" in wiki
    assert "| 0.234 on all masked positions (most frequent: 0.048) |" in wiki  # not measured
    assert "; next sentences 0.610 (always the same answer: 0.500) |" in section
    longer = "`auto` `--model.num_hidden_layers 4`"
    assert "--train.valid_seq_length" not in section  # which all have
    assert wiki.index("`bert`") < wiki.index(longer)  # the longer time last
    assert "[file](../benchmarks/results/2026-01-01_cpu_reproduce-wiki-bert.json)" in section
    assert "neobert" not in section
    assert "images/" not in section
    (tmp_path / "classics.svg").touch()
    assert "(images/classics.svg)" in write_section(tmp_path, "docs/reproduce.md")


def test_minimal_pairs_of_our_models_are_shown(tmp_path: Path):
    accuracy = {
        "blimp/mean_over_paradigms": [0.57, 0.565, 0.575],
        "blimp/mean_over_pairs": [0.56, 0.55, 0.57],
        "blimp/field/syntax": [0.6, 0.5, 0.7],
        "blimp/island_effects": [0.5, 0.49, 0.51],
        "blimp/island_effects/adjunct_island": [0.4, 0.3, 0.5],
    }
    ours = {"parameters": 6_917_376, "pairs": 34_000, "accuracy": accuracy}
    models = {"small": {**ours, "parameters": 1}, "wiki-ours-long": ours}
    write_result(tmp_path, "minimal-pairs", {"models": models})
    section = write_section(tmp_path, "docs/reproduce.md")
    assert "### BLiMP (chance: 0.5)" in section
    assert "| | `wiki-ours-long`, 6.92 M, 34,000 pairs |" in section
    assert "| mean over paradigms | 0.570 (0.565 to 0.575) |" in section
    assert "| island effects | 0.500 (0.490 to 0.510) |" in section
    assert "adjunct" not in section
    assert "mean over pairs" not in section
    models = {"sentences-ours-long": {**ours, "parameters": 6_900_000}}
    write_result(tmp_path, "later_minimal-pairs", {"models": models})
    section = write_section(tmp_path, "docs/reproduce.md")
    assert "| | `sentences-ours-long`, 6.90 M, 34,000 pairs | `wiki-ours-long`, 6.92 M" in section


def test_ablations_are_compared_with_the_baseline(tmp_path: Path):
    write_ablations(tmp_path, worst=5.8)
    section = write_section(tmp_path, "docs/reproduce.md")
    assert "| masking | `spans` |  | 2.50 M | 5.200 (5.100, 5.300) | +0.100 |" in section
    assert "|  | `baseline` | `--x=1` | 2.50 M | 5.100 (5.000, 5.200) |  |" in section


@pytest.mark.parametrize("name", sorted(SYSTEMS.keys() - {PEER}))
def test_a_system_is_a_configuration(name: str):
    options = pretrain_parser().parse(["text.txt", *SYSTEMS[name].options])
    build_schedule(resolve(SYSTEMS[name].recipe, overrides=config_values(options)), 8192)
