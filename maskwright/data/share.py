"""One rank's part of a step, and the micro-batches that it is cut into.

All ranks plan the same rows of the same global batch; each takes every n-th one. What does not
come out even is filled up with empty rows (padding alone, no predictions), so that every rank
computes as many micro-batches of one shape: collectives stay in step, and one compiled graph is
enough. The loss knows nothing of it, because it is a sum over predictions.
"""

import numpy as np

from maskwright.data.rows import Row, Rows
from maskwright.distributed.world import World

EMPTY_ROW = Row(epoch=0, number=0, segments=())


def cut_share(rows: Rows, most_rows: int, world: World) -> list[Rows]:
    """This rank's rows of a step, as micro-batches of one size, `most_rows` at most.

    Number and size of the micro-batches depend on ``len(rows)`` alone, not on the rank.
    """
    num_rows = max(1, -(-len(rows) // world.size))
    num_batches = -(-num_rows // most_rows)
    size = -(-num_rows // num_batches)
    own = rows if world.size == 1 else rows.take(np.arange(world.rank, len(rows), world.size))
    missing = num_batches * size - len(own)
    if missing:
        own = Rows.join([own, Rows.of([EMPTY_ROW] * missing)])
    return [own.cut(first, first + size) for first in range(0, len(own), size)]
