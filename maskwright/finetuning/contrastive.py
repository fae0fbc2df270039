"""Training of an encoder whose vectors are similar for texts that belong together.

R rows of a table, N negatives, T tokens, D width, V vocabulary. In sentence-transformers the losses
are named ``MultipleNegativesRankingLoss`` (here in both directions), ``CoSENTLoss``,
``MatryoshkaLoss`` and ``DenoisingAutoEncoderLoss``; a test compares the first two.
"""

# They are our own: sentence-transformers trains with the Trainer of transformers, datasets and
# accelerate, and only models of transformers' classes, unlike NeoBERT and our own family; its loss
# of TSDAE needs a causal model with cross-attention; and a text that two pairs share is a wrong
# answer in its losses, unless a sampler keeps the pairs apart.

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.console import Pulse
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import InputBatch, collate
from maskwright.finetuning.loop import BestWeights, EarlyStopping, Loop, StoppedSeed
from maskwright.finetuning.metrics import VALID_LOSS, Scores, compute_metric, rank
from maskwright.finetuning.network import batch_tokens_on
from maskwright.inference.embed import Pooling
from maskwright.inference.text_model import plan_batches
from maskwright.logs import Record
from maskwright.model.attention import SelfAttention
from maskwright.model.classifier import pool_mean
from maskwright.model.masked_lm import BareEncoder, MaskedLanguageModel
from maskwright.tokenizer.template import ModelInput, list_added_ids
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import autocast

TEMPERATURE = 0.05  # as in SimCSE, Gao et al. 2021
_DELETED = 0.6  # share of the tokens of a text, the best of the paper of TSDAE
_TOO_NEAR = 5  # nearest partners that are not used as negatives
_CHUNK = 512  # texts that are compared with all partners at once


def contrast(
    first: Tensor,
    second: Tensor,
    same: Tensor | None = None,
    negatives: Tensor | None = None,
    right: Tensor | None = None,
) -> Tensor:
    """Return the InfoNCE loss of R pairs of vectors [R, D], with in-batch negatives.

    ``-1/R Σ log softmax(cos(a_i, b_j) / temperature)_i``, the mean of both directions. van den Oord
    et al., "Representation Learning with Contrastive Predictive Coding", 2018.

    Args:
        same: [R, R] True where pairs i and j share a text, so that j is not a negative of i.
        negatives: [N, D] additional negatives of all first texts.
        right: [R, N] True where a negative shares a text with pair i, so that it is ignored.
    """
    similar = compare(first, second, same) / TEMPERATURE
    own = torch.arange(len(first), device=first.device)
    backward = F.cross_entropy(similar.T, own)
    if negatives is not None:
        wrong = F.normalize(first, dim=-1) @ F.normalize(negatives, dim=-1).T / TEMPERATURE
        wrong = wrong if right is None else wrong.masked_fill(right, float("-inf"))
        similar = torch.cat((similar, wrong), 1)
    return (F.cross_entropy(similar, own) + backward) / 2


