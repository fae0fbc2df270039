import itertools
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from maskwright.data.batch import Batch
from maskwright.data.config import MaskingConfig
from maskwright.data.loader import LoadedStep, StepRequest
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import Parallel
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import MaskedTokensLoss
from maskwright.objectives.objective import Loss, TermSums
from maskwright.optim.build import build_optimizers
from maskwright.optim.config import OptimConfig
from maskwright.train.step import (
    StepFigures,
    clip_gradients,
    compute_gradients,
    count_predictions,
    seed_dropout,
)
from tests.helpers import random_corpus, row_source
from tests.models import small_model
from tests.train.helpers import make_trainer

CPU = torch.device("cpu")


def load(num_rows: int, micro: int, rate: float = 0.15) -> LoadedStep:
    # Not packed, so that some rows are short and hold few predictions.
    source = row_source(random_corpus(300), packed=False, masking=MaskingConfig(rate=0.3))
    return source.load(StepRequest(16, num_rows, micro, rate), DataPosition(16))


def gradients_of(model: MaskedLanguageModel, loaded: LoadedStep) -> tuple[torch.Tensor, float, int]:
    """All gradients as one vector, the loss and the number of right predictions."""
    model.zero_grad()
    objective = MaskedTokensLoss(model)
    counts = count_predictions(loaded, objective.terms)
    parallel = Parallel(objective)
    sums = compute_gradients(parallel, loaded, objective.terms, counts, CPU, "fp32")
    [(loss, correct)] = sums
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(gradients), loss.item(), int(correct.item())


