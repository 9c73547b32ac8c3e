"""Tables with given sums: iterative proportional fitting, and rounding that keeps whole sums.

A table is sparse: cells, each in one row and one column. Fitting finds the table nearest to a prior
in relative entropy; rounding makes its cells whole at random.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import block_array, coo_array, eye_array

from evenline.city.model import Floats

ROUNDS = 2_000
_CLOSE = 1e-6  # where fitting ends
_WHOLE = 1e-9  # nearer to a whole number than this, a cell is one
# Prices of rounding a cell beyond the next whole number, and of a sum by column that is missed.
_FARTHER, _MISSED = 1e2, 1e6

Indices = npt.NDArray[np.intp]


def fitted(
    prior: Floats,
    row: Indices,
    column: Indices,
    rows: Floats,
    columns: Floats,
    rounds: int = ROUNDS,
    close: float = _CLOSE,
) -> Floats:
    """Scale the cells of a sparse table to its sums by row and by column, in turn.

    Sums by row are met at the end, those by column as far as they can be in so many rounds, or
    until they are close.
    """
    cells = prior.astype(np.float64)
    for _ in range(rounds):
        for line, sums in ((column, columns), (row, rows)):
            reached = np.bincount(line, cells, len(sums)).astype(np.float64)
            cells = (
                cells * np.divide(sums, reached, out=np.zeros(len(sums)), where=reached > 0)[line]
            )
        if np.abs(np.bincount(column, cells, len(columns)) - columns).max(initial=0.0) < close:
            break
    return cells


def rounded(
    cells: Floats,
    row: Indices,
    column: Indices,
    rows: Floats,
    columns: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Round each cell up or down at random, so that whole sums by row and by column stay.

    Independent rounding solves a linear programme; with the sums in it, its vertices are still
    whole. Sums by row must be met. A cell moves farther only where fitting had not ended, and a sum
    by column is missed only where no whole numbers meet it.
    """
    floor = np.floor(cells + _WHOLE)
    part = cells - floor
    split, every = np.flatnonzero(part > _WHOLE), np.arange(len(cells))
    worth = np.log(part[split]) - np.log1p(-part[split]) + rng.logistic(size=len(split))
    cell = np.concatenate([split, every, every])  # up by a part, farther up, down
    sign = np.repeat([1.0, 1.0, -1.0], [len(split), len(every), len(every)])
    by_row, by_column = (
        coo_array((sign, (line[cell], np.arange(len(cell)))), (len(sums), len(cell)))
        for line, sums in ((row, rows), (column, columns))
    )
    gap = eye_array(len(columns))
    prices = -worth, np.full(2 * len(cells), _FARTHER), np.full(2 * len(columns), _MISSED)
    most = (
        np.ones(len(split)),
        np.full(len(cells), np.inf),
        floor,
        np.full(2 * len(columns), np.inf),
    )
    left = [s - np.bincount(line, floor, len(s)) for line, s in ((row, rows), (column, columns))]
    solution = linprog(
        np.concatenate(prices),
        A_eq=block_array([[by_row, None, None], [by_column, -gap, gap]]),
        b_eq=np.rint(np.concatenate(left)),
        bounds=[(0.0, limit) for limit in np.concatenate(most).tolist()],
        method="highs-ds",  # ends at a vertex
    )
    assert solution.success, solution.message  # whatever keeps the rows is a solution
    np.add.at(floor, cell, np.rint(sign * solution.x[: len(cell)]))
    return floor
