"""Tables and pictures of speed are what the result files say; what has no file is left out."""

import json
from pathlib import Path
from typing import Any

from benchmarks.common import BEGIN, END
from benchmarks.growth import fit_slope
from benchmarks.speed_page import PAGE, list_measures, write_section, write_table
from benchmarks.speed_plots import draw_all

ENVIRONMENT = {"cpu": "Some CPU (Family 1)", "cpu_count": 2}
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


def write_results(folder: Path) -> None:
    for name, result in RESULTS.items():
        content = json.dumps({"name": name, **result, "environment": ENVIRONMENT})
        (folder / f"2026-01-01_cpu_{name}.json").write_text(content)


def test_the_page_is_what_the_files_say():
    assert BEGIN + write_section() + END in PAGE.read_text(encoding="utf-8")


def test_each_result_has_its_rows(tmp_path: Path):
    assert write_section(tmp_path, tmp_path) == "Nothing has been measured yet.\n"
    write_results(tmp_path)
    measures = list_measures(tmp_path)
    table = "\n".join(write_table(measures, "results"))
    assert len(measures) == 4 + 2 + 2 + 2 + 1 + 1 + 1 + 2 + 2
    assert "| 2.50x (2.25 to 3.00) | [2 cores, Some CPU](results/2026-01-01_cpu_" in table
    assert "| its matrix products alone | 0.85x: missed | 0.75x" in table
    assert "| time to loss 6.40 on English Wikipedia" in table
    assert "| 30.0x (60 s) |" in table
    assert "| 6x: missed | not reached |" in table
    assert "| a step of `bert` | below 1 %: met | 0.20% |" in table
    assert "| 50%: met | 50.0% (peer: 20.0%) |" in table
    page = write_section(tmp_path, tmp_path)
    assert "| | `bert` | `tiny` |\n|---|--:|--:|\n| matrix products | 80% | 50% |" in page
    assert "| AdamW | 0% | 50% |" in page
    assert "took [57 minutes](../benchmarks/results/2026-01-01_cpu_bench.json)" in page


def test_the_pictures_that_there_are_results_for_are_drawn(tmp_path: Path):
    assert draw_all(tmp_path, tmp_path) == []
    write_results(tmp_path)
    assert draw_all(tmp_path, tmp_path) == ["growth", "quality"]
    assert "(images/quality.svg)" in write_section(tmp_path, tmp_path)


def test_a_slope_is_the_exponent():
    assert fit_slope([1, 10, 100], [3, 300, 30_000]) == 2
