from maskwright.model.init import count_fused_matrices
from tests.models import small_model


def test_hidden_matrices_are_counted_by_what_is_stacked_in_them() -> None:
    counts = count_fused_matrices(small_model(preset="modernbert", num_hidden_layers=1))
    assert counts == {
        "encoder.blocks.0.attention.qkv.weight": 3,
        "encoder.blocks.0.attention.output.weight": 1,
        "encoder.blocks.0.mlp.input.weight": 2,
        "encoder.blocks.0.mlp.output.weight": 1,
    }


def test_a_plain_mlp_has_one_input_matrix() -> None:
    counts = count_fused_matrices(small_model(preset="bert", num_hidden_layers=1))
    assert counts["encoder.blocks.0.mlp.input.weight"] == 1


def test_every_fused_weight_divides_evenly() -> None:
    model = small_model(preset="eurobert")
    parameters = dict(model.named_parameters())
    for name, count in count_fused_matrices(model).items():
        assert parameters[name].shape[0] % count == 0
