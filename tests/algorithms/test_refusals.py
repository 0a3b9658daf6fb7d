"""Numbers and runs that a method's definition or theory does not cover are refused."""

import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import (
    STEM,
    VRLSGD,
    EControlDA,
    FastFedDA,
    FedADMM,
    FedAvgM,
    FedDC,
    FedDR,
    FedDyn,
    FedPD,
    FedProx,
    FedProxNonsmooth,
    FedSplit,
    Mime,
    ProxSkip,
    Scaffnew,
    ScaffoldM,
    TopK,
)
from compositefl.core.component import replace
from compositefl.core.errors import CompositeFLError
from tests.algorithms import twins
from tests.algorithms.helpers import (
    LOCAL,
    solve,
)


def test_numbers_outside_their_range_are_refused():
    local = dict(local_steps=2, local_lr=0.1)
    for make, message in {
        lambda: FedDR(eta=1.0, relaxation=2.1, **local): r"relaxation=2.1 must be in \(0, 2\]",
        lambda: FedDR(eta=0.0, **local): "eta=0.0 must be a finite number > 0",
        lambda: FedADMM(eta=-1.0, **local): "eta=-1.0",
        lambda: FedAvgM(gradient_weight=0.0, **local): "gradient_weight=0.0 must be in",
        lambda: ScaffoldM(gradient_weight=1.1, **local): "gradient_weight=1.1 must be in",
        lambda: ProxSkip(lr=0.1, prox_probability=0.0): "prox_probability=0.0 must be in",
        lambda: EControlDA(lr=0.1, control_gain=1.5): "control_gain=1.5 must be in",
        lambda: FastFedDA(local_steps=2, strong_convexity=0.0, proximity=1.0): "strong_convexity",
        lambda: FastFedDA(local_steps=0, strong_convexity=0.1, proximity=1.0): "local_steps=0",
        lambda: TopK(True): "k=True must be",
    }.items():
        with pytest.raises(cfl.CompositeFLError, match=message):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedProx(eta=0.0, **LOCAL), "eta=0.0 must be > 0"),
        (lambda: FedProx(eta=1.0, accuracy=1.0, **LOCAL), r"accuracy=1.0 must be in \[0, 1\)"),
        (
            lambda: FedProx(eta=float("inf"), composite="server-prox", **LOCAL).check(),
            "eta=inf .* use FedAvg",
        ),
        (lambda: FedPD(eta=1.0, skip=1.0, **LOCAL), r"skip=1.0 must be a probability in \[0, 1\)"),
        (lambda: FedDC(mu=0.0, **LOCAL), "mu=0.0 must be a finite number > 0"),
        (lambda: STEM(gradient_weight=1.5, **LOCAL), "gradient_weight=1.5 must be in"),
        (lambda: Mime(beta1=1.5, **LOCAL), r"beta1=1.5 must be in \[0, 1\)"),
        (lambda: Mime(beta2=1.0, **LOCAL), r"beta2=1.0 must be in \[0, 1\)"),
        (lambda: Mime(epsilon=-1.0, **LOCAL), "epsilon=-1.0 must be a finite number >= 0"),
        (lambda: Mime(optimizer="admm", **LOCAL).check(), "unknown optimizer 'admm'.*adam"),
        (
            lambda: FedProxNonsmooth(
                local_steps=5, eta=0.5, accuracy=0.1, weak_convexity=2.0
            ).check(),
            "eta=0.5 must be below 1/nu = 0.5",
        ),
        (lambda: replace(VRLSGD(**LOCAL), regularizer=cfl.L1(0.1)).check(), "without a regul"),
        (
            lambda: FedDyn(
                mu=0.2, composite="server-prox", regularizer=cfl.MCP(0.1, 3.0), **LOCAL
            ).check(),
            "1/mu=5.0 must be in",
        ),
    ],
)
def test_wrong_values_are_refused(make, message):
    with pytest.raises(CompositeFLError, match=message):
        make()


