"""The variants of `gpu-variants` are configurations and options that exist."""

from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module

import pytest

from benchmarks.gpu_speed import Setting
from benchmarks.gpu_variants import PROFILED, VARIANTS, applied


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_changes_what_it_names_and_nothing_afterwards(name: str) -> None:
    variant = replace(VARIANTS[name], context=nullcontext)  # it needs a package
    setting = Setting(variant.recipe, variant.row_length, variant.step_tokens, 0, 5, "cpu")
    config = setting.configure(variant.values)
    assert config.train.batch_tokens == variant.step_tokens
    inductor = import_module("torch._inductor.config")
    before = {option: getattr(inductor, option) for option in variant.compiler}
    with applied(variant):
        assert all(getattr(inductor, key) == value for key, value in variant.compiler.items())
    assert {option: getattr(inductor, option) for option in variant.compiler} == before


def test_what_is_profiled_is_measured() -> None:
    assert set(PROFILED) <= VARIANTS.keys()
