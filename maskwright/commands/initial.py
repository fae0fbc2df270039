"""The weights that a run begins with, where they come from a model that exists."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.artifact.folder import describe_folder
from maskwright.artifact.weights import read_model
from maskwright.commands.config import PretrainConfig
from maskwright.commands.model_folder import find_model_folder
from maskwright.files import hash_file
from maskwright.model.config import EncoderConfig
from maskwright.model.growth import grow_vocabulary
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.tokenizer.pieces import Pieces
from maskwright.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class InitialModel:
    """A model that training begins with: what the user called it, and what its folder holds."""

    name: str
    folder: Path
    model: MaskedLanguageModel
    tokenizer: Tokenizer

    def adapt(self, config: EncoderConfig, tokenizer: Tokenizer) -> MaskedLanguageModel:
        """The same weights in an architecture that may have a larger vocabulary.

        Args:
            config: differs from the model's own in vocabulary, in positions that are computed, and
                in what only training reads.
            tokenizer: the model's own, or one that extends it.
        """
        tensors = {name: p.detach() for name, p in self.model.named_parameters()}
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
    model = read_model(folder, described.config, described.family)
    return InitialModel(config.init_from, folder, model, described.tokenizer)
