"""Compare vectors of every way with those of sentence-transformers, for all that a folder states.

For each setting that sentence-transformers states beside the weights, the library itself writes a
small folder, and computes the vectors and similarities that every way of maskwright has to return.
The figures are the largest absolute differences.
"""

import argparse
import importlib
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.testclient import TestClient

from benchmarks.common import write_result
from maskwright import Embedder, embed, evaluate, export, finetune, pretrain, search
from maskwright.interop.targets import quiet
from maskwright.runs.find_model import find_model_folder
from maskwright.serving.app import build_app
from maskwright.serving.config import ServeConfig
from maskwright.serving.pipelines import open_pipeline
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.interop.models import NATIVE, write_model
from tests.model_folder.helpers import WORDS, write_tokenizer

TOLERANCE = 1e-4
_WIDTH = 32
_PROMPTS = {"query": "cat ", "document": "the dog ", "topic": "under a tree "}
TEXTS = [
    "the cat sat on a tree",
    "",
    "The DOG ran under the tree, unknown!",
    "a bird flew on the fish " * 9,  # longer than the model
    "the cat [MASK] a[SEP]tree [CLS] [PAD] cat, [UNK].",
    "a fish flew",
]
_QUERIES = ["a cat on the tree", "the BIRD flew"]
Vectors = NDArray[np.float32]

# What each folder states: arguments of the library's classes; "length" and "case" of Transformer.
SETTINGS: dict[str, dict[str, Any]] = {
    "mean": {},
    "cls": {"pooling": "cls"},
    "max_seq_length": {"length": 12},
    "do_lower_case": {"case": True},
    "default prompt": {"prompts": _PROMPTS, "default_prompt_name": "topic"},
    "query, document": {"prompts": _PROMPTS},
    "Normalize": {"scales": True},
    "truncate_dim": {"truncate_dim": 20, "scales": True},
    "dot": {"similarity_fn_name": "dot"},
    "euclidean": {"similarity_fn_name": "euclidean"},
    "manhattan": {"similarity_fn_name": "manhattan"},
    "all": {
        "pooling": "cls", "length": 12, "case": True, "prompts": _PROMPTS,
        "default_prompt_name": "topic", "scales": True, "truncate_dim": 20,
        "similarity_fn_name": "dot",
    },
}  # fmt: skip


def write_folder(folder: Path, setting: str) -> Path:
    """Write a folder of sentence-transformers that states a setting, with a cased tokenizer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    given = dict(SETTINGS[setting])
    pooling, length, case = (given.pop(name, None) for name in ("pooling", "length", "case"))
    scales = given.pop("scales", False)
    write_tokenizer(folder / "words")
    path = folder / "words" / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": None}))
    write_model(folder / "model", NATIVE["bert"], tokenizer=Tokenizer.load(folder / "words"))
    with quiet():
        first = modules.Transformer(
            str(folder / "model"), max_seq_length=length, do_lower_case=bool(case)
        )
        parts: list[Any] = [first, modules.Pooling(_WIDTH, pooling or "mean")]
        parts += [modules.Normalize()] * scales
        SentenceTransformer(modules=parts, device="cpu", **given).save(str(folder / "st"))
    config = folder / "st" / "sentence_bert_config.json"
    if case:  # as older versions wrote it; version 6 changes tokenizer.json instead
        config.write_text(json.dumps({**json.loads(config.read_text()), "do_lower_case": True}))
        shutil.copy(folder / "model" / "tokenizer.json", folder / "st")
    return folder / "st"


def open_library(folder: Path) -> Any:
    """Return the model of sentence-transformers of a folder or a run."""
    from sentence_transformers import SentenceTransformer

    with quiet():
        return SentenceTransformer(str(find_model_folder(folder)), device="cpu")


def _differ(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else math.inf


def _embed(folder: Path, work: Path) -> Vectors:
    path = work / "vectors.npy"
    path.unlink(missing_ok=True)
    embed(folder, TEXTS, out=path, device="cpu")
    return np.load(path)


def compare_search(folder: Path, library: Any) -> float:
    """Return the difference of scores, of texts in the library's order of similarity."""
    found = search(folder, _QUERIES, [text or "." for text in TEXTS], top=99, device="cpu")
    queries = library.encode_query(_QUERIES)
    scores = library.similarity(queries, library.encode_document([t or "." for t in TEXTS]))
    ours = [[m.score for m in sorted(one, key=lambda m: m.number)] for one in found]
    return _differ(ours, scores)


