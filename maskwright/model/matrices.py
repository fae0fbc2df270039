"""Which weights are hidden matrices, and which of them hold several matrices in one."""

from maskwright.model.discriminator import Network


def count_fused_matrices(model: Network) -> dict[str, int]:
    """Hidden 2-D weights by parameter name, each with the number of matrices stacked in it.

    Queries, keys and values share one weight, and so do the two inputs of a gated MLP; optimizers
    that look at a matrix as a whole (Muon) must take them apart.
    """
    fused = {"attention.qkv.weight": 3, "mlp.input.weight": 2 if model.config.gated_mlp else 1}
    return {
        name: next((n for suffix, n in fused.items() if name.endswith(suffix)), 1)
        for name, parameter in model.named_parameters()
        if "encoder.blocks." in name and parameter.ndim == 2
    }
