"""Every wrong input gets one line that names it and says what is allowed."""

import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from tests.problems import squared_loss

GOOD = dict(local_steps=2, local_lr=0.1)
CLIENTS = [(np.ones((3, 2)), np.ones(3)), (np.ones((4, 2)), np.ones(4))]


def problem(loss=squared_loss, params=None, clients=CLIENTS, **kw):
    return cfl.Problem(loss, np.zeros(2) if params is None else params, clients, **kw)


def run(phi=None, algorithm=None, **options):
    options = dict(rounds=1, progress=False) | options
    phi = cfl.L1(0.1) if phi is None else phi
    return cfl.minimize(problem(), phi, algorithm or cfl.FedNMap(**GOOD), **options)


nan = np.array([[1.0, np.nan]])
WRONG = [
    (lambda: cfl.FedNMap(local_steps=0, local_lr=0.1), r"local_steps=0 must be a whole number"),
    (lambda: cfl.FedNMap(local_steps=2.5, local_lr=0.1), r"local_steps=2.5 must be a whole"),
    (lambda: cfl.FedNMap(local_steps=2, local_lr=-0.1), r"local_lr=-0.1 must be a finite"),
    (lambda: cfl.FedNMap(server_lr=float("nan"), **GOOD), r"server_lr=nan must be a finite"),
    (lambda: cfl.L1("0.1"), r"weight='0.1' must be a number"),
    (lambda: cfl.L1(jnp.float32(-1)), r"weight=-1.0 must be a finite number >= 0"),
    (
        lambda: cfl.FedNMap(local_steps=True, local_lr=0.1),
        r"local_steps=True must be a whole number",
    ),
    (lambda: cfl.PGD(lr=0), r"lr=0 must be a finite number > 0"),
    (
        lambda: run(cfl.MCP(0.1, 2.0), cfl.FedNMap(gamma=2.0, **GOOD)),
        r"gamma=2.0 .*1/rho.*\(0, 2\)",
    ),
    (
        lambda: run(algorithm=cfl.FedNMap(gamma=-1.0, **GOOD)),
        r"gamma=-1.0 must be > 0",
    ),
    (
        lambda: run(cfl.MCP(0.1, 0.15), cfl.FedCanon(**GOOD), eval_gamma=0.1),
        r"eta_hat = .*=0.2 must be in",
    ),
    (lambda: run(cfl.MCP(0.1, 2.0), cfl.FedDA(**GOOD)), r"FedDA needs a convex regulariser"),
    (lambda: run(algorithm=cfl.FedAvg(**GOOD)), r"FedAvg is defined without a regulariser"),
    (lambda: run(algorithm=cfl.FedAvg(composite="x", **GOOD)), r"composite='x' must be one of"),
    (lambda: run(algorithm=cfl.FedMiD(prox_at="x", **GOOD)), r"prox_at='x' must be"),
    (lambda: run(cfl.MCP(0.1, 0.5), eval_gamma=1.0), r"gamma=1.0"),
    (
        lambda: cfl.FedNMap(local_steps=2, local_lr=np.array([0.1, 0.2])),
        r"local_lr has shape \(2,\); it must be a single number; cfl.sweep tries several",
    ),
    (
        lambda: run(algorithm=cfl.FedNMap(gamma=[1.0, 2.0], **GOOD)),
        r"gamma has shape \(2,\); it must be a single number",
    ),
    (
        lambda: run(algorithm=cfl.FedNMap(local_steps=[2, 3], local_lr=0.1)),
        r"local_steps has shape \(2,\); it must be a single number",
    ),
    (lambda: run(rounds=[1, 2]), r"rounds has shape \(2,\); it must be a whole number >= 1"),
    (lambda: run(tolerance=[1.0]), r"tolerance has shape \(1,\); it must be a single number"),
    (lambda: run(dropout="0.1"), r"dropout='0.1' must be a probability"),
    (
        lambda: cfl.models.linear_regression(2).problem(
            [CLIENTS[0], (CLIENTS[1][0] + 1j, np.ones(4))]
        ),
        r"client 1 has complex numbers; linear-regression takes real ones",
    ),
    (
        lambda: problem(clients=[(np.ones((3, 2)) * 1j, np.ones(3))]),
        r"returned complex\d+ numbers for data of complex128, float64; it must return a real",
    ),
    (lambda: run(rounds=0), r"rounds=0 must be a whole number >= 1"),
    (lambda: run(batch_size=0), r"batch_size=0"),
    (lambda: run(batch_size="all"), r"batch_size='all' must be a whole number"),
    (lambda: run(trials=-1), r"trials=-1"),
    (lambda: run(seed=-1), r"seed=-1 must be a whole number >= 0"),
    (lambda: run(seed=2**32), r"seed=4294967296 must be below"),
    (lambda: run(eval_every=0), r"eval_every=0"),
    (lambda: run(tolerance=0), r"tolerance=0"),
    (lambda: run(eval_gamma=0), r"eval_gamma=0"),
    (lambda: run(participation=0.0), r"participation=0.0 must be a share"),
    (lambda: run(participation=1.5), r"participation=1.5 must be a share"),
    (lambda: run(participation=3), r"participation=3 must be in 1..2"),
    (lambda: run(participation=1), r"participation=1 is ambiguous"),
    (lambda: run(participation="half"), r"participation='half' must be a number"),
    (lambda: run(algorithm=cfl.ZA1(**GOOD), participation=0.5), r"ZA1 needs all clients"),
    (lambda: run(algorithm=cfl.FedCanonII(**GOOD), participation=0.5), r"FedCanonII needs all"),
    (lambda: run(weights="equal"), r"weights='equal' must be 'uniform' or 'size'"),
    (lambda: run(dtype="float16"), r"dtype='float16' must be"),
    (lambda: run(devices=1000), r"devices=1000 but this process has"),
    (lambda: problem(clients=[]), r"clients is empty"),
    (lambda: problem(clients=[(np.ones((0, 2)), np.ones(0))]), r"client 0 has no samples"),
    (lambda: problem(clients=[*CLIENTS, (nan, np.ones(1))]), r"client 2 has NaN or infinity"),
    (lambda: problem(clients=[(np.ones((3, 2)), np.ones(2))]), r"client 0 has arrays of shapes"),
    (
        lambda: problem(clients=[*CLIENTS, (np.ones((3, 5)), np.ones(3))]),
        r"client 2 has samples of",
    ),
    (lambda: problem(clients=[*CLIENTS, np.ones((3, 2))]), r"client 2 has structure"),
    (lambda: problem(params=np.array([1, 2])), r"parameters must be floating-point"),
    (lambda: problem(params=np.array([1.0, np.inf])), r"NaN or infinity"),
    (lambda: problem(params={}), r"params has no arrays"),
    (lambda: problem(loss=lambda p, b: b[0] @ p), r"must return a scalar"),
    (lambda: problem(loss=lambda p, b: (jnp.sum(p), 1)), r"must return a scalar"),
    (lambda: problem(loss=3), r"must be a function"),
    (lambda: cfl.data.load("minst"), r"unknown dataset 'minst'; did you mean 'mnist'"),
]


@pytest.mark.parametrize("call, message", WRONG, ids=[m[:30] for _, m in WRONG])
def test_wrong_input(call, message):
    with pytest.raises(cfl.CompositeFLError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_misspelt_option_is_an_error():
    with pytest.raises(TypeError, match="round"):
        run(round=3)


def test_whole_numbers_may_be_floats_everywhere():
    whole = dict(rounds=2, seed=3, batch_size=2, eval_every=1, devices=1, client_block=1)
    asked = run(**{name: float(value) for name, value in whole.items()})
    np.testing.assert_array_equal(asked.params, run(**whole).params)
    made = problem(coupled_batch=2.0, eval_samples=2.0, eval_clients=1.0)
    assert (made.loss.size, made.eval_samples, made.eval_clients) == (2, 2, 1)
    for number in (made.loss.size, made.eval_samples, made.eval_clients):
        assert isinstance(number, int)
