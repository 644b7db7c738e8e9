#!/usr/bin/env python3
"""Assignment problems with the totals that SciPy's exact solver finds: tests/golden/matcher/lap.safetensors.

Owns the case list. A case is five integers; the matrix follows from them (the recipe is in tests/golden/README.md, this is
its Python form), so only the integers and the optimal total are stored. What must hold: every finite entry is exact in
float32, whoever computes it.

    make_lap.py OUT.safetensors
"""
import sys

import numpy as np
from scipy.optimize import linear_sum_assignment

from synth import draw24, save_safetensors

(UNIFORM, SIGNED, FEW_VALUES, CONSTANT, ROW_PLUS_COLUMN, EQUAL_ROWS, EQUAL_COLUMNS, FORBIDDEN, WIDE_RANGE, MOSTLY_ONE,
 DISTANCES, PRODUCT, NEGATIVE_PRODUCT, PERMUTATION, BLOCKED_LINE) = range(15)


def matrix(case, rows, cols, kind, a, b):
    """The cost matrix of one case, float32."""
    def draw(part, n):
        return draw24("lap.%d%s" % (case, part), n, 1)

    i, j = np.mgrid[0:rows, 0:cols].astype(np.int64)
    k = draw("", rows * cols).reshape(rows, cols)
    kept = (j == (i + b) % cols) if rows <= cols else (i == (j + b) % rows)     # one complete assignment
    if kind == UNIFORM:
        c = np.ldexp(k.astype(np.float64), a)
    elif kind == SIGNED:
        c = np.ldexp((k - (1 << 23)).astype(np.float64), a)
    elif kind == FEW_VALUES:
        c = (k * a >> 24) + b
    elif kind == CONSTANT:
        c = np.full((rows, cols), a)
    elif kind == ROW_PLUS_COLUMN:
        c = np.ldexp(((draw(".row", rows)[:, None] >> 2) + (draw(".col", cols)[None] >> 2) + (k >> a)).astype(np.float64), -22)
    elif kind == EQUAL_ROWS:
        c = np.ldexp(k[i // a, j].astype(np.float64), -24)
    elif kind == EQUAL_COLUMNS:
        c = np.ldexp(k[i, j // a].astype(np.float64), -24)
    elif kind == FORBIDDEN:
        shut = (draw(".shut", rows * cols).reshape(rows, cols) >> 16) < a
        c = np.where(shut & ~kept, np.inf, np.ldexp(k.astype(np.float64), -24))
    elif kind == WIDE_RANGE:
        c = np.ldexp((k + 1).astype(np.float64), (draw(".power", rows * cols).reshape(rows, cols) >> 19) - 40)
    elif kind == MOSTLY_ONE:
        c = np.where((draw(".near", rows * cols).reshape(rows, cols) >> 16) < a, np.ldexp(k.astype(np.float64), -24), 1.0)
    elif kind == DISTANCES:
        y, x = draw(".row", 2 * rows).reshape(rows, 2) >> 2, draw(".col", 2 * cols).reshape(cols, 2) >> 2
        c = np.ldexp(np.abs(y[:, None] - x[None]).sum(2).astype(np.float64), -22)
    elif kind == PRODUCT:
        c = (i + 1) * (j + 1)
    elif kind == NEGATIVE_PRODUCT:
        c = -(i + 1) * (j + 1)
    elif kind == PERMUTATION:
        c = np.where(kept, 0, 1)
    elif kind == BLOCKED_LINE:
        line = (i if rows <= cols else j) == b
        c = np.where(line, np.inf, np.ldexp(k.astype(np.float64), -24))
    c32 = np.asarray(c, np.float64).astype(np.float32)
    assert np.array_equal(c32.astype(np.float64), np.asarray(c, np.float64)), "case %d is not exact" % case
    return c32


def sizes(case, largest):
    """Rows and columns of a case: one free draw each, every fourth case square, every tenth a single line."""
    r, c = (1 + (v * largest >> 24) for v in draw24("lap.%d.size" % case, 2, 1).tolist())
    if case % 4 == 0:
        c = r
    if case % 10 == 7:
        r = 1
    if case % 10 == 9:
        c = 1
    return r, c


def parameters(case, kind, rows, cols):
    """The two integers a, b that a kind needs."""
    v = [x >> 8 for x in draw24("lap.%d.parameter" % case, 2, 1).tolist()]
    low, high = min(rows, cols), max(rows, cols)
    return {UNIFORM: ((-24, -24, -24, 100, -120)[v[0] % 5], 0),
            SIGNED: ((-20, -23, 90)[v[0] % 3], 0),
            FEW_VALUES: (2 + v[0] % 6, (0, 0, -3)[v[1] % 3]),
            CONSTANT: ((0, 1, -7, 1000003)[v[0] % 4], 0),
            ROW_PLUS_COLUMN: (8 + v[0] % 8, 0),
            EQUAL_ROWS: (2 + v[0] % 4, 0),
            EQUAL_COLUMNS: (2 + v[0] % 4, 0),
            FORBIDDEN: ((32, 128, 224, 250, 256)[v[0] % 5], v[1] % high),
            WIDE_RANGE: (0, 0),
            MOSTLY_ONE: ((8, 40, 120)[v[0] % 3], 0),
            DISTANCES: (0, 0),
            PRODUCT: (0, 0), NEGATIVE_PRODUCT: (0, 0),
            PERMUTATION: (0, v[1] % high),
            BLOCKED_LINE: (0, v[1] % low)}[kind]


def main():
    table, totals = [], []
    for case in range(2000):
        largest = 8 if case < 700 else 40 if case < 1400 else 120 if case < 1850 else 300
        rows, cols = sizes(case, largest)
        if case >= 1980:                                # the largest that is promised, and its transposes
            rows, cols = ((300, 300), (300, 100), (100, 300), (300, 299))[case % 4]
        kind = case % 15 if case < 1980 else (UNIFORM, ROW_PLUS_COLUMN, FEW_VALUES, PRODUCT, MOSTLY_ONE)[(case - 1980) // 4]
        a, b = parameters(case, kind, rows, cols)
        cost = matrix(case, rows, cols, kind, a, b)
        try:
            r, c = linear_sum_assignment(cost.astype(np.float64))
            total = float(cost[r, c].astype(np.float64).sum())
        except ValueError:
            assert kind == BLOCKED_LINE
            total = np.inf
        table.append((rows, cols, kind, a, b))
        totals.append(total)
    save_safetensors(sys.argv[1], {"cases": np.array(table, np.int32), "totals": np.array(totals, np.float64)})
    t = np.array(table)
    print(len(t), "cases,", np.bincount(t[:, 2]).tolist(), "per kind; rows > cols:", int((t[:, 0] > t[:, 1]).sum()),
          "impossible:", int(np.isinf(totals).sum()))


if __name__ == "__main__":
    main()