def test_runs_outside_the_theory_are_refused(lasso_problem):
    local = dict(local_steps=2, local_lr=0.1)
    mcp = cfl.MCP(0.05, 3.0)  # rho = 1/3
    for phi, algorithm, options, message in [
        (mcp, FedDR(eta=3.0, **local), {}, r"eta=3.0 must be in \(0, 1/rho\)"),
        (mcp, FedADMM(eta=3.5, **local), {}, r"eta=3.5 must be in \(0, 1/rho\)"),
        (mcp, ProxSkip(lr=0.4, prox_probability=0.1), {}, "lr/prox_probability=4.0 must be in"),
        (mcp, EControlDA(lr=0.1), {}, "needs a convex regulariser"),
        (
            mcp,
            FastFedDA(local_steps=2, strong_convexity=0.5, proximity=1.0),
            {},
            "2/strong_convexity=4.0 must be in",
        ),
        (None, EControlDA(lr=0.1, schedule="linear"), {}, "schedule='linear'"),
        (None, EControlDA(lr=0.1, output="best"), {}, "output='best'"),
        (
            None,
            EControlDA(lr=0.1, compressor=TopK(9)),
            {},
            "k=9 entries of a model that has only 8",
        ),
        (None, EControlDA(lr=0.1), dict(participation=2), "needs all clients in every round"),
        (None, EControlDA(lr=0.1), dict(dropout=0.1), "needs all clients in every round"),
        (
            None,
            FastFedDA(local_steps=2, **twins.MU),
            dict(stragglers=0.5),
            "needs all local steps of every client",
        ),
        (cfl.L1(0.1), FedAvgM(**local), {}, "defined without a regulariser"),
        (
            cfl.Box(-1.0, 1.0),
            FedAvgM(composite="subgradient", **local),
            {},
            "cannot enforce a constraint",
        ),
        (
            cfl.ByName({"*": cfl.NonNegative()}),
            cfl.FedAvg(composite="subgradient", **local),
            {},
            "cannot enforce a constraint",
        ),
        (
            cfl.L1(0.1),
            cfl.Scaffnew(composite="server-prox", **local),
            {},
            "needs random=False",
        ),
        (
            cfl.MCP(0.1, 2.0),
            cfl.FedNMap(gamma=np.float32(2.5), **local),
            {},
            r"gamma=2.5 must be in \(0, 1/rho\)",
        ),
        (cfl.L1(0.1), ScaffoldM(**local), {}, "defined without a regulariser"),
        (None, FedPD(eta=1.0, skip=True, **local), {}, "skip=True must be a number"),
        (None, FedProx(eta=1.0, accuracy=True, **local), {}, "accuracy=True must be a number"),
        (None, FedProx(eta=None, **local), {}, "eta=None must be a number"),
        (None, FedDR(eta=1.0, relaxation="1", **local), {}, "relaxation='1' must be a number"),
        (None, cfl.FedNMap(gamma=True, **local), {}, "gamma=True must be a number"),
        (None, cfl.NormSGD(lr=0.1, gamma="auto"), {}, "gamma='auto' must be a number"),
        (None, Scaffnew(random="no", **local), {}, "random='no' must be True or False"),
    ]:
        with pytest.raises(cfl.CompositeFLError, match=message):
            solve(lasso_problem, phi, algorithm, rounds=1, **options)


@pytest.mark.parametrize(
    "algorithm",
    [
        FedPD(eta=1.0, **LOCAL),
        FedSplit(eta=1.0, **LOCAL),
        Scaffnew(**LOCAL),
        VRLSGD(**LOCAL),
        STEM(gradient_weight=0.1, **LOCAL),
    ],
    ids=lambda a: type(a).__name__,
)
def test_needs_all_clients(lasso_problem, algorithm):
    for options in ({"participation": 3}, {"dropout": 0.1}, {"replacement": True}):
        with pytest.raises(CompositeFLError, match="needs all clients in every round"):
            solve(lasso_problem, None, algorithm, **options)
