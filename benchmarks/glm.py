"""Generalised linear models against R's glmnet: `benchmarks/glm.py [coefficients] [path] [folds]`.

Coefficients along whole paths, and times as ratios in one run with one thread each; the processor
time counts where others use the machine, too. Needs Rscript with the packages glmnet and survival
(Debian: r-cran-glmnet, r-cran-survival); without them only the library is measured. A9A is taken
from $COMPOSITEFL_DATA.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy starts
os.environ["OMP_NUM_THREADS"] = "1"

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from compositefl import data
from compositefl.glm.families import family
from compositefl.glm.outcome import in_original_units
from compositefl.glm.path import fit_path
from compositefl.glm.scores import cross_validate
from compositefl.glm.site import Site
from compositefl.glm.sites import LocalSites
from compositefl.glm.spec import Spec

R = """
suppressMessages({library(glmnet); library(survival)})
n <- %(n)d; p <- %(p)d; m <- %(m)d
x <- matrix(readBin("x.bin", "double", n * p), n, p)
if (%(sparse)s) x <- Matrix(x, sparse = TRUE)
y <- matrix(readBin("y.bin", "double", n * m), n, m)
side <- matrix(readBin("side.bin", "double", n * 2), n, 2)  # strata, folds
family <- "%(family)s"
if (family == "cox") y <- stratifySurv(Surv(y[, 1], y[, 2]), side[, 1]) else y <- drop(y)
if (family %%in%% c("binomial", "multinomial")) y <- factor(y)
glmnet.control(fdev = 0, devmax = 1, epsnr = 1e-14, mxitnr = 200)
took <- system.time(fit <- glmnet(x, y, family = family, alpha = %(ratio)r, thresh = %(thresh)r,
                                  maxit = 1e8))
if (%(cv)s) took <- system.time(cv.glmnet(x, y, family = family, foldid = side[, 2]))
several <- family == "multinomial"
b <- if (several) do.call(rbind, lapply(fit$beta, as.matrix)) else as.matrix(fit$beta)
a <- if (family == "cox") matrix(0, 1, length(fit$lambda)) else rbind(fit$a0)
writeBin(c(length(fit$lambda), nrow(a), took[["elapsed"]],
           took[["user.self"]] + took[["sys.self"]]), "head.out")
writeBin(c(fit$lambda, as.vector(a), as.vector(b)), "fit.out")
"""


@dataclass
class Table:
    """A data set and its family."""

    family: str
    x: np.ndarray
    y: np.ndarray
    site: np.ndarray
    ratio: float = 1.0
    classes: int = 2


@dataclass
class Fit:
    """A path: alphas, intercepts (alphas, k), coefficients (alphas, p, k); seconds."""

    alphas: np.ndarray
    intercepts: np.ndarray
    b: np.ndarray
    wall: float
    cpu: float
    rounds: float = 0.0


def glmnet(table: Table, *, thresh=1e-7, cv=False, fold=None, sparse=False) -> Fit:
    """The path of R's glmnet; with cv the times are those of cv.glmnet."""
    n, p = table.x.shape
    y = np.atleast_2d(table.y.T)
    side = np.array([table.site, np.zeros(n) if fold is None else fold], float)
    text = R % {
        "n": n,
        "p": p,
        "m": len(y),
        "family": table.family,
        "ratio": table.ratio,
        "thresh": thresh,
        "cv": str(cv).upper(),
        "sparse": str(sparse).upper(),
    }
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for stem, values in (("x", table.x.T), ("y", y), ("side", side)):
            np.ascontiguousarray(values, float).tofile(here / f"{stem}.bin")
        (here / "run.R").write_text(text)
        subprocess.run(["Rscript", "run.R"], cwd=here, check=True, timeout=1800)
        count, k, wall, cpu = np.fromfile(here / "head.out")
        values = np.fromfile(here / "fit.out")
    count, k = int(count), int(k)
    alphas, a, b = np.split(values, [count, count + k * count])
    return Fit(alphas, a.reshape(count, k), b.reshape(count, k, p).transpose(0, 2, 1), wall, cpu)


