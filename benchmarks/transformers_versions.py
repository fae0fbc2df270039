"""Measure which versions of transformers load our model folders with the same logits.

    python -m benchmarks.transformers_versions --work /tmp/versions [--versions 4.48.3 5.23.0]

Writes a folder of every family (random weights, every parameter counts): masked language models in
all configurations of `benchmarks.twins`, classifiers of texts and of tokens. Each version is
installed by pip into a virtual environment of its own, which uses the torch of this one, and loads
all folders there (`benchmarks.load_folders`, which knows nothing of maskwright). Environments and
folders stay in `--work`, so that a second run installs and writes nothing.
"""

import argparse
import json
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from packaging.version import Version
from safetensors.torch import save_file
from torch import Tensor

from benchmarks import load_folders
from benchmarks.common import write_result
from benchmarks.fuzz.seeds import documents
from benchmarks.interchange import Workshop
from benchmarks.twins import (
    PADDED,
    ROW,
    TOLERANCE,
    TWINS,
    build_twin,
    fill_rows,
    list_twins,
    our_logits,
    randomise,
)
from maskwright.attention_context import context_from_lengths
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model.classifier import Classifier
from maskwright.model.config import Level
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.model_folder.families import FAMILIES, list_classifiers
from maskwright.model_folder.folder import load_model, save_model
from maskwright.tokenizer.tokenizer import Tokenizer

# The versions between which a family appeared or a file format changed, and both ends.
VERSIONS = (
    *("4.44.2", "4.47.1", "4.48.0", "4.48.3", "4.57.6", "5.0.0", "5.2.0", "5.3.0", "5.4.0"),
    *("5.5.0", "5.17.0", "5.18.0", "5.19.0", "5.20.0"),
)
_LABELS = ("bad", "good", "odd")


def write_folders(root: Path) -> dict[str, dict[str, Any]]:
    """Write folders of every family and kind of model below `root`; return facts of each model.

    A model's facts are its family, the names of its folders and the version that its card names.
    """
    workshop = root / "workshop"
    workshop.mkdir(parents=True)
    tokenizer = Workshop.open(workshop).tokenizer
    models: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(list_twins()):
        theirs = root / "theirs" / str(number)
        build_twin(name).save_pretrained(theirs)
        tokenizer.save(theirs, max_length=ROW)
        ours, _ = load_model(theirs)
        folder = root / "folders" / f"{number}--masked"
        save_model(folder, ours, tokenizer)
        _write_expected(folder, tokenizer, our_logits(ours), ours.config.pad_token_id)
        family, folders = TWINS[name].model_type, [folder.name]
        for level in ("text", "token"):
            if family in list_classifiers(level):
                folder = root / "folders" / f"{number}--{level}"
                _write_classifier(folder, ours, tokenizer, level)
                folders.append(folder.name)
        since = FAMILIES[family].since(ours.config)
        models[name] = {"family": family, "folders": folders, "since": since}
    return models


def _write_classifier(
    folder: Path, pretrained: MaskedLanguageModel, tokenizer: Tokenizer, level: Level
) -> None:
    model = build_classifier(pretrained, FinetuneConfig(), level, len(_LABELS), seed=0)
    randomise(model, seed=2)
    save_classifier(folder, model.eval(), tokenizer, _LABELS, "single_label_classification")
    logits = _classify(model, level)
    _write_expected(folder, tokenizer, logits, model.config.pad_token_id)


@torch.no_grad()
def _classify(model: Classifier, level: Level) -> Tensor:
    ids, real = fill_rows(PADDED, model.config.pad_token_id)
    context = context_from_lengths([sum(row) for row in PADDED], ROW)
    positions = real.flatten().nonzero()[:, 0] if level == "token" else None
    return model(ids.flatten(), context, output_positions=positions)


def _write_expected(folder: Path, tokenizer: Tokenizer, logits: Tensor, pad_id: int) -> None:
    """The batch, our logits of it, and the ids of a text, beside the model."""
    ids, real = fill_rows(PADDED, pad_id)
    text = documents()[0][:40]
    wrapped = [tokenizer.cls_id, *tokenizer.encode(text).ids.tolist(), tokenizer.sep_id]
    tensors = {
        "input_ids": ids,
        "attention_mask": real.long(),
        "logits": logits.contiguous(),
        "text_ids": torch.tensor(wrapped),
    }
    save_file(tensors, folder / load_folders.EXPECTED, metadata={"text": text})


def install(number: str, work: Path) -> Path:
    """The Python of a virtual environment with this version of transformers, and our torch."""
    folder = work / f"transformers-{number}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        make = [sys.executable, "-m", "venv", "--clear", "--without-pip", folder]
        subprocess.run(make, check=True)
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        subprocess.run([*pip, f"transformers=={number}"], check=True)
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        paths = folder / "lib" / minor / "site-packages" / "zz_torch.pth"  # found after its own
        paths.write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
        ready.touch()
    return python


def try_version(number: str, work: Path, folders: Path) -> dict[str, Any]:
    """Versions of the libraries, and for each folder a difference or an error."""
    python = sys.executable if number == version("transformers") else install(number, work)
    found = subprocess.run(
        [python, load_folders.__file__, folders], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(found.stdout.splitlines()[-1])


def find_first(results: dict[str, dict[str, Any]], folders: Sequence[str]) -> str | None:
    """Return the first version from which on every one of the folders has equal logits."""
    first = None
    for number in sorted(results, key=Version, reverse=True):
        found = [results[number]["folders"][name] for name in folders]
        if not all(one.get("difference", 1.0) <= TOLERANCE for one in found):
            break
        first = number
    return first


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="a folder for environments")
    parser.add_argument("--versions", nargs="+", default=[*VERSIONS, version("transformers")])
    parser.add_argument("--jobs", type=int, default=1, help="versions that are tried at a time")
    arguments = parser.parse_args()
    root = arguments.work / "models"
    facts = root / "models.json"
    if not facts.exists():
        facts.write_text(json.dumps(write_folders(root)), encoding="utf-8")
    models: dict[str, dict[str, Any]] = json.loads(facts.read_text(encoding="utf-8"))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        tried = pool.map(
            lambda number: try_version(number, arguments.work, root / "folders"), arguments.versions
        )
        results = dict(zip(arguments.versions, tried, strict=True))
    for number in results:
        found = results[number]["folders"].values()
        equal = sum(one.get("difference", 1.0) <= TOLERANCE for one in found)
        print(f"{number}: {equal} of {len(found)} folders have the same logits", flush=True)
    for name, model in models.items():
        model["first"] = find_first(results, model["folders"])
        print(f"{name}: {model['first']} (its card says {model['since']})")
    write_result(
        "transformers-versions", {"tolerance": TOLERANCE, "models": models, "versions": results}
    )
    wrong = [name for name, model in models.items() if not agrees(model)]
    if wrong:
        sys.exit(f"the card names another version than was found: {', '.join(wrong)}")


def agrees(model: Mapping[str, Any]) -> bool:
    """Return True if the version in the card of a model is the one that was found."""
    return Version(model["since"]).release == Version(model["first"]).release[:2]


if __name__ == "__main__":
    main()
