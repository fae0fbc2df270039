"""Every place where maskwright reads what it did not write itself, as a function of bytes.

A target writes the bytes where a user could have put them, reads them as the program would, and
raises unless the outcome is one of maskwright's own errors, in one printable line, or a result that
keeps its promises.
"""

import contextlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from maskwright.cli.flags import config_values
from maskwright.cli.pretrain import pretrain_parser
from maskwright.config import from_mapping, read_yaml, write_yaml
from maskwright.corpus.cleaning import clean_text
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.sources import stream_corpus
from maskwright.errors import MaskwrightError
from maskwright.files import hash_file, write_json
from maskwright.inference.fill_mask import FillMask
from maskwright.logs import MetricsLog, read_metrics, read_training
from maskwright.model_folder.folder import open_model
from maskwright.model_folder.weights import INDEX, WEIGHTS
from maskwright.preparation.folder import SELECTION_NAME, read_tally
from maskwright.pretraining.find_data import read_preparations
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.run_directory import read_provenance
from maskwright.selection.selector import Tally
from maskwright.shards.manifest import MANIFEST_NAME
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.checkpoint import WHOLE, open_checkpoint, verify_checkpoint
from maskwright.train.state import TrainState
from tests.hostile.fuzzing import seeds
from tests.hostile.fuzzing.mutations import (
    Mutate,
    either,
    mutate_bytes,
    mutate_json,
    mutate_safetensors,
)
from tests.hostile.fuzzing.pages import mutate_page, read_page, usual_pages

_LONGEST_DOCUMENT = 1_000
_PROBES = ("", "Kato mi [MASK] 東京!", "x" * 300, "a\ud800 \0\ufdfa e\u0301\n\t  .")


@dataclass(frozen=True)
class Target:
    """One place to attack.

    Attributes:
        run: reads the bytes; raises on a finding.
        seeds: valid inputs.
        mutate: makes a new input from one.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate = mutate_bytes


@contextlib.contextmanager
def refusing() -> Generator[None]:
    """Suppress maskwright's own errors that are one printable line."""
    try:
        yield
    except MaskwrightError as error:
        message = str(error)
        if not message or not message.isprintable():
            raise AssertionError(f"not one printable line: {message!r}") from error


def _read_config(content: bytes) -> None:
    path = _scratch_file("config", "my.yaml")
    path.write_bytes(content)
    with refusing():
        config = resolve(None, path)
        path.write_text(write_yaml(config), encoding="utf-8")
        assert from_mapping(PretrainConfig, read_yaml(path)) == config


def _parse_flags(content: bytes) -> None:
    arguments = content.decode("utf-8", "surrogateescape").split("\n")
    with refusing(), contextlib.redirect_stdout(io.StringIO()):
        try:
            parsed = pretrain_parser().parse(arguments)
        except SystemExit:  # of --help; errors raise
            return
        write_yaml(resolve(parsed.recipe, None, config_values(parsed)))


def _read_corpus(name: str) -> Callable[[bytes], None]:
    def run(content: bytes) -> None:
        path = _scratch_file("corpus", name)
        path.write_bytes(content)
        config = CorpusConfig(max_document_characters=_LONGEST_DOCUMENT)
        with refusing():
            for document in stream_corpus([str(path)], config, Counter()):
                assert 0 < len(document.text) <= 3 * _LONGEST_DOCUMENT
                document.text.encode()

    return run


def _clean(content: bytes) -> None:
    counts: Counter[str] = Counter()
    text = clean_text(content.decode("utf-8", "surrogateescape"), counts)
    text.encode()
    assert clean_text(text, counts) == text


def _load_tokenizer(name: str) -> Callable[[bytes], None]:
    def run(content: bytes) -> None:
        folder = _copy("tokenizer-" + name, lambda: seeds.model_folder("modernbert"))
        (folder / name).write_bytes(content)
        with refusing():
            tokenizer = Tokenizer.load(folder)
            tokenizer.save(_scratch_file("tokenizer-saved", ""))
            for probe in _PROBES:
                with refusing():
                    _encode(tokenizer, probe)

    return run


def _encode(tokenizer: Tokenizer, text: str) -> None:
    for encoded in (tokenizer.encode(text), tokenizer.encode_prompt(text)):
        assert len(encoded.ids) == len(encoded.word_starts)
        assert all(token_id < tokenizer.vocab_size for token_id in encoded.ids.tolist())
        tokenizer.decode(encoded.ids[:50])


