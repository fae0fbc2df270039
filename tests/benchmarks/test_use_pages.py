"""Tables of fine-tuning, serving and data are what the result files say."""

import json
from pathlib import Path
from typing import Any

from benchmarks import data_page, finetuning_page, serving_page
from benchmarks.common import BEGIN, END

ENVIRONMENT = {"cpu": "Some CPU", "cpu_count": 2}
LATENCIES = {"p50": 41.2, "p90": 60.0, "p99": 80.6}
RESULTS: dict[str, dict[str, Any]] = {
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


def write_results(folder: Path) -> None:
    for name, result in RESULTS.items():
        path = folder / f"2026-01-01_some-cpu-2c_{name}.json"
        path.write_text(json.dumps({**result, "environment": ENVIRONMENT}))


def test_fine_tuning(tmp_path: Path) -> None:
    write_results(tmp_path)
    section = finetuning_page.write_section(tmp_path)
    assert (
        "An encoder of some sort; mean and deviation over runs of 1 thread each of an Some CPU"
        in section
    )
    row = "| sst2 | 67,349 | accuracy | 0.5090 | 0.8000 | 0.7900 ± 0.0100 | 0.8300 | 3 | 3.3 |"
    assert row in section
    assert "a BERT trains 1.60x (1.50 to 1.70) as fast when the peer" in section
    assert "2.35x (2.20 to 2.50) as fast as its default" in section
    finetuning_page.draw_picture(tmp_path, tmp_path)
    assert "bag of words" in (tmp_path / "finetuning.svg").read_text()


def test_serving(tmp_path: Path) -> None:
    write_results(tmp_path)
    section = serving_page.write_section(tmp_path)
    assert "batching serves 4.6 times as many queries and 2.5 times as many sentences" in section
    assert "| queries, batching | 1,234 | 41 | 60 | 81 | 7 | 2 |" in section
    assert "200 examples of each operation found nothing" in section


def test_near_duplicates(tmp_path: Path) -> None:
    write_results(tmp_path)
    assert "| 0.8 | 21 x 6 | 547 | 96.3% | 98.0% | 0 |" in data_page.write_section(tmp_path)


def test_the_guide_to_data(tmp_path: Path) -> None:
    write_results(tmp_path)
    section = data_page.write_section(tmp_path)
    dropped = "(dropped or repaired: 3 near duplicate, 1 redirect)"
    assert f"in 31 seconds with a vocabulary of 8,192 {dropped}, 8 epochs" in section
    assert "4,321 hidden tokens" in section
    assert "| masked accuracy | 0.234 | 0.222 to 0.251 | 0.046 |\n" in section
    assert "| loss | 5.13 | 5.08 to 5.21 | 7.01 |\n" in section


def test_without_results_the_pages_say_so(tmp_path: Path) -> None:
    for page in (finetuning_page, serving_page, data_page):
        assert page.write_section(tmp_path) == "Nothing has been measured yet.\n"


def test_the_pages_are_what_the_committed_files_say() -> None:
    for page in (finetuning_page, serving_page, data_page):
        text = page.PAGE.read_text(encoding="utf-8")
        assert text.partition(BEGIN)[2].partition(END)[0] == page.write_section()
