"""The deployed run follows the simulation, round after round."""

import jax
import numpy as np
import pytest

from compositefl.core.vector import unwrap
from tests.conftest import FULL
from tests.deployment.deployment_cases import (
    ALGORITHMS,
    AUTO,
    Local,
    gap,
    simulate,
    simulated_models,
    text,
)

AUTO_NUMBERS = ["local_lr", "local_steps", "gamma"]
METHODS = [name for name in ALGORITHMS if name not in ("mime", "auto")]


def models_after_every_round(local):
    """The model after each round of the deployed run."""
    found = []
    coordinator = local.coordinator
    report = coordinator.report

    def watch(event):
        report(event)
        if event["event"] == "round":
            found.append(unwrap(coordinator.model()))

    coordinator.report = watch
    result = coordinator.run()
    return found, result


# Another model and type are the engine's business; `make test-full` has them with all methods.
TREES = ["fednmap", "scaffold"]
CASES = [
    *[(name, "lasso", 4, "float64", 1e-10) for name in METHODS],
    *[
        (name, "mlp", 4, "float32", 1e-5)
        for name in METHODS
        if name in TREES or (FULL and name != "prox-newton")
    ],
    # The inner solver ends at a residual of eps^0.8: 7e-10 apart here, and 1.3e-5 in float32.
    *[("prox-newton", "mlp", 4, "float64", 1e-8)] * FULL,
    ("fednmap", "lasso", None, "float64", 1e-10),
]


@pytest.mark.parametrize(("algorithm", "model", "batch_size", "dtype", "tolerance"), CASES)
def test_same_trajectory(tmp_path, algorithm, model, batch_size, dtype, tolerance):
    declared = text(algorithm, model, batch_size=batch_size, dtype=dtype)
    local = Local(tmp_path, declared, model)
    models, result = models_after_every_round(local)
    assert not local.failures()
    for mine, theirs in zip(models, simulated_models(local.federation, local.data), strict=True):
        assert gap(mine, theirs) <= tolerance
    theirs = simulate(local.federation, local.data)
    assert gap(result.params, theirs.params) <= tolerance
    assert gap(result.server, theirs.server) <= tolerance
    for name in ("psi", "loss", "natural_residual_sq", "normal_map_sq", "zeros", "hoyer"):
        np.testing.assert_allclose(
            result.history[name], theirs.history[name], rtol=100 * tolerance, atol=tolerance
        )
    for name in ("round", "gradients", "prox_clients", "prox_server", "bytes_up", "bytes_down"):
        assert list(result.history[name]) == list(theirs.history[name])
    mine = jax.tree.map(lambda *a: np.stack(a), *local.committed().values())
    if jax.tree.leaves(mine):
        assert gap(unwrap(mine), theirs.clients) <= tolerance


def test_a_method_with_an_opening_exchange(tmp_path):
    local = Local(tmp_path, text("mime", batch_size=4))
    result = local.coordinator.run()
    assert not local.failures()
    assert gap(result.params, simulate(local.federation, local.data).params) <= 1e-10


def test_a_loss_that_is_no_mean_over_samples(tmp_path):
    local = Local(tmp_path, text(model="coupled", batch_size=4), "coupled")
    result = local.coordinator.run()
    theirs = simulate(local.federation, local.data)
    assert gap(result.params, theirs.params) <= 1e-10
    np.testing.assert_allclose(result.history.psi, theirs.history.psi, rtol=1e-10)
    np.testing.assert_allclose(
        result.history.normal_map_sq, theirs.history.normal_map_sq, rtol=1e-9
    )


def test_weights_by_size(tmp_path):
    local = Local(tmp_path, text(weights="size"))
    result = local.coordinator.run()
    theirs = simulate(local.federation, local.data)
    assert gap(result.params, theirs.params) <= 1e-10
    np.testing.assert_allclose(result.history.psi, theirs.history.psi, rtol=1e-10)


def test_accuracy_and_tolerance_are_those_of_the_simulation(tmp_path):
    rng = np.random.default_rng(1)
    test = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, 20).astype(np.int32)
    entries = {"rounds": 30, "eval_every": 5, "dtype": "float32"}
    long = Local(tmp_path / "long", text(model="mlp", **entries), "mlp")
    history = simulate(long.federation, long.data).history
    tolerance = 1.001 * float(history[history["round"] == 10].natural_residual_sq.iloc[0] ** 0.5)
    declared = text(model="mlp", tolerance=tolerance, **entries)
    local = Local(tmp_path, declared, "mlp", test=test)
    result = local.coordinator.run()
    theirs = simulate(local.federation, local.data, test=test)
    assert (result.stopped, result.rounds) == (theirs.stopped, theirs.rounds)
    assert result.stopped == "tolerance"
    np.testing.assert_allclose(result.history.accuracy, theirs.history.accuracy, atol=1e-6)


class Killed(BaseException):
    pass


def killed_after(rounds, events):
    """A report that ends the server's process after these rounds, once each."""

    def report(event):
        events.append(event)
        if event["event"] == "round" and event["round"] in rounds:
            rounds.remove(event["round"])
            raise Killed

    return report


def test_numbers_that_set_themselves_are_those_of_the_simulation(tmp_path):
    """Also when the server is killed, in duels and between them, and all sites restart."""
    local = Local(tmp_path, AUTO)
    theirs = simulate(local.federation, local.data)
    report, result = killed_after([1, 3, 4, 11, 20], local.events), None
    while result is None:
        local.coordinator = local.new_coordinator()
        local.coordinator.report = report
        try:
            result = local.coordinator.run()
        except Killed:
            for name in local.sites:
                local.restart(name)
    assert not local.failures()
    for name in AUTO_NUMBERS:
        np.testing.assert_allclose(result.history[name], theirs.history[name], rtol=1e-9)
    assert result.history["local_lr"].nunique() > 2  # challengers have won
    np.testing.assert_allclose(result.history.psi, theirs.history.psi, rtol=1e-9)
    assert gap(result.params, theirs.params) < 1e-8
    assert local.drift() < 1e-12
    kept = local.coordinator.steered.about()["keep"]["north"]
    folder = tmp_path / "north" / "state" / "run" / local.federation.hash[:16]
    assert len(list(folder.glob("kept-*"))) <= 2 and len(kept) <= 2