def _open_model(name: str, origin: Callable[[], Path]) -> Callable[[bytes], None]:
    def run(content: bytes) -> None:
        folder = _copy(f"model-{name}", origin)
        (folder / name).write_bytes(content)
        with refusing():
            loaded = open_model(folder)
            fill = FillMask.from_parts(loaded.model, loaded.tokenizer, loaded.add_special_tokens)
            fill("kato [MASK] mi", top_k=2)

    return run


def _fill(content: bytes) -> None:
    fill = _bert()
    text = content.decode("utf-8", "surrogateescape")
    with refusing():
        fill(text, top_k=1)
    with refusing():
        fill.describe_random(text)


@cache
def _bert() -> FillMask:
    return FillMask(seeds.model_folder("bert"))


def _read_manifest(content: bytes) -> None:
    folder = _copy("data-manifest", seeds.data_folder)
    (folder / MANIFEST_NAME).write_bytes(content)
    with refusing():
        read_preparations(replace(PretrainConfig(), text=(str(folder),)))
    with refusing():
        data = PreparedData(folder)
        for store in (data.train, data.valid):
            _read_documents(store)


def _read_documents(store: TokenStore) -> None:
    start = 0
    for length in store.document_lengths.tolist():
        ids = store.tokens(start, start + length)
        assert len(ids) == length == len(store.word_starts(start, start + length))
        assert int(ids.max()) < store.vocab_size
        start += length
    assert len(store.unigram_counts) == store.vocab_size


def _read_shard(kind: str) -> Callable[[bytes], None]:
    """The hashes are right: somebody forged them, too."""

    def run(content: bytes) -> None:
        folder = _copy(f"data-{kind}", seeds.data_folder)
        path = folder / "train" / f"00000.{kind}"
        path.write_bytes(content)
        manifest = json.loads((seeds.data_folder() / MANIFEST_NAME).read_text(encoding="utf-8"))
        described = manifest["splits"]["train"]["shards"][0]["files"][kind]
        described.update(num_bytes=len(content), sha256=hash_file(path))
        write_json(folder / MANIFEST_NAME, manifest)
        with refusing():
            _read_documents(TokenStore.open(folder, "train"))

    return run


def _read_tally(content: bytes) -> None:
    folder = _scratch_file("selection", "")
    (folder / SELECTION_NAME).write_bytes(content)
    read_tally(folder)


def _read_run(content: bytes) -> None:
    """``provenance.json`` and ``metrics.jsonl``."""
    run = _scratch_file("run", "")
    (run / "provenance.json").write_bytes(content)
    (run / "metrics.jsonl").write_bytes(content)
    with refusing():
        read_provenance(run)
    MetricsLog(run / "metrics.jsonl", last_step=3).close()
    (run / "metrics.jsonl").write_bytes(content)
    read_metrics(run / "metrics.jsonl")
    with refusing():
        read_training(run / "metrics.jsonl")


def _read_checkpoint(name: str) -> Callable[[bytes], None]:
    def run(content: bytes) -> None:
        folder = _copy(f"checkpoint-{name}", seeds.checkpoint_folder)
        (folder / name).write_bytes(content)
        with refusing():
            verify_checkpoint(folder)
        with refusing():
            checkpoint = open_checkpoint(folder)
            TrainState.from_json(checkpoint.state)
            checkpoint.read_into({n: torch.zeros(s) for n, s in seeds.CHECKPOINT_SHAPES.items()})

    return run


_FOLDERS: dict[str, Path] = {}


def _copy(name: str, origin: Callable[[], Path]) -> Path:
    """Return this target's own copy of a valid folder, which every input changes."""
    if name not in _FOLDERS:
        _FOLDERS[name] = seeds.fresh_folder(name) / "copy"
        shutil.copytree(origin(), _FOLDERS[name])
    return _FOLDERS[name]


def _scratch_file(name: str, file: str) -> Path:
    if name not in _FOLDERS:
        _FOLDERS[name] = seeds.fresh_folder(name)
    return _FOLDERS[name] / file


