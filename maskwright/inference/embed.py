"""Text vectors, the mean of the token vectors or the vector of the first token, and search.

They equal those of sentence-transformers for the same folder (`VectorSettings`), and are written to
a ``.npy`` or ``.parquet`` file batch by batch.

R texts in a batch, padded to L tokens; N texts, D width.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.console import Pulse, tell
from maskwright.corpus.text_inputs import Texts, list_texts_of
from maskwright.errors import InputError
from maskwright.inference.text_model import TextBatch, TextModel, check_finite, split_blocks
from maskwright.inference.vector_files import AddRows, Vectors, check_out, writing_vectors
from maskwright.model.masked_lm import EncoderModel
from maskwright.model_folder.folder import Loaded, open_encoder
from maskwright.model_folder.sentence_modules import (
    DOCUMENT,
    QUERY,
    Pooling,
    Similarity,
    VectorSettings,
    read_settings,
)
from maskwright.runs.find_model import find_model_folder
from maskwright.tokenizer.token_text import TokenText
from maskwright.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class EmbedResult:
    """The counts of a call of `embed`.

    Attributes:
        width: the size of a vector.
        num_cut: the number of texts that were cut to the model's maximum of `longest` tokens.
        seconds: the time spent in the model.
    """

    num_texts: int
    width: int
    num_cut: int
    longest: int
    seconds: float


def embed(
    folder: str | Path,
    texts: Texts,
    *,
    out: str | Path,
    ids: Iterable[str] | None = None,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    prompt_name: str | None = None,
    batch_tokens: int | None = None,
    device: str | None = None,
    tokens: bool = False,
    layer: int | None = None,
) -> EmbedResult:
    """Write the vectors of texts to a file, one row per text, in order; or one per token.

    For vectors in memory use `Embedder`::

        embed("runs/mine", ["snails eat leaves", "larvae eat snails"], out="vectors.npy")

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        texts: one text, the path of a file, or an iterable, which is read in blocks of thousands.
        out: a new file: ``.npy``, float32 [texts, width], or ``.parquet``, with the texts.
        ids: an id for each text: a column of ``.parquet``, and a file ``NAME.ids.txt`` beside
            ``NAME.npy``, an id a line.
        pooling: ``mean`` of all tokens, or ``cls``, the first token; default: as in `Embedder`.
        normalize: scale vectors to length 1; default: as in `Embedder`.
        prompt_name: the prompt of the folder to put before each text; default: as in `Embedder`.
        batch_tokens: the maximum tokens per batch; default: chosen for the device.
        device: the device, such as ``cpu`` or ``cuda``; default: a GPU if there is one.
        tokens: write a vector for each token but [CLS] and [SEP], not scaled; its id is that of the
            text (or its number), ``:`` and the number of the token, and its text the token.
        layer: the block after which the vectors of tokens are taken, 0 for the embeddings; default:
            the output of the encoder.

    Returns:
        The counts, and the time spent.

    Raises:
        InputError: there is no text, or `out`, `layer`, `pooling`, `prompt_name`, `batch_tokens` or
            `device` is wrong.
        ModelFolderError: `folder` is not a model folder.
    """
    _check_tokens(tokens, layer, pooling or normalize)
    blocks, path = _check_inputs(texts, batch_tokens), Path(out)
    check_out(path)
    embedder = Embedder(folder, device, pooling, normalize)
    named = (map(str, count(1)) if tokens else None) if ids is None else iter(ids)

    def compute(block: list[str]) -> Computed:
        own = _take_ids(named, len(block))
        if not tokens:
            return own, block, embedder(block, batch_tokens, prompt_name)
        return _list_tokens(own, embedder.embed_tokens(block, layer, batch_tokens, prompt_name))

    width = embedder.model.config.hidden_size if tokens else embedder.width
    with writing_vectors(path, width, named is not None) as add:
        num_texts, seconds = _add_all(blocks, compute, add)
    return EmbedResult(num_texts, width, embedder.num_cut, embedder.longest, seconds)


Computed = tuple[list[str], list[str], Vectors]


def _add_all(
    blocks: Iterator[list[str]], compute: Callable[[list[str]], Computed], add: AddRows
) -> tuple[int, float]:
    """Add the rows of each block to a file; return the number of texts and the seconds taken."""
    num_texts, seconds, pulse = 0, 0.0, Pulse(tell)
    for block in blocks:
        started = time.perf_counter()
        rows = compute(block)
        seconds += time.perf_counter() - started
        num_texts += len(block)
        add(*rows)
        pulse.beat(f"{num_texts:,} texts so far, {num_texts / seconds:,.0f} per second")
    return num_texts, seconds


def _check_tokens(tokens: bool, layer: int | None, scaling: str | bool | None) -> None:
    """Raise InputError for settings of texts with vectors of tokens, and the reverse."""
    if tokens and scaling is not None:
        raise InputError("--pooling and --normalize have no effect with --tokens. Remove them.")
    if layer is not None and not tokens:
        raise InputError("--layer needs --tokens: vectors of texts are those of the last layer")


def _check_inputs(texts: Texts, batch_tokens: int | None) -> Iterator[list[str]]:
    """Return the texts in blocks; raise InputError if there is none, or for a size below 1."""
    if batch_tokens is not None and batch_tokens < 1:
        raise InputError(f"--batch-tokens = {batch_tokens} must be at least 1")
    blocks = split_blocks(list_texts_of(texts))
    first = next(blocks, None)
    if first is None:
        raise InputError("there is no text to embed")
    return chain([first], blocks)


def _list_tokens(
    ids: list[str], found: Sequence["TokenVectors"]
) -> tuple[list[str], list[str], Vectors]:
    """Return the id, the token and the vector of each token of texts with these ids."""
    pairs = zip(ids, found, strict=True)
    names = [f"{name}:{n}" for name, one in pairs for n in range(1, len(one.tokens) + 1)]
    tokens = [token for one in found for token in one.tokens]
    return names, tokens, np.concatenate([one.vectors for one in found])


class TokenVectors(NamedTuple):
    """The tokens of a text as people read them, and their vectors [tokens, D]."""

    tokens: list[str]
    vectors: Vectors


def _take_ids(ids: Iterator[str] | None, number: int) -> list[str]:
    found = [] if ids is None else list(islice(ids, number))
    if ids is not None and len(found) < number:
        raise InputError("there are fewer ids than texts. Give one for each.")
    return found


class Embedder(TextModel[EncoderModel]):
    """A model that computes vectors of texts, loaded from a folder::

        embed = Embedder("runs/mine")
        vectors = embed(["snails eat leaves", "larvae eat snails"])   # float32 [2, D]
        similarity = vectors @ vectors.T

    A folder of sentence-transformers is used as that library uses it: pooling, normalization,
    longest input, case, prompts and dimensions are those that its files state. Special tokens
    written in a text are recognized. A text that exceeds the maximum length of the model, or of its
    folder (``max_seq_length``), is cut before [SEP] and counted. An empty text has the vector of
    [CLS] [SEP], or zeros if the model was trained without them.

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``, with any head but that of a
            classifier.
        device: the device; default: a GPU if there is one.
        pooling: ``mean`` of all tokens with [CLS] and [SEP], or ``cls``, the first token; default:
            that of ``modules.json`` (sentence-transformers), else ``mean``.
        normalize: scale vectors to length 1, so that dot products are cosines; default: as
            ``modules.json`` states, else true.

    Attributes:
        settings: what the folder states, with `pooling`.
        num_cut: the number of texts so far that were cut.
        width: the size D of a vector.

    Raises:
        ModelFolderError: `folder` is not a model folder, or its own pooling, another module or a
            setting is not supported.
        InputError: there is no such device or pooling.
        TokenizerError: the maximum length of the folder is not a valid length.
    """

    def __init__(
        self,
        folder: Path | str,
        device: torch.device | str | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
    ) -> None:
        found = find_model_folder(folder)
        settings = read_settings(found, _check_pooling(pooling))
        super().__init__(found, device)
        self._set(settings, normalize)

    @staticmethod
    def _open(folder: Path | str) -> Loaded[EncoderModel]:
        return open_encoder(folder)

    @classmethod
    def from_parts(
        cls,
        model: EncoderModel,
        tokenizer: Tokenizer,
        add_special_tokens: bool = True,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        settings: VectorSettings | None = None,
    ) -> Self:
        """Return an `Embedder` for a model in memory, on the model's device.

        Args:
            settings: what a folder states; `pooling` and `normalize` replace its own.
        """
        made = super().from_parts(model, tokenizer, add_special_tokens)
        settings, pooling = settings or VectorSettings(), _check_pooling(pooling)
        made._set(replace(settings, pooling=pooling) if pooling else settings, normalize)
        return made

    def _set(self, settings: VectorSettings, normalize: bool | None) -> None:
        self.settings, self.normalize = settings, normalize
        if settings.do_lower_case:
            self.tokenizer = self.tokenizer.with_lowercase()
        self.longest = min(settings.max_seq_length or self.longest, self.longest)
        hidden = self.model.config.hidden_size
        self.width = min(settings.truncate_dim or hidden, hidden)
        self.num_cut = 0

    @property
    def pooling(self) -> Pooling:
        """The pooling of the token vectors."""
        return self.settings.pooling

    def __call__(
        self,
        texts: str | Sequence[str],
        batch_tokens: int | None = None,
        prompt_name: str | None = None,
    ) -> NDArray[np.float32]:
        """Return the vectors of one text or many, float32 [N, D], in order.

        Args:
            texts: one text or several, of any length.
            batch_tokens: the maximum tokens per batch, padding included.
            prompt_name: the prompt of the folder to put before each text; ``""``: none; default:
                its ``default_prompt_name``, or none.

        Raises:
            InputError: the folder has no prompt of this name.
        """
        rows = self.make_rows([texts] if isinstance(texts, str) else texts, prompt_name)
        vectors = np.zeros((len(rows), self.width), np.float32)
        for batch in self.make_batches(rows, batch_tokens):
            vectors[batch.numbers] = self._pool(batch).cpu().numpy()
        check_finite(torch.from_numpy(vectors), "vectors")
        return vectors

    def make_rows(self, texts: Sequence[str], prompt_name: str | None = None) -> list[list[int]]:
        """Return the ids of texts as the model's inputs, with a prompt, and cut if too long."""
        prompt, room = self.settings.find_prompt(prompt_name), self.longest - len(self.wrap([]))
        prompted = [prompt + text for text in texts]
        found = self.tokenizer.encode_batch(prompted, split_special_tokens=False)
        encoded: list[list[int]] = [one.ids.tolist() for one in found]
        self.num_cut += sum(len(ids) > room for ids in encoded)
        return [self.wrap(ids[:room]) for ids in encoded]

    def stream(
        self,
        texts: Iterable[str],
        batch_tokens: int | None = None,
        prompt_name: str | None = None,
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the vectors of an iterator of texts, in order, as [n, D] of the next n texts."""
        for block in split_blocks(texts):
            yield self(block, batch_tokens, prompt_name)

    @torch.inference_mode()
    def embed_tokens(
        self,
        texts: Sequence[str],
        layer: int | None = None,
        batch_tokens: int | None = None,
        prompt_name: str | None = None,
    ) -> list[TokenVectors]:
        """Return the tokens of each text, without special ones, and their vectors.

        Args:
            texts: texts of any length; long ones are cut.
            layer: the block after which vectors are taken, as ``hidden_states`` of transformers
                numbers them: 0 are the embeddings; default: the output of the encoder.
            batch_tokens, prompt_name: as in a call.

        Raises:
            InputError: there is no such layer.
        """
        encoder, most = self.model.encoder, self.model.config.num_hidden_layers
        if layer is not None and not 0 <= layer <= most:
            raise InputError(f"--layer = {layer} must be between 0 and {most}, the last block")
        rows, show = self.make_rows(texts, prompt_name), TokenText(self.tokenizer).show
        first = self.wrap([-1]).index(-1)
        num_added, width = len(self.wrap([])), self.model.config.hidden_size
        parts = [row[first : len(row) - num_added + first] for row in rows]
        found = [np.zeros((len(part), width), np.float32) for part in parts]
        taken: list[Tensor] = []
        blocks = [encoder.project, *encoder.blocks]
        hook = None
        if layer is not None and layer < most:
            hook = blocks[layer].register_forward_hook(lambda *given: taken.append(given[2]))
        try:
            for batch in self.make_batches(rows, batch_tokens):
                taken.clear()
                output = self.encode(batch)
                hidden = (taken[0] if hook else output).float().cpu().numpy()
                hidden = hidden.reshape(len(batch.numbers), -1, width)
                for place, number in enumerate(batch.numbers):
                    found[number] = hidden[place, first : first + len(parts[number])]
        finally:
            if hook is not None:
                hook.remove()
        named = [[show(token) for token in part] for part in parts]
        return [TokenVectors(*both) for both in zip(named, found, strict=True)]

    @torch.inference_mode()
    def _pool(self, batch: TextBatch) -> Tensor:
        (rows, longest), device = batch.ids.shape, self.device
        if self.pooling == "cls":
            vectors = self.encode(batch, torch.arange(rows, device=device) * longest).float()
        else:
            lengths = torch.tensor(batch.lengths, device=device)[:, None]
            real = (torch.arange(longest, device=device) < lengths).float()
            hidden = self.encode(batch).float().view(rows, longest, -1)
            vectors = torch.bmm(real[:, None], hidden)[:, 0] / lengths
        # In the order of the library, which scales truncated vectors on demand only.
        if self.settings.normalize and self.normalize is not False:
            vectors = F.normalize(vectors, dim=-1)
        vectors = vectors[:, : self.width]
        return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def comparable(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return vectors as `compare` takes them: of length 1 for cosines, else unchanged."""
        if self.settings.similarity_fn_name != "cosine":
            return vectors
        return F.normalize(torch.from_numpy(vectors), dim=-1).numpy()

    def compare(
        self, first: NDArray[np.float32], second: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the similarities of `comparable` vectors by the function that the folder states.

        As ``SentenceTransformer.similarity``: [N, D], [M, D] -> [N, M]. The default is the cosine;
        of distances the negative.
        """
        return compare_by(self.settings.similarity_fn_name, first, second)


def compare_by(
    name: Similarity, first: NDArray[np.float32], second: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the similarities [..., N, M] of vectors [..., N, D] and [..., M, D], see `compare`."""
    if name in ("cosine", "dot"):
        return first @ second.swapaxes(-1, -2)
    a, b = torch.from_numpy(first), torch.from_numpy(second)
    return -torch.cdist(a, b, p=2.0 if name == "euclidean" else 1.0).numpy()


def _check_pooling(pooling: Pooling | None) -> Pooling | None:
    if pooling not in (None, *get_args(Pooling)):
        raise InputError(f"pooling = {pooling} must be {' or '.join(get_args(Pooling))}.")
    return pooling


@dataclass(frozen=True)
class Match:
    """A text that was found, with its number (from 1 on), the similarity of both vectors, and the
    id of the text if ids were given.
    """

    number: int
    text: str
    score: float
    id: str | None = None


def search(
    folder: str | Path,
    queries: Texts,
    texts: Texts,
    *,
    ids: Iterable[str] | None = None,
    top: int = 10,
    pooling: Pooling | None = None,
    batch_tokens: int | None = None,
    device: str | None = None,
) -> list[list[Match]]:
    """Return the texts nearest to each query, the best first, by the cosine of their vectors (or
    the similarity that a folder of sentence-transformers states)::

        [found] = search("runs/mine", "food of snails", ["Snails eat leaves.", "It rains."], top=1)

    Texts are read in blocks, so that any number of them may be searched. Of equal scores the
    earlier text is first. Blank texts are counted, and never found. A folder's prompts ``query``
    and ``document`` are used, as by that library's ``encode_query`` and ``encode_document``.

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        queries: one query or several, or the path of a file.
        texts: the texts to search, or the path of a file: a table, or text lines.
        ids: an id for each text, which comes back with it.
        top: the number of texts to find for each query.
        pooling: ``mean`` of all tokens, or ``cls``, the first token; default: as in `Embedder`.
        batch_tokens: the maximum tokens per batch; default: chosen for the device.
        device: the device, such as ``cpu`` or ``cuda``; default: a GPU if there is one.

    Raises:
        InputError: a query is blank, there is no text, or `top`, `pooling`, `batch_tokens` or
            `device` is wrong.
        ModelFolderError: `folder` is not a model folder.
    """
    for name, value in (("top", top), ("batch-tokens", batch_tokens)):
        if value is not None and value < 1:
            raise InputError(f"--{name} = {value} must be at least 1")
    asked = list(list_texts_of(queries))
    if not asked or not all(query.strip() for query in asked):
        raise InputError("a query is missing or blank. Give some words to search for.")
    embed = Embedder(folder, device, pooling)
    vectors = embed.comparable(embed(asked, batch_tokens, QUERY))
    best: list[list[Match]] = [[] for _ in asked]
    num_texts, named = 0, None if ids is None else iter(ids)
    for block in split_blocks(list_texts_of(texts)):
        own = _take_ids(named, len(block)) or [None] * len(block)
        rows = zip(range(num_texts + 1, num_texts + len(block) + 1), block, own, strict=True)
        kept = [row for row in rows if row[1].strip()]
        num_texts += len(block)
        found = embed([text for _, text, _ in kept], batch_tokens, DOCUMENT)
        scores = embed.compare(vectors, embed.comparable(found))
        for matches, row in zip(best, scores, strict=True):
            _keep_best(matches, kept, row, top)
    if not best[0]:
        raise InputError("there is no text to search")
    return best


def _keep_best(
    matches: list[Match],
    found: Sequence[tuple[int, str, str | None]],
    scores: NDArray[np.float32],
    top: int,
) -> None:
    """Add the best of the texts found (number, text and id) to the `top` matches so far."""
    for place in np.argsort(-scores, kind="stable")[:top].tolist():
        number, text, name = found[place]
        matches.append(Match(number, text, float(scores[place]), name))
    matches.sort(key=lambda match: -match.score)
    del matches[top:]
