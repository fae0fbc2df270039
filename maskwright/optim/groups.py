"""The rule by which parameters are divided among the optimizers.

=================================  ==========  =======================================
parameter                          optimizer   weight decay
=================================  ==========  =======================================
norms, biases                      AdamW       none
tables: a row for each token,      AdamW       ``optim.weight_decay``
position, type or distance, with
the decoder, tied to words or not
outputs: a row for each class      AdamW       ``optim.weight_decay``
all other matrices                 Muon        ``optim.muon_weight_decay``
=================================  ==========  =======================================

Muon is for matrices that map hidden vectors to hidden vectors (Jordan et al., "Muon", 2024). Their
place in the model does not matter: ModernBERT's layer before the decoder, trained by AdamW at the
rate of the embeddings, cost 1.0 of 5.2 nats in the first 400 steps (research/experiments.md).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

_TABLES = r"embeddings\.\w+\.weight|relative\.embedding\.weight|decoder\.weight|deltas\.\w+"
_OUTPUTS = r"classifier\.weight|head\.output\.weight|head\.weigh\.weight"
_NOT_HIDDEN = re.compile(rf"(^|.*\.)({_TABLES}|{_OUTPUTS})")


class Groups(NamedTuple):
    """The parameters of a model by the rule above, in the model's order.

    Attributes:
        hidden: matrices from hidden vectors to hidden vectors.
        tables: the other matrices.
        vectors: norms and biases.
    """

    hidden: list[Tensor]
    tables: list[Tensor]
    vectors: list[Tensor]


def divide_parameters(names: Mapping[Tensor, str]) -> Groups:
    """Divide the parameters of a model, given with their names."""
    groups = Groups([], [], [])
    for parameter, name in names.items():
        if parameter.ndim < 2:
            groups.vectors.append(parameter)
        elif _NOT_HIDDEN.fullmatch(name):
            groups.tables.append(parameter)
        else:
            groups.hidden.append(parameter)
    return groups