def _file_of(origin: Callable[[], Path], *names: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [(origin() / name).read_bytes() for name in names]


def _tokenizers() -> Sequence[bytes]:
    return [json.dumps(seeds.tokenizer(kind).description).encode() for kind in seeds.KINDS]


def _configs_of_models() -> Sequence[bytes]:
    presets = ("modernbert", "bert", "eurobert")
    return [(seeds.model_folder(preset) / "config.json").read_bytes() for preset in presets]


def _tallies() -> Sequence[bytes]:
    tally = Tally()
    tally.keep("kato mi.")
    tally.drop("duplicate", "kato mi.")
    return [json.dumps(tally.to_plain()).encode()]


def _runs() -> Sequence[bytes]:
    provenance = {"prepared_data": "data/x", "corpus": {"fingerprint": "f" * 64}}
    records = [{"split": "train", "step": n, "loss": 1.5, "tokens": 7 * n} for n in range(6)]
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    return [json.dumps(provenance).encode(), lines]


def _sentences() -> Sequence[bytes]:
    return [b"kato [MASK] mi.", "東京 [MASK][MASK] e\u0301".encode()]


def _flags() -> Sequence[bytes]:
    return [
        b"corpus.txt\n--recipe\ntiny\n--name\nfirst\n--train.max_minutes\n3",
        b"--optim.learning_rate=1e-3\n--masking.rate\n0.3\n--model.hidden_size\n64\nx\n--dry-run",
    ]


def _list_corpus_targets() -> list[Target]:
    plain = {"txt": seeds.plain_text, "md": seeds.plain_text, "jsonl": seeds.json_lines}
    texts: dict[str, Callable[[], Sequence[bytes]]] = {
        **{f"x.{name}": lambda make=make: [make()] for name, make in plain.items()},
        **{f"x.{n}": lambda d=d: [seeds.table(d)] for n, d in {"csv": ",", "tsv": "\t"}.items()},
        **{
            f"x.txt.{name}": lambda name=name: [seeds.packed_texts()["." + name]]
            for name in ("gz", "bz2", "xz", "zst")
        },
        "x.parquet": seeds.parquet_files,
    }
    return [
        *(
            Target(f"corpus-{file.rpartition('.')[2]}", _read_corpus(file), make)
            for file, make in texts.items()
        ),
        Target("clean", _clean, lambda: [seeds.plain_text()]),
        Target("wikitext", read_page, usual_pages, either(mutate_page, mutate_bytes)),
    ]


def _list_model_targets() -> list[Target]:
    def modern() -> Path:
        return seeds.model_folder("modernbert")

    words, name = _file_of(modern, "tokenizer_config.json"), "tokenizer_config.json"
    config, index = "config.json", _file_of(seeds.split_model_folder, INDEX)
    weights = _file_of(modern, WEIGHTS)
    return [
        Target("tokenizer", _load_tokenizer("tokenizer.json"), _tokenizers, mutate_json),
        Target("tokenizer-config", _load_tokenizer(name), words, mutate_json),
        Target("model-config", _open_model(config, modern), _configs_of_models, mutate_json),
        Target("weights", _open_model(WEIGHTS, modern), weights, mutate_safetensors),
        Target("weights-index", _open_model(INDEX, seeds.split_model_folder), index, mutate_json),
        Target("fill", _fill, _sentences),
    ]


def _list_data_targets() -> list[Target]:
    data, checkpoint = seeds.data_folder, seeds.checkpoint_folder
    states = {"state.json": mutate_json, "manifest.json": mutate_json, WHOLE: mutate_safetensors}
    return [
        Target("manifest", _read_manifest, _file_of(data, MANIFEST_NAME), mutate_json),
        *(
            Target(f"shard-{kind}", _read_shard(kind), _file_of(data, f"train/00000.{kind}"))
            for kind in ("tokens", "ends", "starts")
        ),
        Target("selection", _read_tally, _tallies, mutate_json),
        Target("run", _read_run, _runs, either(mutate_json, mutate_bytes)),
        *(
            Target(f"checkpoint-{name}", _read_checkpoint(name), _file_of(checkpoint, name), mutate)
            for name, mutate in states.items()
        ),
    ]


def _list_targets() -> list[Target]:
    return [
        Target("config", _read_config, seeds.configurations),
        Target("flags", _parse_flags, _flags),
        *_list_corpus_targets(),
        *_list_model_targets(),
        *_list_data_targets(),
    ]


TARGETS: dict[str, Target] = {target.name: target for target in _list_targets()}