@pytest.mark.parametrize("micro", [8, 1, 5])
def test_accumulation_gives_the_gradient_of_the_whole_batch(micro: int) -> None:
    model = small_model()
    whole, loss, correct = gradients_of(model, load(64, 64))
    cut, cut_loss, cut_correct = gradients_of(model, load(64, micro))
    assert len(load(64, micro).micro_batches) == -(-64 // micro)
    assert whole.abs().max().item() > 1e-3
    assert torch.allclose(whole, cut, atol=1e-6, rtol=0)
    assert cut_loss == pytest.approx(loss, abs=1e-6)
    assert cut_correct == correct


def test_the_loss_is_the_mean_over_predictions_and_not_over_micro_batches() -> None:
    model, loaded = small_model(), load(8, 1)
    counts = [batch.num_predictions for batch in loaded.micro_batches]
    assert len(set(counts)) > 1
    losses = [
        gradients_of(model, replace(loaded, micro_batches=(batch,)))[1]
        for batch in loaded.micro_batches
    ]
    _, loss, _ = gradients_of(model, loaded)
    weighted = sum(c * x for c, x in zip(counts, losses, strict=True)) / sum(counts)
    assert loss == pytest.approx(weighted, rel=1e-5)


class Twice(nn.Module):
    """Masked language modeling, and the same again for three times the weight."""

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        self.once = MaskedTokensLoss(model)
        again = replace(self.once.terms["mlm"], weight=3.0)
        self.terms = {**self.once.terms, "again": again}

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        sums = self.once(batch)
        return {**sums, "again": sums["mlm"]}


def test_terms_are_weighed_and_added_up() -> None:
    model, loaded = small_model(), load(8, 3)
    once, loss, correct = gradients_of(model, loaded)
    objective = Twice(model)
    counts = count_predictions(loaded, objective.terms)
    expected = sum(batch.num_predictions for batch in loaded.micro_batches)
    assert counts == {"mlm": expected, "again": expected}
    model.zero_grad()
    # Of "again" another rank has as many predictions as this one.
    counts["again"] *= 2
    sums = compute_gradients(Parallel(objective), loaded, objective.terms, counts, CPU, "fp32")
    both = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert torch.allclose(both, once * (1 + 3 / 2), rtol=1e-4, atol=1e-6)
    assert sums.tolist() == [
        [pytest.approx(loss, rel=1e-5), correct],
        [pytest.approx(loss / 2, rel=1e-5), correct],
    ]


def test_a_step_without_a_prediction_is_zero_and_no_nan() -> None:
    gradients, loss, correct = gradients_of(small_model(), load(4, 2, rate=0.0))
    assert (loss, correct) == (0.0, 0)
    assert torch.equal(gradients, torch.zeros_like(gradients))


@pytest.mark.parametrize(("limit", "clipped"), [(1e-3, True), (1e6, False), (0.0, False)])
def test_gradients_are_clipped_to_a_norm(limit: float, clipped: bool) -> None:
    model = small_model()
    gradients, _, _ = gradients_of(model, load(8, 8))
    seen: list[float] = []
    optimizers = build_optimizers(OptimConfig(name="adamw"), model.named_parameters(), {})

    def look(*arguments: object) -> None:
        norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        seen.append(torch.stack(norms).norm().item())

    optimizers.optimizers[0].register_step_pre_hook(look)
    norm = clip_gradients(model, limit, Parallel(MaskedTokensLoss(model))).item()
    optimizers.step()
    assert norm == pytest.approx(gradients.norm().item(), rel=1e-5)  # before clipping
    assert seen == [pytest.approx(limit if clipped else norm, rel=1e-3)]


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_device_decides_whether_a_step_is_done(name: Literal["adamw", "muon"]) -> None:
    model, config = small_model(), OptimConfig(name=name)
    num_stacked = count_stacked_matrices(model)
    optimizers = build_optimizers(config, model.named_parameters(), num_stacked)

    def snapshot() -> dict[str, torch.Tensor]:
        tensors = {**dict(model.named_parameters()), **optimizers.state_tensors()}
        return {key: tensor.detach().clone() for key, tensor in tensors.items()}

    gradients_of(model, load(8, 8))
    optimizers.step(torch.tensor(True))
    before = snapshot()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.fill_(torch.nan)
    optimizers.step(torch.tensor(False))
    after = snapshot()
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    gradients_of(model, load(8, 8))
    optimizers.step()  # nobody asks: what was said of the last step is forgotten
    moved = [key for key, tensor in snapshot().items() if not torch.equal(tensor, before[key])]
    assert len(moved) == len(before)


def test_figures_are_good_where_all_are_finite() -> None:
    figures = StepFigures.join(torch.tensor([[1.5, 3.0]]), torch.tensor(0.5))
    assert figures.values.tolist() == [1.5, 3.0, 0.5]
    assert figures.is_good
    for loss, norm in ((torch.inf, 0.5), (1.5, torch.nan)):
        assert not StepFigures.join(torch.tensor([[loss, 3.0]]), torch.tensor(norm)).is_good


def test_dropout_follows_seed_step_and_rank() -> None:
    def draw(seed: int, step: int, rank: int) -> tuple[float, ...]:
        seed_dropout(seed, step, rank)
        return tuple(torch.rand(3).tolist())

    assert draw(0, 5, 1) == draw(0, 5, 1)
    assert len({draw(*names) for names in itertools.product(range(3), repeat=3)}) == 27


@pytest.mark.parametrize("name", ["mlm", "rtd"])
def test_a_compiled_objective_is_one_graph_for_any_number_of_predictions(name: str) -> None:
    """A batch holds counts that differ from step to step; they must not become constants of it."""
    shallow = {"num_hidden_layers": 1}
    objective = make_trainer(objective={"name": name}, model=shallow).parallel.loss
    assert isinstance(objective, Loss)
    torch.compiler.reset()
    counter = CompileCounter()
    objective.compile(dynamic=False, backend=counter)
    source, position, counts = row_source(random_corpus()), DataPosition(16), set[int]()
    for _ in range(4):
        loaded = source.load(StepRequest(16, 4, 4, 0.15), position)
        [batch], position = loaded.micro_batches, loaded.next_position
        counts.add(batch.num_predictions)
        objective(batch)
    assert len(counts) > 1
    assert counter.frame_count == 1
