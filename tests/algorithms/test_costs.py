"""What a round costs, counted from the algorithm itself, against the overview table."""

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
    FedMSPP,
    FedPD,
    FedProx,
    FedProxNonsmooth,
    FedSplit,
    Identity,
    Mime,
    MimeLite,
    ProxSkip,
    RandomK,
    Scaffnew,
    ScaffoldI,
    ScaffoldM,
    TopK,
)
from compositefl.core.component import replace
from compositefl.engine.accounting import round_cost

X0 = {"a": np.zeros((30, 4), np.float32), "b": np.zeros(7, np.float32)}
VECTOR = 127 * 4
# vectors down, vectors up, prox on a client (as a function of Q), prox on the server
BASIC = {
    cfl.FedNMap: (2, 1, lambda q: q, 1),
    cfl.ZA1: (1, 1, lambda q: q + 1, 1),
    cfl.FedCanon: (2, 1, lambda q: 0, 1),
    cfl.FedMiD: (1, 1, lambda q: q, 1),
    cfl.FedDA: (1, 1, lambda q: q, 1),
    cfl.Scaffold: (2, 2, lambda q: 0, 0),
    cfl.FedAvg: (1, 1, lambda q: 0, 0),
}


@pytest.mark.parametrize("kind", BASIC, ids=lambda k: k.__name__)
def test_basic_methods(kind):
    down, up, prox_client, prox_server = BASIC[kind]
    cost = round_cost(kind(local_steps=9, local_lr=0.1), X0)
    assert cost.bytes_down // VECTOR == down
    assert cost.bytes_down % VECTOR in (0, 4)  # FedDA sends its clock along
    assert cost.bytes_up == up * VECTOR
    assert cost.prox_client == prox_client(9)
    assert cost.prox_server == prox_server
    assert cost.steps == 9 and cost.gradients_step == 1 and cost.gradients_visit == 0


FURTHER = {
    FastFedDA: (3, 2, lambda q: q, 1),
    FedDR: (1, 1, lambda q: 0, 1),
    FedADMM: (1, 1, lambda q: 0, 1),
    ScaffoldI: (2, 2, lambda q: 0, 0),
    FedAvgM: (2, 1, lambda q: 0, 0),
    ScaffoldM: (3, 2, lambda q: 0, 0),
}
EXTRA = {
    FastFedDA: dict(strong_convexity=0.1, proximity=10.0),
    FedDR: dict(local_lr=0.1, eta=0.5),
    FedADMM: dict(local_lr=0.1, eta=0.5),
}


@pytest.mark.parametrize("kind", FURTHER, ids=lambda k: k.__name__)
def test_further_methods(kind):
    down, up, prox_client, prox_server = FURTHER[kind]
    cost = round_cost(kind(local_steps=9, **EXTRA.get(kind, dict(local_lr=0.1))), X0)
    clock = 4 if kind is FastFedDA else 0
    assert cost.bytes_down == down * VECTOR + clock
    assert cost.bytes_up == up * VECTOR
    assert cost.prox_client == prox_client(9)
    assert cost.prox_server == prox_server
    assert cost.steps == 9 and cost.gradients_step == 1
    assert cost.gradients_visit == (1 if kind is ScaffoldI else 0)


# vectors down and up, scalars down and up, gradients of a local step and of a visit
NINE = dict(local_steps=9, local_lr=0.1)
SMOOTH = {
    "fedprox": (FedProx(eta=1.0, **NINE), 1, 1, 0, 1, 1, 0),
    "fedmspp": (FedMSPP(eta=1.0, **NINE), 1, 1, 0, 1, 1, 0),
    "nonsmooth": (FedProxNonsmooth(local_steps=9, eta=1.0, accuracy=0.1), 1, 1, 0, 2, 1, 0),
    "fedpd": (FedPD(eta=1.0, **NINE), 1, 1, 0, 0, 1, 0),
    "feddyn": (FedDyn(mu=1.0, **NINE), 1, 1, 0, 0, 1, 0),
    "feddc": (FedDC(mu=1.0, **NINE), 2, 2, 0, 0, 1, 0),
    "fedsplit": (FedSplit(eta=1.0, **NINE), 1, 1, 0, 0, 1, 0),
    "scaffnew": (Scaffnew(**NINE), 1, 1, 0, 0, 1, 0),
    "mime-sgd": (Mime(**NINE), 2, 2, 0, 0, 2, 1),
    "mime-momentum": (Mime(optimizer="momentum", **NINE), 3, 2, 1, 0, 2, 1),
    "mime-adam": (Mime(optimizer="adam", **NINE), 4, 2, 1, 0, 2, 1),
    "mimelite-sgd": (MimeLite(**NINE), 1, 2, 0, 0, 1, 1),
    "mimelite-adam": (MimeLite(optimizer="adam", **NINE), 3, 2, 1, 0, 1, 1),
    "stem": (STEM(gradient_weight=0.1, **NINE), 2, 2, 1, 0, 2, 0),
    "vrl-sgd": (VRLSGD(**NINE), 1, 1, 0, 0, 1, 0),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_methods(name):
    algorithm, down, up, scalars_down, scalars_up, per_step, per_visit = SMOOTH[name]
    cost = round_cost(algorithm, X0)
    assert cost.bytes_down == down * VECTOR + 4 * scalars_down
    assert cost.bytes_up == up * VECTOR + 4 * scalars_up
    assert (cost.gradients_step, cost.gradients_visit, cost.steps) == (per_step, per_visit, 9)
    assert (cost.prox_client, cost.prox_server) == (0, 0)
    with_prox = round_cost(replace(algorithm, composite="server-prox"), X0)
    assert (with_prox.prox_step, with_prox.prox_server) == (0, 1)
    # The clients of these get the point before the prox and repeat it.
    assert with_prox.prox_visit == (name in ("vrl-sgd", "scaffnew", "stem"))


def test_costs_of_the_one_step_methods():
    coin = 4
    skip = round_cost(ProxSkip(lr=0.1, prox_probability=0.5), X0)
    assert (skip.bytes_down, skip.bytes_up) == (VECTOR, VECTOR + coin)
    compressed = round_cost(EControlDA(lr=0.1, compressor=TopK(13)), X0)
    assert (compressed.bytes_down, compressed.bytes_up) == (VECTOR, 13 * 8)
    assert round_cost(EControlDA(lr=0.1, compressor=RandomK(0.1)), X0).bytes_up == 13 * 8
    assert round_cost(EControlDA(lr=0.1, compressor=Identity()), X0).bytes_up == VECTOR
    for cost in (skip, compressed):
        assert (cost.prox_client, cost.prox_server) == (0, 1)
        assert (cost.steps, cost.gradients_step, cost.gradients_visit) == (1, 1, 0)