def ours(table: Table, alphas=100, *, sites=1, fold=None, tolerance=1e-9, folds=1e-6) -> Fit:
    """The path over so many sites (0: those of the table); with folds also cross-validation."""
    made = family(table.family)
    label = table.site if sites == 0 else np.arange(len(table.x)) % sites
    start = time.perf_counter(), time.process_time()
    local = []
    for name in np.unique(label):
        mine = label == name
        local.append(Site(str(name), made, table.x[mine], table.y[mine], classes=table.classes))
        if fold is not None:
            local[-1].set_folds(fold[mine])
    asked = LocalSites(local)
    spec = Spec(
        made,
        table.classes,
        alphas if isinstance(alphas, int) else list(alphas),
        table.ratio,
        folds=0 if fold is None else int(fold.max()),
        tolerance=tolerance,
        fold_tolerance=folds,
    )
    path = fit_path(spec, asked)
    if fold is not None:
        cross_validate(spec, asked, path)
    wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
    intercepts, b = in_original_units(spec, path, path.x[0])
    return Fit(path.alphas, intercepts, b, wall, cpu, asked.rounds / len(path.alphas))


def violation(table: Table, fit: Fit) -> float:
    """Largest distance of a coefficient's gradient from stationarity, relative to alpha_max.

    For a lasso of two classes, in standard units.
    """
    z = (table.x - table.x.mean(axis=0)) / np.maximum(table.x.std(axis=0), 1e-300)
    worst = 0.0
    for alpha, a, b in zip(fit.alphas, fit.intercepts, fit.b[:, :, 0], strict=True):
        residual = 1 / (1 + np.exp(-(table.x @ b + a[0]))) - table.y
        gradient = z.T @ residual / len(z)
        away = np.where(
            b != 0, np.abs(gradient + alpha * np.sign(b)), np.maximum(np.abs(gradient) - alpha, 0)
        )
        worst = max(worst, float(away.max()), abs(float(residual.mean())))
    return worst / float(fit.alphas.max())


