"""The same steps end with the same bits, with any number of threads, whatever is trained."""

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._functorch._aot_autograd.utils import make_boxed_func

from maskwright.distributed.parallel import Parallel
from maskwright.model.fused import look_up
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.config import DistillConfig
from maskwright.objectives.distillation import DistillationLoss
from maskwright.train.trainer import Trainer
from tests.models import small_model
from tests.operators import do_step
from tests.train.helpers import make_trainer
from tests.unordered import UnorderedOperators, assert_same_bits, hash_weights, threads

# Wide enough, and enough tokens, for torch to share the work of each operator.
WIDE = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64}
TRAIN = {"batch_tokens": 2048, "num_candidates": 32}
MASKING = {"rate": 0.4}
PRESET_NAMES = ("bert", "modernbert", "eurobert", "ultrabert", "deberta-v2")
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"model": {"preset": name}} for name in PRESET_NAMES},
    "all logits": {"train": {"num_candidates": 0}},
    "untied": {"model": {"tie_word_embeddings": False, "decoder_bias": True}},
    "dropout": {"model": {"preset": "bert", "mlp_dropout": 0.1}},
    "adamw": {"optim": {"name": "adamw"}},
    "average": {"train": {"ema_decay": 0.9}},
    "recomputed": {"train": {"activation_checkpointing": True}},
    "words": {"masking": {"strategy": "words"}},
    "spans": {"masking": {"strategy": "spans"}},
    "causal": {
        "model": {"preset": "modernbert", "next_token_prediction": True},
        "masking": {"causal_share": 0.5},
    },
    "pairs": {"model": {"preset": "bert"}, "pairs": "next"},
    "order": {"model": {"preset": "bert"}, "pairs": "order"},
    "replaced": {
        "model": {"preset": "electra", "embedding_size": 32},
        "objective": {"name": "rtd"},
        "train": {"num_candidates": 0},
    },
    "disentangled": {
        "model": {"preset": "electra"},
        "objective": {"name": "rtd", "disentangled_embeddings": True},
        "train": {"num_candidates": 0},
    },
}


def make(kind: str) -> Trainer:
    sections = dict(KINDS[kind])
    return make_trainer(
        train={**TRAIN, **sections.pop("train", {})},
        model={**WIDE, **sections.pop("model", {})},
        masking={**MASKING, **sections.pop("masking", {})},
        **sections,
    )


def run_steps(trainer: Trainer) -> str:
    for _ in range(2):
        do_step(trainer, lambda part: None)
    trainer.prefetcher.close()
    return hash_weights(trainer.model)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_have_the_same_bits_with_any_number_of_threads(kind: str) -> None:
    assert_same_bits(lambda: run_steps(make(kind)))


@pytest.mark.parametrize("cosine", [0.0, 1.0])
@pytest.mark.parametrize("num_candidates", [0, 32])
def test_steps_beside_a_teacher_have_the_same_bits(num_candidates: int, cosine: float) -> None:
    teacher = small_model(seed=1, **WIDE)

    def work() -> str:
        trainer = make_trainer(
            train={**TRAIN, "num_candidates": num_candidates}, model=WIDE, masking=MASKING
        )
        assert isinstance(trainer.model, MaskedLanguageModel)
        loss = DistillationLoss(trainer.model, teacher, DistillConfig(cosine=cosine))
        trainer.parallel, trainer.terms = Parallel(loss), loss.terms
        return run_steps(trainer)

    assert_same_bits(work)


def test_look_up_is_embedding_and_its_gradient_is_that_of_one_thread() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(7, (5000,), generator=generator)
    gradient = torch.randn(5000, 64, generator=generator)

    def differentiate(function: Any) -> torch.Tensor:
        table = torch.ones(7, 64, requires_grad=True)
        function(table).backward(gradient)
        assert table.grad is not None
        return table.grad

    expected = differentiate(lambda table: F.embedding(ids, table, 3))
    assert not expected[3].any()
    compiled = torch.compile(look_up, fullgraph=True, backend="aot_eager")
    for function in (look_up, compiled):
        for number in (1, 2, 4):
            with threads(number):
                found = differentiate(lambda table, f=function: f(table, ids, 3))
                assert torch.equal(found, expected)
    torch.testing.assert_close(
        differentiate(lambda table: table[ids])[:3], expected[:3], rtol=1e-5, atol=1e-4
    )


def test_unordered_operators_are_found() -> None:
    table = torch.ones(7, 3, requires_grad=True)
    with UnorderedOperators() as operators:
        table[torch.tensor([1, 1])].sum().backward()
    assert operators.found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
@pytest.mark.parametrize("preset", ["eurobert", "bert", "deberta-v2"])
def test_a_compiled_backward_pass_adds_without_atomics(preset: str) -> None:
    """Traces the graphs as the compiler does, with its decompositions, and builds nothing."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    operators: list[Counter[str]] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        calls = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        operators.append(Counter(call.split(".")[1] for call in calls if "." in call))
        return make_boxed_func(graph.forward)

    trainer = make_trainer(train=TRAIN, model={**WIDE, "preset": preset, "num_hidden_layers": 1})
    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep, decompositions=select_decomp_table())
    loss: Any = torch.compile(trainer.parallel.loss, backend=backend, dynamic=False)
    plan = trainer.schedule.step_at(trainer.progress)
    [batch] = trainer.prefetcher.take(plan.request, trainer.state.position).micro_batches
    torch.stack([term.loss for term in loss(batch).values()]).sum().backward()
    _, backward = operators
    # Words, and candidates and labels; positions and types, or distances.
    assert backward["sum_by_row"] == {"eurobert": 3, "bert": 6, "deberta-v2": 6}[preset]
    # Of the last block, at output positions: of all that are equal, one has a gradient.
    assert backward["index_put"] == 2
    assert backward["embedding_dense_backward"] == backward["_unsafe_index_put"] == 0
