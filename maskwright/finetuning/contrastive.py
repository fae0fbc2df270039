"""Training of an encoder whose vectors are similar for texts that belong together.

The losses are in `pair_losses` and `tsdae`.
"""

# They are our own: sentence-transformers trains with the Trainer of transformers, datasets and
# accelerate, and only models of transformers' classes, unlike NeoBERT and our own family; its loss
# of TSDAE needs a causal model with cross-attention; and a text that two pairs share is a wrong
# answer in its losses, unless a sampler keeps the pairs apart.

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from maskwright.console import Pulse
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import collate
from maskwright.finetuning.loop import BestWeights, EarlyStopping, Loop, StoppedSeed
from maskwright.finetuning.metrics import VALID_LOSS, Scores, compute_metric, rank
from maskwright.finetuning.network import batch_tokens_on
from maskwright.finetuning.pair_losses import (
    compare,
    cosent_loss,
    find_same,
    matryoshka_loss,
    mine_negatives,
    multiple_negatives_loss,
    number_texts,
    overlap,
)
from maskwright.finetuning.tsdae import TsdaeDecoder, delete_tokens
from maskwright.inference.embed import Pooling
from maskwright.inference.text_model import plan_batches
from maskwright.logs import Record
from maskwright.model.classifier import pool_mean
from maskwright.model.masked_lm import BareEncoder, MaskedLanguageModel
from maskwright.tokenizer.template import ModelInput, list_added_ids
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import autocast


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts as tokens: [N] first texts and their partners.

    Attributes:
        negatives: [N] texts that do not belong to the first texts; empty if there are none.
        scores: [N] the similarity of the texts of each pair; None if all belong together.
        num_cut: the number of texts that were longer than `max_length` and were cut.
    """

    first: list[ModelInput]
    second: list[ModelInput]
    negatives: Sequence[ModelInput] = ()
    scores: Tensor | None = None
    num_cut: int = 0

    def __len__(self) -> int:
        return len(self.first)

    @property
    def sides(self) -> tuple[list[ModelInput], list[ModelInput]]:
        """The first texts and the second texts of all pairs, each [N]."""
        return self.first, self.second


class ContrastiveFitting:
    """Training on pairs, with the pooling of ``maskwright embed``.

    Afterwards the model has the weights that scored best, which may be its original ones.
    """

    def __init__(
        self,
        model: MaskedLanguageModel | BareEncoder,
        train: Pairs,
        valid: Pairs,
        tokenizer: Tokenizer,
        config: FinetuneConfig,
        log: Callable[[Record], None],
        pulse: Pulse | None = None,
        pooling: Pooling = "mean",
        stopped: StoppedSeed | None = None,
    ) -> None:
        self.model, self.train, self.valid, self.pooling = model, train, valid, pooling
        self.pad_id, self.num_added = tokenizer.pad_id, len(list_added_ids(tokenizer))
        self.config, self.log = config.resolve(len(train), model.config.hidden_size), log
        self.device = next(model.parameters()).device
        lengths = [len(a.ids) + len(b.ids) for a, b in zip(*train.sides, strict=True)]
        self.loop = Loop(self.config, lengths, config.first_seed, self.device, pulse)
        self.metric = "found" if valid.scores is None else "spearman"
        self.stopped, self.history = stopped or StoppedSeed(), list[Record]()
        self._best: Record = {}
        self._weights = BestWeights(model)
        self._stopping = EarlyStopping(self.config, self.loop.num_steps, self.metric)

    def run(self) -> Record:
        """Train until the budget is spent or early stopping ends the run; return the best record.

        The first record is of step 0, before training. If it is the best, training did not help.
        """
        loop, stopping = self.loop, self._stopping
        trained, compute_loss = nn.ModuleDict({"encoder": self.model.encoder}), self._compute_loss
        if self.config.objective == "tsdae":
            assert isinstance(self.model, MaskedLanguageModel), "the decoder has its head"
            trained["decoder"] = decoder = TsdaeDecoder(self.model)
            compute_loss = partial(self._rebuild, decoder)
        state = self.stopped.read(loop, trained, stopping, self._weights)
        if state is None:
            self._keep({"step": 0, "epoch": 0.0, "seconds": 0.0}, self.score())
        else:
            self._best, self.history = state["best"], state["history"]
            for record in self.history:
                self.log(record)
        with self.stopped.keeping(loop, stopping, self._weights, self._describe):
            for point in loop.run(compute_loss) if not stopping.has_ended else ():
                scores = self.score()
                with loop.undivided():
                    self._keep(point, scores)
                if stopping.has_ended:
                    break
        self._weights.restore()
        return self._best

    def _compute_loss(self, numbers: list[int]) -> Tensor:
        texts = [[side[number] for number in numbers] for side in self.train.sides]
        if self.train.negatives:
            texts.append([self.train.negatives[number] for number in numbers])
        with autocast(self.config.precision, self.device):
            vectors = [self._embed(column).float() for column in texts]
        sizes, scores = self.config.dimensions, self.train.scores
        if scores is not None:
            ordered = partial(cosent_loss, scores=scores[numbers].to(self.device))
            return matryoshka_loss(ordered, sizes, *vectors)
        columns = number_texts(*texts)
        same = overlap(columns[:2], columns[:2]).to(self.device)
        right = overlap(columns[:2], columns[2:]).to(self.device) if columns[2:] else None

        def loss(first: Tensor, second: Tensor, negatives: Tensor | None = None) -> Tensor:
            return multiple_negatives_loss(first, second, same, negatives, right)

        return matryoshka_loss(loss, sizes, *vectors)

    def _rebuild(self, decoder: TsdaeDecoder, numbers: list[int]) -> Tensor:
        assert isinstance(self.model, MaskedLanguageModel)
        texts = [self.train.first[number] for number in numbers]
        with autocast(self.config.precision, self.device):
            vectors = self._embed(delete_tokens(texts, self.num_added))
            return decoder(self.model, collate(texts, self.pad_id).to(self.device), vectors)

    def _keep(self, point: Record, scores: Scores) -> None:
        """Record an evaluation, and keep the weights if they are the best so far."""
        record = {"seed": self.config.first_seed, **point, **scores}
        if not self._best or rank(self.metric, record) > rank(self.metric, self._best):
            self._best = record
            self._weights.copy()
        self.history.append(record)
        self._stopping.note(point["step"], scores)
        self.loop.point = None
        self.log(record)

    def _describe(self) -> Record:
        return {"best": self._best, "history": self.history}

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """Return the loss, and the share of validation texts whose nearest neighbor is correct.

        As in the loss, other pairs that share a text are no candidates: every text is its own
        nearest neighbor. For pairs with numbers, the score is Spearman's correlation of the numbers
        with the cosines.
        """
        self.model.eval()
        first, second = (self._embed_all(side) for side in self.valid.sides)
        if self.valid.scores is not None:
            cosines = torch.cosine_similarity(first, second).double().numpy()
            spearman = compute_metric("spearman", self.valid.scores.double().numpy(), cosines)
            loss = cosent_loss(first, second, self.valid.scores)
            return {"spearman": spearman, VALID_LOSS: loss.item()}
        same = find_same(self.valid.first, self.valid.second)
        cosines = compare(first, second, same)
        ranks = (cosines >= cosines.diagonal()[:, None]).sum(1)  # from 1; equal ones come first
        return {
            "found": (ranks == 1).float().mean().item(),
            "recall_10": (ranks <= 10).float().mean().item(),
            "mrr": (1 / ranks).mean().item(),
            "candidates": len(first),
            VALID_LOSS: multiple_negatives_loss(first, second, same).item(),
        }

    @torch.no_grad()
    def mine(self) -> None:
        """Set the partner of another pair as the negative of each pair, by current vectors."""
        self.model.eval()
        first, second = (self._embed_all(side) for side in self.train.sides)
        rows = mine_negatives(first, second, number_texts(*self.train.sides))
        self.train = replace(self.train, negatives=[self.train.second[row] for row in rows])

    def _embed_all(self, inputs: Sequence[ModelInput]) -> Tensor:
        """Return vectors [N, D] on the CPU, computed in batches of similar lengths."""
        vectors = torch.zeros(len(inputs), self.model.config.hidden_size)
        lengths = [len(one.ids) for one in inputs]
        for numbers in plan_batches(lengths, batch_tokens_on(self.device)):
            vectors[numbers] = self._embed([inputs[number] for number in numbers]).float().cpu()
        return vectors

    def _embed(self, inputs: Sequence[ModelInput]) -> Tensor:
        batch = collate(inputs, self.pad_id).to(self.device)
        if self.pooling == "cls":
            first = torch.arange(len(inputs), device=self.device) * batch.context.row_length
            return self.model.encoder(batch.input_ids, batch.context, output_positions=first)
        return pool_mean(self.model.encoder(batch.input_ids, batch.context), batch.context)
