"""The table of regularisers under test: each with a plain NumPy value and an independent prox.

The proxes here are slow and obvious: the textbook's cases entry by entry, bisection on an
optimality condition, or a general solver. None shares a line with the library.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import scipy.optimize
from hypothesis import strategies as st

import compositefl.regularizers as R


@dataclasses.dataclass(frozen=True)
class Case:
    """One row: a regulariser, the shape it is tested on, and NumPy twins of its value and prox."""

    name: str
    phi: Any
    shape: tuple[int, ...]
    value: Callable[[np.ndarray], float]
    prox: Callable[[np.ndarray, float], np.ndarray]
    scale: float = 3.0  # entries of z are drawn from [-scale, scale]
    other: Any = None  # the same class with other weights, for vmap over the weights

    @property
    def t_max(self) -> float:
        """Up to 0.95/rho, and 2 where rho does not bind."""
        return min(2.0, 0.95 * float(self.phi.max_prox))

    def arrays(self, scale: float | None = None) -> st.SearchStrategy[np.ndarray]:
        """Arrays of this shape; every other entry is a multiple of scale/4: zeros and ties."""
        s = self.scale if scale is None else scale
        entry = st.one_of(
            st.floats(-s, s, allow_subnormal=False), st.integers(-4, 4).map(lambda k: k * s / 4)
        )
        return hnp.arrays(np.float64, self.shape, elements=entry, fill=st.nothing())

    def ts(self) -> st.SearchStrategy[float]:
        return st.floats(0.02, 1.0).map(lambda share: share * self.t_max)


def entrywise(prox: Callable[[float, float], float]) -> Callable[[np.ndarray, float], np.ndarray]:
    """A prox of arrays from a prox of |z|: odd, entry by entry."""
    return lambda z, t: np.vectorize(lambda v: np.sign(v) * prox(abs(v), t), otypes=[float])(z)


def summed(penalty: Callable[[float], float]) -> Callable[[np.ndarray], float]:
    return lambda x: sum(penalty(abs(v)) for v in x.ravel())


def bisect(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a decreasing function."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2


# MCP and SCAD, as printed in the papers


def mcp_value(lam, theta):
    return summed(
        lambda m: lam * m - m * m / (2 * theta) if m <= theta * lam else theta * lam**2 / 2
    )


def mcp_prox(lam, theta):
    def prox(m, t):
        if m <= t * lam:
            return 0.0
        return (m - t * lam) / (1 - t / theta) if m <= theta * lam else m

    return entrywise(prox)


def scad_value(lam, a):
    def penalty(m):
        if m <= lam:
            return lam * m
        if m <= a * lam:
            return (2 * a * lam * m - m * m - lam * lam) / (2 * (a - 1))
        return lam * lam * (a + 1) / 2

    return summed(penalty)


def scad_prox(lam, a):
    def prox(m, t):
        if m <= lam * (1 + t):
            return max(m - t * lam, 0.0)
        return ((a - 1) * m - a * t * lam) / (a - 1 - t) if m <= a * lam else m

    return entrywise(prox)


def log_sum_prox(lam, theta):
    def prox(m, t):
        if m <= t * lam / theta:
            return 0.0
        return (m - theta + np.sqrt((m + theta) ** 2 - 4 * t * lam)) / 2

    return entrywise(prox)


def transformed_l1_prox(lam, a):
    def prox(m, t):
        if m <= t * lam * (a + 1) / a:
            return 0.0
        q = np.arccos(1 - 27 * t * lam * a * (a + 1) / (2 * (a + m) ** 3))
        return 2 / 3 * (a + m) * np.cos(q / 3) - 2 * a / 3 + m / 3

    return entrywise(prox)


# Groups: lists of index arrays into the raveled leaf


def rows(shape):
    return list(np.arange(np.prod(shape)).reshape(shape))


def columns(shape):
    return list(np.arange(np.prod(shape)).reshape(shape).T)


def channels(shape):
    return list(np.arange(np.prod(shape)).reshape(-1, shape[-1]).T)


def filters(shape):
    return list(np.arange(np.prod(shape)).reshape(shape[0], -1))


def by_ids(ids):
    return [np.flatnonzero(np.asarray(ids) == g) for g in sorted(set(ids))]


def group_value(l1, l2, groups, weight=lambda size: 1.0):
    def value(x):
        x = x.ravel()
        norms = sum(weight(len(g)) * np.sqrt(sum(v * v for v in x[g])) for g in groups)
        return l1 * np.abs(x).sum() + l2 * norms

    return value


def group_prox(l1, l2, groups, weight=lambda size: 1.0):
    """By bisection on n = ||p_g||: stationarity says p_j = soft(z_j, t l1) / (1 + t l2 w_g/n)."""

    def prox(z, t):
        p = np.zeros(z.size)
        for g in groups:
            soft = np.array([np.sign(v) * max(abs(v) - t * l1, 0) for v in z.ravel()[g]])
            cut = t * l2 * weight(len(g))
            norm = np.linalg.norm(soft)
            if norm > cut:
                n = bisect(lambda n: norm / (1 + cut / n) - n, 1e-300, norm)  # noqa: B023
                p[g] = soft / (1 + cut / n)
        return p.reshape(z.shape)

    return prox


# Norms and sets that couple the entries


def singular_values(x):
    return np.sqrt(np.maximum(np.linalg.eigvalsh(x.T @ x), 0))


def nuclear_prox(weight):
    """Through the eigenvectors of z^T z."""

    def prox(z, t):
        squares, v = np.linalg.eigh(z.T @ z)
        s = np.sqrt(np.maximum(squares, 1e-300))
        return z @ (v * np.maximum(1 - t * weight / s, 0)) @ v.T

    return prox


def linf_prox(weight):
    def prox(z, t):
        m = np.abs(z)
        if m.sum() <= t * weight:
            return np.zeros_like(z)
        h = bisect(lambda h: np.maximum(m - h, 0).sum() - t * weight, 0.0, m.max())
        return np.sign(z) * np.minimum(m, h)

    return prox


def l1_ball_prox(radius):
    def prox(z, t):
        m = np.abs(z)
        if m.sum() <= radius:
            return z
        h = bisect(lambda h: np.maximum(m - h, 0).sum() - radius, 0.0, m.max())
        return np.sign(z) * np.maximum(m - h, 0)

    return prox


def simplex_prox(total):
    def prox(z, t):
        u = np.sort(z.ravel())[::-1]
        level = [(u[: k + 1].sum() - total) / (k + 1) for k in range(u.size)]
        k = max(k for k in range(u.size) if u[k] > level[k])
        return np.maximum(z - level[k], 0)

    return prox


def inside(condition):
    return lambda x: 0.0 if condition(x) else np.inf


def total_variation_prox(weight):
    """Through the dual, least squares with bounds: min ||z - D^T y|| over |y_j| <= t weight."""

    def prox(z, t):
        differences = np.diff(np.eye(z.size), axis=0)
        bound = t * weight
        dual = scipy.optimize.lsq_linear(
            differences.T, z.ravel(), (-bound, bound), method="bvls", tol=1e-15
        )
        return (z.ravel() - differences.T @ dual.x).reshape(z.shape)

    return prox


def two_four_value(weight):
    def value(x):
        groups = np.abs(x).reshape(-1, 4)
        return weight * sum(np.prod(np.delete(group, j)) for group in groups for j in range(4))

    return value


def two_four_prox(weight):
    """Projected gradient descent on all entries at once; below 1/rho the problem is convex."""

    def prox(z, t):
        u = np.abs(z).reshape(-1, 4)
        w = u.copy()
        for _ in range(3000):
            e1, square = w.sum(1, keepdims=True), (w * w).sum(1, keepdims=True)
            others, squares = e1 - w, square - w * w
            w = np.maximum(w - 0.2 * (w - u + t * weight * (others**2 - squares) / 2), 0)
        return np.sign(z) * w.reshape(z.shape)

    return prox


IDS = (0, 0, 7, 3, 3, 3, 7, 3)  # groups of two, two and four entries, numbers with gaps
V = (8,)

CASES = [
    Case("zero", R.Zero(), V, lambda x: 0.0, lambda z, t: z),
    Case("l1", R.L1(0.7), V, summed(lambda m: 0.7 * m),
         entrywise(lambda m, t: max(m - 0.7 * t, 0)), other=R.L1(0.2)),
    Case("squared-l2", R.SquaredL2(0.6), V, summed(lambda m: 0.6 * m * m),
         entrywise(lambda m, t: m / (1 + 1.2 * t)), other=R.SquaredL2(0.1)),
    Case("elastic-net", R.ElasticNet(0.7, 0.6), V, summed(lambda m: 0.7 * m + 0.6 * m * m),
         entrywise(lambda m, t: max(m - 0.7 * t, 0) / (1 + 1.2 * t)), other=R.ElasticNet(0.3, 0.)),
    Case("mcp", R.MCP(0.8, 1.5), V, mcp_value(0.8, 1.5), mcp_prox(0.8, 1.5),
         other=R.MCP(0.3, 2.5)),
    Case("scad", R.SCAD(0.5, 3.7), V, scad_value(0.5, 3.7), scad_prox(0.5, 3.7),
         other=R.SCAD(0.2, 4.5)),
    Case("log-sum", R.LogSum(0.5, 0.9), V, summed(lambda m: 0.5 * np.log(1 + m / 0.9)),
         log_sum_prox(0.5, 0.9), other=R.LogSum(0.3, 1.1)),
    Case("transformed-l1", R.TransformedL1(0.4, 1.2), V,
         summed(lambda m: 0.4 * 2.2 * m / (1.2 + m)), transformed_l1_prox(0.4, 1.2),
         other=R.TransformedL1(0.1, 1.5)),
    Case("group-lasso rows", R.GroupLasso(0.7), (3, 4), group_value(0, 0.7, rows((3, 4))),
         group_prox(0, 0.7, rows((3, 4))), other=R.GroupLasso(0.2)),
    Case("group-lasso columns, sqrt-size", R.GroupLasso(0.7, "columns", "sqrt-size"), (3, 4),
         group_value(0, 0.7, columns((3, 4)), np.sqrt),
         group_prox(0, 0.7, columns((3, 4)), np.sqrt),
         other=R.GroupLasso(0.2, "columns", "sqrt-size")),
    Case("group-lasso channels", R.GroupLasso(0.7, "channels"), (2, 2, 3),
         group_value(0, 0.7, channels((2, 2, 3))), group_prox(0, 0.7, channels((2, 2, 3))),
         other=R.GroupLasso(0.2, "channels")),
    Case("group-lasso filters", R.GroupLasso(0.7, "filters"), (3, 2, 2),
         group_value(0, 0.7, filters((3, 2, 2))), group_prox(0, 0.7, filters((3, 2, 2))),
         other=R.GroupLasso(0.2, "filters")),
    Case("group-lasso ids, sqrt-size", R.GroupLasso(0.5, IDS, "sqrt-size"), V,
         group_value(0, 0.5, by_ids(IDS), np.sqrt), group_prox(0, 0.5, by_ids(IDS), np.sqrt),
         other=R.GroupLasso(0.2, IDS, "sqrt-size")),
    Case("sparse-group-lasso", R.SparseGroupLasso(0.5, 0.7), (3, 4),
         group_value(0.5, 0.7, rows((3, 4))), group_prox(0.5, 0.7, rows((3, 4))),
         other=R.SparseGroupLasso(0.1, 0.2)),
    Case("nuclear-norm", R.NuclearNorm(0.9), (4, 3),
         lambda x: 0.9 * singular_values(x).sum(), nuclear_prox(0.9), other=R.NuclearNorm(0.2)),
    Case("linf", R.LInf(2.0), V, lambda x: 2.0 * np.abs(x).max(), linf_prox(2.0),
         other=R.LInf(0.5)),
    Case("box", R.Box(-0.5, 2.0), V, inside(lambda x: np.all((x >= -0.5) & (x <= 2.0))),
         lambda z, t: np.minimum(np.maximum(z, -0.5), 2.0), other=R.Box(-1.0, 0.5)),
    Case("nonnegative", R.NonNegative(), V, inside(lambda x: np.all(x >= 0)),
         lambda z, t: np.where(z > 0, z, 0)),
    Case("l2-ball", R.L2Ball(2.0), V, inside(lambda x: np.linalg.norm(x) <= 2 + 1e-12),
         lambda z, t: z / max(1.0, np.linalg.norm(z) / 2.0), other=R.L2Ball(1.0)),
    Case("l1-ball", R.L1Ball(2.0), V, inside(lambda x: np.abs(x).sum() <= 2 + 1e-12),
         l1_ball_prox(2.0), other=R.L1Ball(1.0)),
    Case("simplex", R.Simplex(1.5), V,
         inside(lambda x: np.all(x >= 0) and abs(x.sum() - 1.5) < 1e-12),
         simplex_prox(1.5), other=R.Simplex(1.0)),
    Case("total-variation", R.TotalVariation1D(0.6), V,
         lambda x: 0.6 * np.abs(x[1:] - x[:-1]).sum(), total_variation_prox(0.6),
         other=R.TotalVariation1D(0.2)),
    Case("two-four", R.TwoFour(0.5, 2.0), (2, 8), two_four_value(0.5), two_four_prox(0.5),
         scale=2.0, other=R.TwoFour(0.2, 2.0)),
]  # fmt: skip
BY_NAME = {case.name: case for case in CASES}
