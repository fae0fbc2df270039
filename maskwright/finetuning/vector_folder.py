"""The model folders that the task ``embedding`` starts from and writes.

A folder of sentence-transformers keeps its pooling and its longest input, and becomes one again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.errors import InputError
from maskwright.finetuning.network import with_dropout
from maskwright.inference.embed import Pooling
from maskwright.model.masked_lm import BareEncoder, MaskedLanguageModel
from maskwright.model_folder.card import SIMILARITY, HubMetadata
from maskwright.model_folder.folder import adapt_card, open_encoder, save_model, write_dimensions
from maskwright.model_folder.sentence_modules import find_modules, find_pooling, write_modules
from maskwright.tokenizer.files import read_max_length
from maskwright.tokenizer.tokenizer import Tokenizer

_METADATA: HubMetadata = {
    "library_name": "maskwright",
    "pipeline_tag": SIMILARITY,
    "tags": ["maskwright", "feature-extraction", SIMILARITY],
}
_VECTORS = {"mean": "the mean of its tokens", "cls": "that of its first token"}
_USE = "\n`maskwright embed` and `maskwright.Embedder` compute the vector of a text, {}.\n{}"
_HEAD = """`maskwright export --to sentence-transformers` writes a folder for that library. The head
that predicts masked tokens was not trained further.
"""
_MODULES = "sentence-transformers loads this folder.\n"


@dataclass(frozen=True)
class VectorFolder:
    """A model to train vectors with.

    Attributes:
        longest: the longest input in tokens, as the folder has it.
        is_modular: True if the folder is one of sentence-transformers.
    """

    model: MaskedLanguageModel | BareEncoder
    tokenizer: Tokenizer
    add_special_tokens: bool
    pooling: Pooling
    longest: int
    is_modular: bool

    @classmethod
    def open(cls, folder: Path, dropout: float) -> "VectorFolder":
        """Open a model with this dropout.

        Raises:
            InputError: the model detects replaced tokens.
            ModelFolderError: sentence-transformers makes its vectors with other modules or pooling.
        """
        pooling, loaded = find_pooling(folder), open_encoder(folder)
        model, weights = loaded.model, dict(loaded.model.named_parameters())
        if not isinstance(model, MaskedLanguageModel | BareEncoder):
            rule = "detects replaced tokens, but --task embedding needs a model that predicts"
            raise InputError(f"{folder} {rule} masked tokens, or an encoder. Name another.")
        model = type(model).from_tensors(with_dropout(model.config, dropout), weights)
        most = model.config.max_position_embeddings
        longest = int(min(read_max_length(folder) or most, most))
        wraps, is_modular = loaded.add_special_tokens, find_modules(folder) is not None
        return cls(model, loaded.tokenizer, wraps, pooling, longest, is_modular)

    def save(self, folder: Path, card: str, dimensions: Sequence[int], max_length: int) -> None:
        """Write the trained model.

        Args:
            dimensions: the sizes that were trained beside the whole vector.
            max_length: the longest input in training.
        """
        width = self.model.config.hidden_size

        def finish(folder: Path) -> None:
            more = _HEAD * isinstance(self.model, MaskedLanguageModel) + _MODULES * self.is_modular
            adapt_card(folder, _METADATA, _USE.format(_VECTORS[self.pooling], more))
            write_dimensions(folder, [*dimensions, width] if dimensions else [])
            if self.is_modular:
                write_modules(folder, width, self.pooling, max_length)

        wraps, model = self.add_special_tokens, self.model.cpu()
        save_model(folder, model, self.tokenizer, card, add_special_tokens=wraps, finish=finish)