def compare_evaluation(folder: Path, library: Any, work: Path) -> float:
    """Return the difference of Spearman's correlation and of nDCG@10."""
    from sentence_transformers.sentence_transformer import evaluation

    texts = [*(" ".join(three) for three in permutations(WORDS[2:6], 3)), *_QUERIES]
    first, second = texts[:-1], texts[1:]
    scores = [float(7 * n % 11) for n in range(len(first))]
    lines = [f"{a}\t{b}\t{n}" for a, b, n in zip(first, second, scores, strict=True)]
    (work / "sts.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *lines]))
    ours = evaluate(folder, suite="sts", data=work / "sts.tsv", device="cpu")
    judge = evaluation.EmbeddingSimilarityEvaluator(
        first, second, scores, similarity_fn_names=[library.similarity_fn_name]
    )
    name = library.similarity_fn_name
    worst = abs(_find_score(ours, "sts/spearman") - judge(library)[f"spearman_{name}"])

    documents = {f"d{n}": text for n, text in enumerate(texts)}
    queries = {f"q{n}": text for n, text in enumerate(_QUERIES)}
    places = enumerate(queries)
    relevant = {query: {f"d{n}" for n in range(place, place + 5)} for place, query in places}
    (work / "qrels").mkdir(exist_ok=True)
    for file, found in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": name, "text": text}) for name, text in found.items()]
        (work / f"{file}.jsonl").write_text("\n".join(lines))
    rows = [f"{query}\t{name}\t1" for query, names in relevant.items() for name in sorted(names)]
    (work / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    ours = evaluate(folder, suite="retrieval", data=work, device="cpu")
    judge = evaluation.InformationRetrievalEvaluator(queries, documents, relevant)
    theirs = judge(library)[f"{library.similarity_fn_name}_ndcg@10"]
    return max(worst, abs(_find_score(ours, "retrieval/ndcg_10") - theirs))


def _find_score(found: Any, name: str) -> float:
    return next(s["value"] for s in found["suites"][0]["scores"] if s["name"] == name)


def compare_server(folder: Path, library: Any) -> float:
    """Return the difference of /embed, its prompts, /v1/embeddings and /similarity."""
    pipeline = open_pipeline(find_model_folder(folder), "cpu")
    client = TestClient(build_app("m", pipeline, ServeConfig()), base_url="http://localhost")
    expected = library.encode(TEXTS)
    with client:
        found = [_differ(client.post("/embed", json={"inputs": TEXTS}).json(), expected)]
        for name in (name for name in library.prompts if library.prompts[name]):
            body = {"inputs": TEXTS, "prompt_name": name}
            theirs = library.encode(TEXTS, prompt_name=name)
            found.append(_differ(client.post("/embed", json=body).json(), theirs))
        body = {"inputs": TEXTS, "normalize": True}
        theirs = library.encode(TEXTS, normalize_embeddings=True)
        found.append(_differ(client.post("/embed", json=body).json(), theirs))
        answer = client.post("/v1/embeddings", json={"input": TEXTS, "model": "m"}).json()
        found.append(_differ([one["embedding"] for one in answer["data"]], expected))
        sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS}
        answer = client.post("/similarity", json={"inputs": sentences}).json()
        found.append(_differ(answer, library.similarity(expected, expected[:1])[:, 0]))
    return max(found)


def _run_openvino(model: Any, inputs: Any) -> list[Any]:
    return [model(inputs)["sentence_embedding"]]


def run_graph(folder: Path, to: str) -> Vectors:
    """Return the vectors of an export, as its card computes them: with the default prompt."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer.enable_truncation(settings["model_max_length"])
    shared = json.loads((folder / "config_sentence_transformers.json").read_text())
    prompt = shared["prompts"].get(shared["default_prompt_name"], "")
    vectors: list[Any] = []
    if to == "onnx":
        import onnxruntime

        session: Any = onnxruntime.InferenceSession(str(folder / "model.onnx"))
        compute: Any = partial(session.run, ["sentence_embedding"])
    else:
        openvino: Any = importlib.import_module("openvino")  # of an extra that may be missing
        precision = {"INFERENCE_PRECISION_HINT": "f32"}
        model = openvino.Core().compile_model(folder / "openvino_model.xml", "CPU", precision)
        compute = partial(_run_openvino, model)
    for text in TEXTS:
        encoded = tokenizer.encode(prompt + text)
        inputs = {"input_ids": encoded.ids, "attention_mask": encoded.attention_mask}
        [found] = compute({name: np.array([ids]) for name, ids in inputs.items()})
        vectors.append(found[0].copy())
    return np.array(vectors)


def _continue(folder: Path, work: Path) -> Path:
    lines = [" ".join(words) for words in permutations(WORDS[:8], 4)]
    (work / "words.txt").write_text("\n\n".join(lines[:600]))
    settings = {
        "train": {"max_steps": 2, "batch_tokens": 256, "compile": "off", "report": False,
                  "valid_tokens": 512, "final_valid_tokens": 512, "num_validations": 1},
        "data": {"max_seq_length": 16},
        "corpus": {"valid_fraction": 0.1, "deduplicate": False},
        "init_from": str(folder),
    }  # fmt: skip
    pretrain(work / "words.txt", out=work / "run", data_dir=work / "data", **settings)
    return work / "run"


def _finetune(folder: Path, work: Path) -> Path:
    lines = [" ".join(words) for words in permutations(WORDS[:6], 3)]
    rows = [f"{line}\tthe {line}" for line in lines]
    (work / "pairs.tsv").write_text("\n".join(["query\tpassage", *rows]))
    finetune(
        folder, task="embedding", train=work / "pairs.tsv", out=work / "tuned", epochs=1,
        batch_size=16, device="cpu",
    )  # fmt: skip
    return work / "tuned"


def measure(setting: str, work: Path, *, is_whole: bool = True) -> Iterator[tuple[str, float]]:
    """Yield each way and its largest difference to the library for a setting.

    Args:
        is_whole: include the ways that take long, which trace graphs or train.
    """
    folder = write_folder(work, setting)
    library = open_library(folder)
    expected = library.encode(TEXTS)
    yield "embed", _differ(_embed(folder, work), expected)
    yield "Embedder", _differ(Embedder(folder, "cpu")(TEXTS), expected)
    yield "search", compare_search(folder, library)
    yield "evaluate", compare_evaluation(folder, library, work)
    yield "serve", compare_server(folder, library)
    export(folder, "sentence-transformers", work / "exported")
    exported = open_library(work / "exported")
    same = _differ(exported.encode(TEXTS), expected)
    asked = (exported.encode_query(TEXTS), library.encode_query(TEXTS))
    yield "export to sentence-transformers", max(same, _differ(*asked))
    if not is_whole:
        return
    runtimes = {"onnx": find_spec("onnxruntime"), "openvino": find_spec("openvino")}
    for to in (name for name, installed in runtimes.items() if installed):
        export(folder, to, work / to)
        yield f"export to {to}", _differ(run_graph(work / to, to), expected)
    for way, train in (("init_from", _continue), ("finetune", _finetune)):
        run = train(folder, work)
        trained = open_library(run)
        # The trained model has other weights, but says the same about its vectors.
        for name in ("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim"):
            if getattr(trained, name) != getattr(library, name):
                raise RuntimeError(f"{way}: {name} = {getattr(trained, name)} is another")
        if (trained.max_seq_length, len(trained)) != (library.max_seq_length, len(library)):
            raise RuntimeError(f"{way}: other modules than {library}")
        yield way, _differ(Embedder(run, "cpu")(TEXTS), trained.encode(TEXTS))
        yield f"{way}, model folder", _differ(_embed(run / "model", work), trained.encode(TEXTS))
        yield f"{way}, serve", compare_server(run, trained)
        export(run, "sentence-transformers", work / f"of_{way}")
        exported = open_library(work / f"of_{way}")
        yield f"{way}, export", _differ(exported.encode(TEXTS), trained.encode(TEXTS))


def main(arguments: argparse.Namespace) -> None:
    table: dict[str, dict[str, float]] = {}
    for setting in SETTINGS:
        with tempfile.TemporaryDirectory(prefix="maskwright-vectors-") as temporary:
            table[setting] = dict(measure(setting, Path(temporary)))
        print(setting, {way: f"{found:.1e}" for way, found in table[setting].items()})
    judge = {"sentence_transformers": version("sentence-transformers"), "tolerance": TOLERANCE}
    write_result("vectors", {**judge, "differences": table})
    if not max(max(found.values()) for found in table.values()) <= TOLERANCE:
        sys.exit(f"a difference is more than {TOLERANCE}")
