"""Best-fit-decreasing packing: the assignment of segments to rows.

Segments are placed from the longest to the shortest, each in the fullest row with enough free
positions. `pack_best_fit` finds that row with a bit set over the number of free positions; its test
has a reference implementation. Which segments are packed together, a window, is decided in `rows`.
"""

from collections.abc import Sequence

Packed = list[list[int]]


def pack_best_fit(lengths: Sequence[int], capacity: int, max_segments: int) -> Packed:
    """Pack segments into rows.

    Args:
        lengths: the positions that each segment needs, in 1..capacity.
        capacity: positions in a row.
        max_segments: the maximum number of segments in a row.

    Returns:
        For each row the indices into `lengths`, in the order of placement.
    """
    rows: Packed = []
    rows_with_room: list[list[int]] = [[] for _ in range(capacity + 1)]  # by free positions
    nonempty = 0  # bit f is set where rows_with_room[f] holds a row
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[index]
        fitting = nonempty >> length
        if fitting:
            free = length + (fitting & -fitting).bit_length() - 1
            row = rows_with_room[free].pop()
            if not rows_with_room[free]:
                nonempty ^= 1 << free
            rows[row].append(index)
        else:
            free, row = capacity, len(rows)
            rows.append([index])
        left = free - length
        if left and len(rows[row]) < max_segments:
            rows_with_room[left].append(row)
            nonempty |= 1 << left
    return rows