def tables() -> dict[str, Table]:
    """Small ones for the comparison of coefficients."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 20)) * np.geomspace(1e-2, 1e2, 20)
    eta = x / x.std(axis=0) @ (rng.standard_normal(20) * (np.arange(20) % 3 == 0)) / 3
    lives, ends = rng.exponential(np.exp(-eta)), rng.exponential(2.0, 500)
    survival = np.column_stack([np.ceil(20 * np.minimum(lives, ends)) / 20, lives <= ends])

    def sites(n):
        return np.arange(n) * 3 // n

    cancer, wine = load_breast_cancer(return_X_y=True), load_wine(return_X_y=True)
    diabetes = load_diabetes(return_X_y=True, scaled=False)
    return {
        "breast_cancer, lasso": Table("binomial", *cancer, sites(569)),
        "breast_cancer, elastic net": Table("binomial", *cancer, sites(569), 0.5),
        "diabetes, lasso": Table("gaussian", *diabetes, sites(442)),
        "counts, lasso": Table("poisson", x, rng.poisson(np.exp(eta)).astype(float), sites(500)),
        "wine, three classes, lasso": Table("multinomial", *wine, sites(178), classes=3),
        "survival, one site": Table("cox", x, survival, np.zeros(500)),
        "survival, three strata": Table("cox", x, survival, sites(500)),
        "survival, elastic net": Table("cox", x, survival, sites(500), 0.5),
    }


def a9a() -> Table:
    x, y = (np.asarray(part, float) for part in data.load("a9a").train)
    return Table("binomial", x, (y > 0).astype(float), np.arange(len(y)) % 5)


def twins(x: np.ndarray) -> np.ndarray:
    """The matrix that adds up coefficients of columns that are the same up to units and sign.

    A lasso does not tell how they share a coefficient.
    """
    z = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-300)
    alike = z.T @ z / len(z)
    same = np.abs(np.abs(alike) - 1) < 1e-9
    first = np.argmax(same | np.eye(len(same), dtype=bool), axis=1)
    out = np.zeros_like(alike)
    at = np.arange(len(first))
    out[first, at] = np.where(first == at, 1.0, np.sign(alike[first, at]))
    return out


def compare(name: str, table: Table, thresh: float, sparse: bool = False) -> None:
    """Coefficients of both, in standard units, relative to the largest of the path."""
    theirs = glmnet(table, thresh=thresh, sparse=sparse)
    found = ours(table, theirs.alphas, sites=0)
    units = table.x.std(axis=0)[:, None]
    b, c = (np.einsum("ij,ajk->aik", twins(table.x), v * units) for v in (found.b, theirs.b))
    if table.family == "multinomial":  # the lasso leaves a constant of the classes open
        b, c = (v - np.median(v, axis=2, keepdims=True) for v in (b, c))
    apart = np.abs(b - c).max(axis=(1, 2)) / np.abs(c).max()
    print(
        f"{name:30} {len(found.alphas):3} alphas, {found.rounds:.1f} rounds each, "
        f"coefficients apart {apart.max():.1e} (median {np.median(apart):.1e})",
        flush=True,
    )


def note(table: Table, name: str, fit: Fit) -> Fit:
    """Print the times of a fit, and how far its path is from stationary."""
    rounds = f", {fit.rounds:.1f} rounds per alpha" if fit.rounds else ""
    accuracy = f"{violation(table, fit):.0e}"
    print(
        f"{name:44} cpu {fit.cpu:6.2f} s, wall {fit.wall:6.2f} s {accuracy:>6}{rounds}", flush=True
    )
    return fit


def ratio(text: str, mine: Fit, other: Fit) -> None:
    print(
        f"{text:44} cpu {mine.cpu / other.cpu:.2f}, wall {mine.wall / other.wall:.2f}", flush=True
    )


def path_times(table: Table, with_r: bool) -> None:
    """A path of 100 alphas on A9A."""
    pooled = note(table, "compositefl, one table", ours(table))
    loose = note(table, "the same, tolerance 1e-5", ours(table, tolerance=1e-5))
    five = note(table, "5 sites", ours(table, sites=5))
    ratio("5 sites / one table", five, pooled)
    if not with_r:
        return
    usual = note(table, "glmnet, thresh 1e-7", glmnet(table))
    ratio("path / glmnet at 1e-7", pooled, usual)
    thin = note(table, "the same, sparse matrix", glmnet(table, sparse=True))
    ratio("path at 1e-5 / glmnet at 1e-7, sparse", loose, thin)
    ratio("path / glmnet at 1e-7, sparse", pooled, thin)
    thin = note(table, "glmnet, thresh 1e-12, sparse", glmnet(table, thresh=1e-12, sparse=True))
    ratio("path / glmnet at 1e-12, sparse", pooled, thin)
    exact = note(table, "glmnet, thresh 1e-12", glmnet(table, thresh=1e-12))
    ratio("path / glmnet at 1e-12", pooled, exact)


def fold_times(table: Table, with_r: bool) -> None:
    """10-fold cross-validation on A9A. (cv.glmnet times only: its paths are those of above.)"""
    fold = np.random.default_rng(1).integers(10, size=len(table.x)) + 1
    crossed = ours(table, fold=fold, tolerance=1e-8)
    note(table, "10 folds (1e-6) and the path (1e-8)", crossed)
    if not with_r:
        return
    thin = note(table, "cv.glmnet, sparse", glmnet(table, cv=True, fold=fold, sparse=True))
    ratio("10 folds / cv.glmnet, sparse", crossed, thin)
    dense = note(table, "cv.glmnet", glmnet(table, cv=True, fold=fold))
    ratio("10 folds / cv.glmnet", crossed, dense)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["coefficients", "path", "folds"]
    has_r = shutil.which("Rscript") is not None
    if not has_r:
        print("No Rscript here: glmnet is left out (Debian: r-cran-glmnet, r-cran-survival)")
    if "coefficients" in wanted and has_r:
        for name, table in tables().items():
            compare(name, table, thresh=1e-14)
        compare("A9A, lasso, 5 sites", a9a(), thresh=1e-14, sparse=True)
    if {"path", "folds"} & set(wanted):
        print("A9A, 32,561 x 123, 100 alphas (last: violation of stationarity, share of alpha_max)")
        ours(a9a(), 3)  # warms up
    for name, measure in (("path", path_times), ("folds", fold_times)):
        if name in wanted:
            measure(a9a(), has_r)
