"""An encoder to export, whose outputs are vectors of texts, pooled as its folder states.

Shapes: B rows of L positions, N texts, D width.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.errors import ExportError
from maskwright.files import write_text
from maskwright.inference.embed import Embedder
from maskwright.interop.comparison import PYDOCS, Compute, OutputComparison, allow, pad_rows
from maskwright.interop.masked_lm_source import choose_sentences
from maskwright.interop.targets import INT8_DEFAULTS, Int8Options
from maskwright.model.masked_lm import BareEncoder
from maskwright.model_folder.families import FAMILIES, choose_headless, native_family
from maskwright.model_folder.folder import (
    CARD,
    Loaded,
    describe_folder,
    is_encoder,
    read_card,
    read_dimensions,
    save_model,
    write_dimensions,
)
from maskwright.model_folder.model_card import SIMILARITY, HubMetadata
from maskwright.model_folder.native.family import Family
from maskwright.model_folder.native.own import OWN
from maskwright.model_folder.sentence_modules import VectorSettings, find_modules, write_modules

VECTORS = "sentence_embedding"  # the name of this output in optimum, too
_POOLINGS = {"mean": "the mean of its tokens", "cls": "that of its first token"}


class PooledEncoder(nn.Module):
    """An encoder and how its outputs become vectors."""

    def __init__(self, model: BareEncoder, settings: VectorSettings) -> None:
        super().__init__()
        self.config, self.encoder, self.settings = model.config, model.encoder, settings

    def pool(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the vectors of padded rows: [B, L, D], [B, L] -> [B, D]."""
        if self.settings.pooling == "cls":
            vectors = hidden[:, 0]
        else:
            real = attention_mask[:, :, None].to(hidden.dtype)
            vectors = (hidden * real).sum(1) / real.sum(1).clamp(min=1)
        vectors = F.normalize(vectors, dim=-1) if self.settings.normalize else vectors
        return vectors[:, : self.settings.truncate_dim]


class VectorSource:
    """An encoder to export for its vectors; raises as `Embedder` does.

    Args:
        data: a prepared folder with held-out text; None for the built-in texts.
        int8: settings of an export to int8.

    Attributes:
        encoder: the model without its heads.
        model: the same with its pooling, as graphs compute it.
        settings: what the folder states, with its longest input.
        root: the folder that sentence-transformers loads.
    """

    output_shape = "[batch, width], and `token_embeddings` [batch, length, width]"
    example_text = "A sentence."

    def __init__(self, folder: Path, data: Path | None, int8: Int8Options = INT8_DEFAULTS) -> None:
        self.embedder, self.card = Embedder(folder, "cpu"), read_card(folder)
        self.data, self.int8, self.dimensions = data, int8, read_dimensions(folder)
        self.root = find_modules(folder) or folder
        self.texts_from = PYDOCS if data is None else data.name
        self.max_length = self.embedder.longest
        self.settings = replace(self.embedder.settings, max_seq_length=self.max_length)
        tokenizer, wraps = self.embedder.tokenizer, len(self.embedder.wrap([])) > 0
        model = self.embedder.model
        self.has_head = not isinstance(model, BareEncoder)
        weights = dict(model.encoder.named_parameters(prefix="encoder"))
        config = replace(model.config, sentence_pair_head=False)
        self.encoder = BareEncoder.from_tensors(config, weights).eval()
        self.loaded: Loaded[Any] = Loaded(self.encoder, tokenizer, wraps)
        # Prepared text was encoded by the folder's tokenizer, before `do_lower_case`.
        self._stored = replace(self.loaded, tokenizer=describe_folder(folder).tokenizer)
        self.model = PooledEncoder(self.encoder, self.settings)
        self.metadata: HubMetadata = {
            "library_name": "maskwright",
            "pipeline_tag": SIMILARITY,
            "tags": ["maskwright", "feature-extraction", SIMILARITY],
        }

    def find_family(self) -> tuple[Family | None, str]:
        """Return the transformers family of the encoder, or None and the reason."""
        config = self.encoder.config
        family = FAMILIES.get(config.model_type or "", OWN)
        found, reason = choose_headless(config, family, OWN)
        return (found, "") if found is not OWN else (None, reason or native_family(config)[1])

    @property
    def description(self) -> str:
        """The computation of a text's vector in words, for cards."""
        said = [_POOLINGS[self.settings.pooling]]
        said += ["scaled to length 1"] * self.settings.normalize
        if self.settings.truncate_dim is not None:
            said.append(f"the first {self.settings.truncate_dim} dimensions")
        return ", ".join(said)

    @property
    def aim(self) -> str:
        """Sentences for the card: the prompts, and whether the model was trained for vectors."""
        prompt = self.settings.find_prompt()
        said = f"Put `{prompt}` before each text. " * bool(prompt)
        if _is_trained(self.card) or (self.settings.is_stated and not self.has_head):
            aim = "The model is trained to give similar vectors to texts that belong together."
            return f"{said}{aim}"
        rule = "The model predicts masked words: fine-tune it if vectors should show similarity."
        return f"{said}{rule}"

    def save(self, folder: Path, **more: Any) -> None:
        """Write the model folder of the encoder, with the model's own card.

        Args:
            more: further entries of ``sentence_bert_config.json``.
        """
        save_model(
            folder,
            model=self.encoder,
            tokenizer=self.loaded.tokenizer,
            add_special_tokens=self.loaded.add_special_tokens,
            max_length=self.max_length,
        )
        write_dimensions(folder, self.dimensions)
        write_modules(folder, self.encoder.config.hidden_size, self.settings, **more)
        if self.card is not None:
            write_text(folder / CARD, self.card)

    def choose_texts(self) -> list[str]:
        """Return the texts of the comparison, one of them longer than the longest input."""
        texts = choose_sentences(self._stored, self.data, mask_words=False).texts
        return [*texts, " ".join(texts)]

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts by maskwright: [N, D]."""
        return self.embedder(texts)

    def compare_vectors(
        self, ours: NDArray[np.float32], theirs: NDArray[np.float32], judge: str
    ) -> OutputComparison:
        """Compare vectors [N, D] of `choose_texts` with those of the library that judges them."""
        largest, scale = np.abs(ours - theirs).max().item(), np.abs(theirs).max().item()
        num_tokens = sum(map(len, self.embedder.make_rows(self.choose_texts())))
        what = f"sentence vectors (judge: {judge})"
        return OutputComparison(what, largest, allow(scale), len(ours), num_tokens)

    @torch.no_grad()
    def run(self, compute: Compute, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of texts by a graph."""
        pad_id, rows = self.loaded.tokenizer.pad_id, self.embedder.make_rows(texts)
        # Two rows in a batch, so that there is padding.
        batches = (pad_rows(rows[first : first + 2], pad_id) for first in range(0, len(rows), 2))
        return torch.cat([compute(*batch) for batch in batches]).numpy()


def _is_trained(card: str | None) -> bool:
    return f"\npipeline_tag: {SIMILARITY}\n" in (card or "")


def gives_vectors(folder: Path) -> bool:
    """Return True if a model was made for vectors: it has no head, or its card says so."""
    return is_encoder(folder) or _is_trained(read_card(folder))


def need_logits(source: object, to: str) -> None:
    """Raise ExportError if a target takes logits, and a source has vectors."""
    if isinstance(source, VectorSource):
        raise ExportError(
            f"--to {to} needs a model that predicts masked tokens or labels, but this one has no "
            "head or is trained for vectors. Use --to sentence-transformers, onnx or openvino."
        )
