"""Export to transformers.js: the ONNX graph in its layout, and a static page that fills masks.

The page needs files only, from any place that serves them: the browser computes the model.
"""

import html
from importlib.resources import files
from pathlib import Path

from maskwright.errors import ExportError
from maskwright.files import write_text
from maskwright.interop.masked_lm_source import MaskedModelSource
from maskwright.interop.onnx import GRAPH, MAX_BYTES_WITHIN, OnnxModel, write_frame, write_graph
from maskwright.interop.targets import Source, Target, Written
from maskwright.interop.transformers import check_family

FOLDER, PAGE = "onnx", "index.html"
# The types that AutoModelForMaskedLM of transformers.js 4 knows.
MODEL_TYPES = (
    *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "esm"),
    *("modernbert", "eurobert"),
)
_CARD = """
An ONNX graph for transformers.js, and `index.html`, which fills masks in the browser:

```sh
python -m http.server 8000   # in this folder; then open http://localhost:8000
```

```js
import {{ pipeline }} from "@huggingface/transformers";

const fill = await pipeline("fill-mask", "OWNER/NAME", {{ dtype: "fp32" }});
console.log(await fill("{text}"));
```
"""


def write(folder: Path, source: Source) -> Written:
    """Write graph, configuration, tokenizer and page, and compare logits in onnxruntime.

    Raises:
        ExportError: the model is a classifier, is too large, or no class of transformers.js has
            its architecture.
    """
    if not isinstance(source, MaskedModelSource):
        raise ExportError("the page of transformers-js fills masks. Export a classifier to onnx.")
    check_family(source)
    family, _ = source.find_family()
    if family is None or family.model_type not in MODEL_TYPES:
        raise ExportError(
            f"transformers.js does not know model_type = {family and family.model_type}, only "
            f"{', '.join(MODEL_TYPES)}. Export it to onnx."
        )
    size = sum(parameter.nbytes for parameter in source.model.parameters())
    if size > MAX_BYTES_WITHIN:
        raise ExportError(f"{size / 1e9:.1f} GB of weights are too many for a browser.")
    write_frame(folder, source, f"{FOLDER}/{GRAPH}", "transformers.js", _CARD)
    graph = folder / FOLDER / GRAPH
    graph.parent.mkdir()
    write_graph(graph, source.model)
    page = files("maskwright.interop").joinpath("transformers_js.html").read_text("utf-8")
    write_text(
        folder / PAGE, page.replace("{{mask}}", html.escape(source.loaded.tokenizer.mask_token))
    )
    note = f"{PAGE} needs a place that serves files: python -m http.server -d DIR"
    return Written(source.compare(OnnxModel(graph)), notes=(note,))


TARGET = Target(("onnxruntime", "torch"), write)
