"""The weights that a run begins with, where they come from a model that exists."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskwright.artifact.folder import describe_folder
from maskwright.artifact.weights import holds_pair_head, read_model
from maskwright.commands.config import PretrainConfig
from maskwright.commands.model_folder import find_model_folder
from maskwright.files import hash_file
from maskwright.model.config import EncoderConfig
from maskwright.model.growth import grow_vocabulary
from maskwright.model.init import draw_pair_head
from maskwright.model.pretraining import PAIR_HEAD, MaskedLanguageModel
from maskwright.tokenizer.pieces import Pieces
from maskwright.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class InitialModel:
    """A model that training begins with: what the user called it, and what its folder holds."""

    name: str
    folder: Path
    model: MaskedLanguageModel
    tokenizer: Tokenizer

    def adapt(
        self, config: EncoderConfig, tokenizer: Tokenizer, seed: int = 0
    ) -> MaskedLanguageModel:
        """The same weights in an architecture that may have a larger vocabulary.

        Args:
            config: differs from the model's own in vocabulary, in positions that are computed, in
                what only training reads, and in the head for pairs.
            tokenizer: the model's own, or one that extends it.
            seed: names the weights of that head, if the model has none.
        """
        tensors = {name: p.detach() for name, p in self.model.named_parameters()}
        if config.sentence_pair_head:
            tensors = {**draw_pair_head(config, seed), **tensors}
        else:
            tensors = {n: t for n, t in tensors.items() if not n.startswith(PAIR_HEAD)}
        new_ids = range(self.tokenizer.vocab_size, tokenizer.vocab_size)
        if new_ids or config.vocab_size > self.model.config.vocab_size:
            old = Pieces(self.tokenizer)
            pieces = {i: old.cut_token(tokenizer.token(i)) for i in new_ids}
            tensors = grow_vocabulary(tensors, config.vocab_size, pieces)
        return MaskedLanguageModel.around(config, tensors)

    def describe(self) -> dict[str, Any]:
        """What identifies it, for provenance.json."""
        weights = sorted(self.folder.glob("*.safetensors"))
        return {
            "name": self.name,
            "folder": str(self.folder.resolve()),
            "sha256": {path.name: hash_file(path) for path in weights},
            "tokenizer_fingerprint": self.tokenizer.fingerprint,
        }


def load_initial(config: PretrainConfig) -> InitialModel | None:
    """The model of ``init_from``, on the CPU; None where the run begins from scratch.

    Raises:
        InputError, ModelFolderError, TokenizerError: it cannot be had or read.
    """
    if config.init_from is None:
        return None
    folder = find_model_folder(config.init_from)
    described = describe_folder(folder)
    architecture, family = described.config, described.family
    if config.data.pairs is not None and holds_pair_head(folder, architecture, family):
        architecture = replace(architecture, sentence_pair_head=True)
    model = read_model(folder, architecture, family)
    return InitialModel(config.init_from, folder, model, described.tokenizer)