def order(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """Return the loss of R pairs of vectors [R, D] that orders their cosines by `scores`.

    ``log(1 + Σ exp((cos_i - cos_j) / temperature))`` over all i with a smaller score than j [R].
    Su, "CoSENT", 2022.
    """
    cosines = F.cosine_similarity(first, second) / TEMPERATURE
    misplaced = cosines[:, None] - cosines[None, :]
    counted = scores[:, None] < scores[None, :]
    misplaced = misplaced.masked_fill(~counted, float("-inf")).flatten()
    return torch.cat((misplaced.new_zeros(1), misplaced)).logsumexp(0)


def nest(loss: Callable[..., Tensor], sizes: Sequence[int], *vectors: Tensor) -> Tensor:
    """Return the mean of a loss over full vectors [R, D] and their first `sizes` dimensions.

    Kusupati et al., "Matryoshka Representation Learning", 2022.
    """
    sizes = (vectors[0].shape[-1], *sizes)
    return torch.stack([loss(*(x[:, :size] for x in vectors)) for size in sizes]).mean()


def compare(first: Tensor, second: Tensor, same: Tensor | None = None) -> Tensor:
    """Return cosines [R, R] of all first texts with all partners; -inf where `same`, i != j."""
    similar = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T
    if same is None:
        return similar
    others = same & ~torch.eye(len(first), dtype=torch.bool, device=first.device)
    return similar.masked_fill(others, float("-inf"))


def find_same(first: Sequence[ModelInput], second: Sequence[ModelInput]) -> Tensor:
    """Return [R, R] bool, symmetric: True where two pairs share a text, on either side."""
    numbers = number_texts(first, second)
    return overlap(numbers, numbers)


def number_texts(*columns: Sequence[ModelInput]) -> list[Tensor]:
    """Return an id for each text of each column; equal texts have equal ids."""
    numbers: dict[tuple[int, ...], int] = {}
    return [
        torch.tensor([numbers.setdefault(tuple(one.ids), len(numbers)) for one in column])
        for column in columns
    ]


def overlap(rows: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """Return [R, N] bool: True where a row shares a text with another (`number_texts`)."""
    same = torch.zeros(len(rows[0]), len(others[0]), dtype=torch.bool)
    for ours in rows:
        for theirs in others:
            same |= ours[:, None] == theirs[None, :]
    return same


def mine_negatives(first: Tensor, second: Tensor, numbers: Sequence[Tensor]) -> list[int]:
    """Return for each first text [R, D] the row of a hard negative: a near but wrong partner.

    The nearest partners are skipped, since some of them are unlabeled positives (Karpukhin et al.,
    "Dense Passage Retrieval", 2020, use the nearest passage without an answer); partners that share
    a text are positives (`numbers`: the ids of both columns).
    """
    units, partners = F.normalize(first, dim=-1), F.normalize(second, dim=-1).T
    found: list[int] = []
    for start in range(0, len(first), _CHUNK):
        here = slice(start, start + _CHUNK)
        same = overlap([column[here] for column in numbers], numbers)
        near = (units[here] @ partners).masked_fill(same, float("-inf"))
        best = near.topk(min(_TOO_NEAR + 1, near.shape[1]), dim=1)
        last = best.values.isfinite().sum(1).clamp(min=1) - 1
        found += best.indices.gather(1, last[:, None])[:, 0].tolist()
    return found


class Decoder(nn.Module):
    """A causal decoder that rebuilds a text from its vector; it is not part of the trained model.

    Wang et al., "TSDAE", 2021. Blocks and embeddings are those of the encoder, as in the paper.
    Attention to a single vector has the weight 1 whatever the query is, so it is a linear map of
    that vector; each block adds its own map, which starts at zero, to the output of its
    self-attention (in a post-norm block of the paper, a norm separates the two). The head starts as
    a copy of the model's.
    """

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        size, self.head = model.config.hidden_size, deepcopy(model.head)
        if model.config.tie_word_embeddings:
            self.head.decoder.weight = model.encoder.embeddings.word.weight
        self.maps = nn.ModuleList(nn.Linear(size, size) for _ in model.encoder.blocks)
        for parameter in self.maps.parameters():
            nn.init.zeros_(parameter)
        self.to(model.encoder.embeddings.word.weight.device)

    def forward(self, model: MaskedLanguageModel, batch: InputBatch, vectors: Tensor) -> Tensor:
        """Return the mean cross-entropy of each token of whole texts after the first, given those
        before it and the vectors [R, D].
        """
        context = batch.context
        layers = [one for one in model.encoder.modules() if isinstance(one, SelfAttention)]
        with ExitStack() as hooks:
            for attention, linear in zip(layers, self.maps, strict=True):
                more = linear(vectors).repeat_interleave(context.row_length, 0)
                hook = attention.register_forward_hook(lambda _, __, out, more=more: out + more)
                hooks.callback(hook.remove)
            hidden = model.encoder(batch.input_ids, replace(context, is_causal=True))
        predicted = torch.nonzero((context.segment_ids == 0) & (context.positions > 0))[:, 0]
        logits = self.head(hidden.index_select(0, predicted - 1)).float()
        # A text may be a single token, of which nothing is to be predicted.
        loss = F.cross_entropy(logits, batch.input_ids[predicted], reduction="sum")
        return loss / max(1, len(predicted))


def delete_tokens(inputs: Sequence[ModelInput], num_added: int) -> list[ModelInput]:
    """Return the inputs with 40 % of their tokens, drawn by torch's generator, at least one each.

    The `num_added` special tokens of each input are kept.
    """
    left: list[ModelInput] = []
    for one in inputs:
        end = len(one.ids) - (num_added - one.first)
        count = end - one.first
        drawn = torch.randperm(count)[: max(1, round(count * (1 - _DELETED)))] + one.first
        kept = [*range(one.first), *sorted(drawn.tolist()), *range(end, len(one.ids))]
        ids, types = ([each[n] for n in kept] for each in (one.ids, one.type_ids))
        left.append(ModelInput(ids, types, one.first))
    return left


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
            trained["decoder"] = decoder = Decoder(self.model)
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
            ordered = partial(order, scores=scores[numbers].to(self.device))
            return nest(ordered, sizes, *vectors)
        columns = number_texts(*texts)
        same = overlap(columns[:2], columns[:2]).to(self.device)
        right = overlap(columns[:2], columns[2:]).to(self.device) if columns[2:] else None

        def loss(first: Tensor, second: Tensor, negatives: Tensor | None = None) -> Tensor:
            return contrast(first, second, same, negatives, right)

        return nest(loss, sizes, *vectors)

    def _rebuild(self, decoder: Decoder, numbers: list[int]) -> Tensor:
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
            loss = order(first, second, self.valid.scores)
            return {"spearman": spearman, VALID_LOSS: loss.item()}
        same = find_same(self.valid.first, self.valid.second)
        cosines = compare(first, second, same)
        ranks = (cosines >= cosines.diagonal()[:, None]).sum(1)  # from 1; equal ones come first
        return {
            "found": (ranks == 1).float().mean().item(),
            "recall_10": (ranks <= 10).float().mean().item(),
            "mrr": (1 / ranks).mean().item(),
            "candidates": len(first),
            VALID_LOSS: contrast(first, second, same).item(),
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
