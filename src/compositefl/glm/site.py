"""A site: it owns a table and answers requests with sums over its samples, never with samples.

A request says everything that its answer depends on (points, means, scales), so that a site can be
asked again after a crash and needs no memory of earlier requests. Problems are numbered: 0 is the
fit to all samples, q > 0 the fit to all but those of fold q.
"""

from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from compositefl.glm import survival
from compositefl.glm.design import Design, Table, standardised
from compositefl.glm.families import Family
from compositefl.glm.folds import draw_folds
from compositefl.glm.validation import Part, score_sums

Array = np.ndarray
Sums = dict[str, Array]
Request: TypeAlias = dict[str, Any]  # what a site is asked for: arrays, numbers and words by name
# Of one problem, for its Hessian: second derivatives (n, k) or (n, k, k), for cox a `Partial`.
Curvature: TypeAlias = Any
ROWS = 2**15  # samples worked on at a time


class Site:
    """The table of one site.

    x: (n, p), an array or CSR, NaN where a value is missing. y: (n,) numbers or classes 0, 1, ...;
    for cox (n, 2), times and events.
    """

    def __init__(
        self,
        name: str,
        family: Family,
        x: Table,
        y: Array,
        weight: Array | None = None,
        offset: Array | None = None,
        classes: int = 2,
    ):
        n = x.shape[0]
        self.name, self.family, self.classes = name, family, classes
        self.x, self.y = x, np.asarray(y, float)
        self.weight = np.ones(n) if weight is None else np.asarray(weight, float)
        self.offset = np.zeros(n) if offset is None else np.asarray(offset, float)
        self.outputs = family.outputs(classes)
        self._order = np.arange(n)
        if family.coupled:
            self._order = order = np.argsort(self.y[:, 0], kind="stable")
            self.x, self.y = self.x[order], self.y[order]
            self.weight, self.offset = self.weight[order], self.offset[order]
        self.fold = np.zeros(n, int)
        self._cache: tuple[bytes, list[Part]] | None = None

    def draw(self, folds: int, seed: int) -> None:
        """Draw folds from this site's own key; classes and events are spread evenly over them."""
        labels = self.y[:, 1] if self.family.coupled else self.y
        strata = labels if self.family.response != "number" else np.zeros(len(labels))
        self.fold = draw_folds(strata, folds, seed, self.name)
        self._cache = None

    def set_folds(self, fold: Array) -> None:
        """The fold of every sample, 1, ..., K, in the order of the table."""
        self.fold = np.asarray(fold, int)[self._order]
        self._cache = None

    # --- answers --------------------------------------------------------------------------------

    @np.errstate(over="ignore")  # is told with the sum
    def describe(self, problems: int) -> Sums:
        """Rows, weights, means of the response and missing values; by problem where it matters."""
        missing = self._missing()
        x = self.x if not missing.any() else np.where(missing, 0.0, self.x)
        there = self.weight @ ~missing if missing.any() else np.full(x.shape[1], self.weight.sum())
        by_problem = self._training(problems)
        targets = self._targets()
        return {
            "rows": np.array(float(len(self.y))),
            "counted": np.array(float(np.count_nonzero(self.weight))),
            "weight": by_problem.sum(axis=1),
            "sum_x": np.asarray(x.T @ self.weight).ravel(),
            "weight_x": there,
            "missing": np.asarray(missing.sum(axis=0), float).ravel(),
            "sum_y": by_problem @ targets,
            "sum_yy": by_problem @ targets**2,
            "sum_tilt": by_problem @ self.family.tilt(self.y, self.offset),
            "saturated": np.array(self._saturated()),
        }

    @np.errstate(over="ignore")
    def spread(self, problems: int, mean: Array) -> Sums:
        """Sums of z and z^2, z = x - mean, over the training samples of each problem."""
        by_problem = self._training(problems)
        if sparse.issparse(self.x):  # the entries that are there, and -mean for all others
            z = self.x.tocsr().astype(float)
            there = z.copy()
            there.data = np.ones_like(z.data)
            z.data = z.data - mean[z.indices]
            others = by_problem.sum(axis=1)[:, None] - by_problem @ there
            return {
                "sum_z": by_problem @ z - others * mean,
                "sum_zz": by_problem @ z.power(2) + others * mean**2,
            }
        z = np.nan_to_num(self.x - mean)  # a missing value is the mean
        return {"sum_z": by_problem @ z, "sum_zz": by_problem @ (z * z)}

    def evaluate(
        self,
        points: Array,
        problems: Array,
        hessians: Array,
        columns: Array,
        mean: Array,
        scale: Array,
        intercept: bool = True,
        expected: bool = False,
    ) -> Sums:
        """Loss, gradient and Hessian sums of the problems at their points.

        points: a row for each problem: the intercepts, then the coefficients of every feature, then
            the scale where the family has one.
        hessians: for each problem whether its Hessian is wanted.
        columns: the features of the Hessians; the lower triangle of the intercepts and these.
        expected: the information that is expected in place of the Hessian (where they differ).
        """
        parts = self._parts(mean, scale)
        count, k = len(problems), self.outputs
        losses, gradients = np.zeros(count), np.zeros_like(points)
        size = (len(columns) + intercept) * k + self.family.has_scale
        found = {int(i): np.zeros((size, size)) for i in np.flatnonzero(hessians)}
        for part in parts:
            eta = self._eta(part, points)
            own: dict[int, Curvature] = {}
            residuals = []
            for i, problem in enumerate(problems):
                weight = part.weights(int(problem))
                loss, residual, curvature = self._derivatives(part, eta[i], weight, expected)
                losses[i] += loss
                residuals.append(residual)
                if hessians[i]:
                    own[i] = curvature
            gradients += self._gradients(part, residuals)
            made = self._hessians(part, list(own.values()), columns, intercept)
            for i, hessian in zip(own, made, strict=True):
                found[i] += hessian
        lower = np.tril_indices(size)
        triangles = [found[i][lower] for i in sorted(found)]
        return {
            "loss": losses,
            "gradient": gradients,
            "hessian": np.array(triangles).reshape(len(found), len(lower[0])),
        }

    def validate(
        self,
        points: Array,
        problems: Array,
        mean: Array,
        scale: Array,
        score: str = "deviance",
        centre: Array | None = None,
        spread: Array | None = None,
    ) -> Sums:
        """Sums of a score over the samples of the problems' folds (problem 0: all samples).

        centre, spread: of the linear predictors, for a histogram of them.
        """
        found: dict[int, Sums] = {}
        for problem in np.unique(problems):
            mine = np.flatnonzero(problems == problem)
            for part in self._parts(mean, scale):
                part = part.held_out(int(problem))
                eta = self._eta(part, points[mine])
                for i, one in zip(mine, eta, strict=True):
                    bins = None if centre is None or spread is None else (centre[i], spread[i])
                    made = score_sums(self.family, part, one, int(problem), score, bins)
                    old = found.get(int(i), {})
                    found[int(i)] = {name: made[name] + old.get(name, 0.0) for name in made}
        return {name: np.array([found[i][name] for i in range(len(points))]) for name in found[0]}

    # --- inside ---------------------------------------------------------------------------------

    def _saturated(self) -> float:
        """The smallest loss that any model has on all samples."""
        if self.family.coupled:
            return survival.saturated(survival.Times.of(*self.y.T), self.weight)
        return float(self.weight @ self.family.saturated(self.y))

    def _missing(self) -> Array:
        if sparse.issparse(self.x):
            return np.zeros((1, self.x.shape[1]), bool)
        return np.isnan(self.x)

    def _targets(self) -> Array:
        """The response as columns to sum: indicators of the classes, events, or numbers."""
        if self.family.coupled:
            return self.y[:, 1:]
        if self.family.response == "class":
            return (self.y[:, None] == np.arange(self.classes)).astype(float)
        return self.y[:, None]

    def _training(self, problems: int) -> Array:
        """Weights of the samples in the training set of each problem, (problems, n)."""
        out = self.fold != np.arange(problems)[:, None]
        out[0] = True
        return out * self.weight

    def _parts(self, mean: Array, scale: Array) -> list[Part]:
        key = mean.tobytes() + scale.tobytes()
        if self._cache is None or self._cache[0] != key:
            self._cache = key, self._cut(mean, scale)
        return self._cache[1]

    def _cut(self, mean: Array, scale: Array) -> list[Part]:
        n = len(self.y)
        step = n if self.family.coupled else ROWS
        parts = []
        for at in range(0, n, max(1, step)):
            rows = slice(at, at + step)
            x = self.x[rows]
            if not sparse.issparse(x) and np.isnan(x).any():
                x = np.where(np.isnan(x), mean, x)
            times = survival.Times.of(*self.y.T) if self.family.coupled else None
            data = (self.y[rows], self.weight[rows], self.offset[rows], self.fold[rows])
            parts.append(Part(standardised(x, mean, scale), *data, times))
        return parts

    def _eta(self, part: Part, points: Array) -> Array:
        """Linear predictors (problems, n, k); a scale of y comes as a column more."""
        count, k = len(points), self.outputs
        p = self.x.shape[1]
        b = points[:, k : k + p * k].reshape(count, p, k).transpose(1, 0, 2)
        eta = part.design.dot(b.reshape(p, count * k)).reshape(-1, count, k)
        eta = eta + points[:, :k] + part.offset[:, None, None]
        if self.family.has_scale:
            scale = np.broadcast_to(points[:, -1:], (len(eta), count, 1))
            eta = np.concatenate([eta, scale], axis=2)
        return eta.transpose(1, 0, 2)

    def _derivatives(
        self, part: Part, eta: Array, weight: Array, expected: bool = False
    ) -> tuple[float, Array, Curvature]:
        """(weighted loss, first derivatives, what `_hessians` needs)."""
        if part.times is not None:
            here = survival.partial_likelihood(part.times, eta[:, 0], weight)
            return here.loss, here.first[:, None], here
        made = self.family.derivatives(eta, part.y)
        loss = np.where(weight > 0, made.loss, 0.0)  # it may be infinite where nothing counts
        second = self.family.expected(made) if expected else made.second
        second = weight.reshape(-1, *[1] * (second.ndim - 1)) * second
        return float(weight @ loss), weight[:, None] * made.first, second

    def _gradients(self, part: Part, residuals: list[Array]) -> Array:
        """A row for each problem; one product with the table serves them all."""
        k, count = self.outputs, len(residuals)
        stacked = np.column_stack([residual[:, :k] for residual in residuals])
        features = part.design.transposed_dot(stacked).reshape(-1, count, k).transpose(1, 0, 2)
        total = np.array([residual.sum(axis=0) for residual in residuals])
        return np.column_stack([total[:, :k], features.reshape(count, -1), total[:, k:]])

    def _hessians(
        self, part: Part, curvatures: list[Curvature], columns: Array, intercept: bool
    ) -> list[Array]:
        """In the order of intercepts, features by classes, scale."""
        if part.times is not None:
            return [self._partial_hessian(part, here, columns) for here in curvatures]
        return self._grams(part.design, curvatures, columns, intercept)

    def _grams(
        self, design: Design, curvatures: list[Array], columns: Array, intercept: bool
    ) -> list[Array]:
        skip = 0 if intercept else 1
        if not curvatures:
            return []
        if curvatures[0].ndim == 2:
            weights = np.array([curvature[:, 0] for curvature in curvatures])
            return [gram[skip:, skip:] for gram in design.grams(weights, columns)]
        return [self._blocks(design, curvature, columns, skip) for curvature in curvatures]

    def _blocks(self, design: Design, curvature: Array, columns: Array, skip: int) -> Array:
        """With several linear predictors: a matrix for every pair of them."""
        k, m = curvature.shape[1], len(columns) + 1
        blocks = np.empty((m, k, m, k))
        i, j = np.tril_indices(k)
        made = design.grams(curvature[:, i, j].T, columns)
        for c, d, block in zip(i, j, made, strict=True):
            blocks[:, c, :, d], blocks[:, d, :, c] = block, block
        if not self.family.has_scale:
            return blocks[skip:, :, skip:].reshape((m - skip) * k, (m - skip) * k)
        # The second predictor is the scale itself: the same for all samples, without features.
        own = blocks[skip:, 0, skip:, 0]
        edge, corner = blocks[skip:, 0, 0, 1], blocks[0, 1, 0, 1]
        return np.block([[own, edge[:, None]], [edge[None, :], np.array([[corner]])]])

    def _partial_hessian(self, part: Part, here: survival.Partial, columns: Array) -> Array:
        assert part.times is not None
        z = part.design.columns(columns)
        deaths, means = survival.risk_means(part.times, here, z)
        rooted = means * np.sqrt(deaths)[:, None]
        whole = part.design.grams(here.curvature[None], columns)[0, 1:, 1:]
        return whole - rooted.T @ rooted
