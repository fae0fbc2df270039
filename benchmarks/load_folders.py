"""Load every model folder below a folder with the installed transformers: JSON on standard output.

A program of its own, which imports neither maskwright nor anything of the benchmarks, so that it
runs in environments that have only torch and one version of transformers.
"""

import json
import logging
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

EXPECTED = "expected.safetensors"
_PACKAGES = ("transformers", "tokenizers", "huggingface_hub", "torch")
_CLASSES = {
    "masked": "AutoModelForMaskedLM",
    "text": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}


def compare(folder: Path) -> dict[str, Any]:
    """Return the largest difference of a logit and what was said of tensors, or an error.

    All parameters are random, so that a tensor that was not read makes the logits differ.
    """
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.torch import load_file

    kind = folder.name.rpartition("--")[2]
    with safe_open(folder / EXPECTED, framework="pt") as file:
        text = file.metadata()["text"]
    expected = load_file(folder / EXPECTED)
    try:
        model, info = getattr(transformers, _CLASSES[kind]).from_pretrained(
            folder, output_loading_info=True
        )
        said = [f"{key}: {sorted(map(str, found))[0]}" for key, found in info.items() if found]
        ids = transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
        if ids != expected["text_ids"].tolist():
            return {"error": f"other ids: {ids}"}
        inputs = {name: expected[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            logits = model.eval()(**inputs).logits
    except Exception as error:  # whatever such a version says
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    if kind != "text":
        logits = logits[inputs["attention_mask"].bool()]
    found: dict[str, Any] = {"difference": (logits - expected["logits"]).abs().max().item()}
    return {**found, "said": said} if said else found


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    folders = sorted(Path(sys.argv[1]).iterdir())
    found = {folder.name: compare(folder) for folder in folders}
    packages = {package: version(package) for package in _PACKAGES}
    print(json.dumps({"packages": packages, "folders": found}))


if __name__ == "__main__":
    main()
