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
    section = write_section(results, "docs/results.md")
    num_rows = 4 + 2 + 2 + 2 + 1 + 1 + 1 + 2 + 2
    assert f"of {num_rows} aims are met\n" in section
    rows = section.partition("| measure |")[2].partition("\n\n")[0]
    assert rows.count("](../benchmarks/results/2026-01-01_cpu_") == num_rows
    assert "| [2.50x (2.25 to 3.00)](../benchmarks/results/2026-01-01_cpu_" in rows
    assert "| its matrix products alone | 0.85x: missed | [0.75x" in rows
    assert "| time to loss 6.40 on English Wikipedia" in rows
    assert "| [30.0x (60 s)](" in rows
    assert "| 6x: missed | [not reached](" in rows
    assert "| a step of `bert` | below 1 %: met | [0.20%](" in rows
    assert "| 50%: met | [50.0% (peer: 20.0%)](" in rows


@pytest.mark.usefixtures("drawn_charts")
def test_pictures_are_drawn_of_what_there_is(results: Path, tmp_path: Path):
    page = read_pages(results, tmp_path)["docs/results.md"]
    assert page.draw() == ["finetuning", "quality"]
    assert "(images/quality.svg)" in page.write_section()
    assert "bag of words" in (tmp_path / "finetuning.svg").read_text(encoding="utf-8")


def test_fine_tuning(results: Path):
    section = write_section(results, "docs/results.md")
    assert "An encoder of some sort; mean and deviation over runs of 1 thread each" in section
    row = "| sst2 | 67,349 | accuracy | 0.5090 | 0.8000 | 0.8300 | 3.3 |"
    assert row in section
    assert "a BERT trains 1.60x (1.50 to 1.70) as fast when the peer" in section
    assert "2.35x (2.20 to 2.50) as fast as its default" in section


def test_serving(results: Path):
    section = write_section(results, "docs/results.md")
    assert "batching serves 4.6 times as many queries and 2.5 times as many sentences" in section
    assert "| queries, batching | 1,234 | 41 | 60 | 81 | 7 | 2 |" in section
    assert "200 examples of each operation found nothing" in section


def test_data(results: Path):
    section = write_section(results, "docs/results.md")
    assert "| 0.8 | 21 x 6 | 547 | 96.3% | 98.0% | 0 |" in section
    dropped = "(dropped or repaired: 3 near duplicate, 1 redirect)"
    assert f"in 31 seconds {dropped}, 8 epochs" in section
    assert "On 4,321 masked tokens of other articles, accuracy 0.234 (0.222 to 0.251)" in section
    assert "loss 5.13 (5.08 to 5.21); token frequencies alone: 0.046 and 7.01." in section


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


def test_each_system_that_ended_has_a_row(tmp_path: Path):
    ours = {"title": "ours", "recipe": "sprint", "minutes": 15, "options": [], "ended": True}
    write_result(tmp_path, "reproduce-sentences-ours", {**ours, "final": FINAL, "test": TEST})
    pairs = {"pair_accuracy": 0.61, "pair_baseline": 0.5}
    write_system(tmp_path, "wiki-bert", final={**FINAL, **pairs, "seen_mask_accuracy": 0.123})
    write_system(tmp_path, "wiki-ours-10", final={**FINAL, "loss": 5.1})
    write_system(tmp_path, "wiki-ours-30", minutes=95)
    write_system(tmp_path, "wiki-neobert", ended=False)
    section = write_section(tmp_path, "docs/results.md")
    assert "| ours | 15 min, 2 cores (Some) | 2.50 M | 0.322 ± 0.020 |" in section
    wiki = section.partition("### English Wikipedia in lower case")[2]
    assert wiki.index("(`auto`)") < wiki.index("(`bert`)")  # the best comes first
    assert wiki.index("(`bert`)") < wiki.index("| 95 min, 2 cores")  # the longer time last
    assert "| 0.123 (most frequent: 0.048); next" in wiki
    assert "| 0.234 on all masked positions (most frequent: 0.048) |" in wiki  # not measured
    assert "; next sentences 0.610 (always the same answer: 0.500) |" in section
    assert "[file](../benchmarks/results/2026-01-01_cpu_reproduce-wiki-bert.json)" in section
    assert "neobert" not in section
    assert "images/" not in section


def test_minimal_pairs_of_named_models_are_shown(tmp_path: Path):
    ours = {"accuracy": {"blimp/mean_over_paradigms": [0.57, 0.565, 0.575]}}
    write_result(tmp_path, "minimal-pairs", {"models": {"small": ours, "wiki-ours-30": ours}})
    write_result(tmp_path, "later_minimal-pairs", {"models": {"wiki-ours-120-bf16": ours}})
    pairs = write_section(tmp_path, "docs/results.md").partition("### Minimal pairs")[2]
    assert pairs.count("| 0.570 (0.565 to 0.575) |") == 2
    assert pairs.index("30 minutes") < pairs.index("two hours")


@pytest.mark.parametrize("name", sorted(SYSTEMS.keys() - {PEER}))
def test_a_system_is_a_configuration(name: str):
    options = pretrain_parser().parse(["text.txt", *SYSTEMS[name].options])
    build_schedule(resolve(SYSTEMS[name].recipe, overrides=config_values(options)), 8192)
