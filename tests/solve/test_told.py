"""What a run tells of itself: before it starts and when it has ended."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from compositefl.solve._minimize import cautions
from compositefl.solve.options import Options
from tests.problems import lasso

QUIET = dict(progress=False, weights="uniform")
ALGORITHM = cfl.FedNMap(local_steps=2, local_lr=0.05)


def told(problem, phi, algorithm, **options):
    """The result and the warnings of a run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = cfl.minimize(problem, phi, algorithm, **QUIET | options)
    return result, [str(w.message) for w in caught]


def flat_far_away(x, batch):
    """Rises with a slope that vanishes: far from the start its gradient is 0 to rounding."""
    (a,) = batch
    return np.float32(1e3) * (1 - 1 / (1 + (a * x[0] ** 2).mean()))


def test_psi_above_its_start_is_never_converged():
    problem = cfl.Problem(flat_far_away, np.array([0.3]), [(np.ones(3),)] * 2)
    result, said = told(problem, None, cfl.PGD(lr=1e6), rounds=12, eval_every=1, tolerance=1e-3)
    last = result.history.iloc[-1]
    assert last.natural_residual_sq == 0 and last.psi > 900 > result.history.psi[0]
    assert result.stopped == "rounds" and not result.converged and result.ended_badly
    assert len(said) == 1 and "psi 1000, above its start 82.57" in said[0]
    assert "above its start" in repr(result) and "not converged" in result.summary()


def test_a_loss_without_a_lower_bound_is_told():
    """In float32 its residual is zero where x is so large that a step is lost in rounding."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(30, 3)),) for _ in range(3)]
    problem = cfl.Problem(lambda x, batch: (10 * batch[0] @ x).mean(), np.zeros(3), clients)
    result, said = told(problem, cfl.L1(0.1), None, rounds=100, tolerance=1e-3)
    assert not result.converged and result.ended_badly
    assert any("as if it had no lower bound" in sentence for sentence in said)


def test_a_start_where_the_loss_is_no_number_is_refused():
    def loss(x, batch):
        return jnp.mean(jnp.log(batch[0] @ x - 1))

    problem = cfl.Problem(loss, np.zeros(2), [(np.ones((3, 2)),)] * 2)
    with pytest.raises(cfl.CompositeFLError, match="the loss is NaN at the start"):
        cfl.minimize(problem, None, cfl.PGD(lr=0.1), rounds=5, **QUIET)


@pytest.mark.parametrize("method", [cfl.PGD(lr=0.1), cfl.FedNMap()], ids=["pgd", "auto"])
def test_a_start_where_the_gradient_is_not_finite_is_told(method):
    """The root is 0 at 0, its slope infinite; steps of no size help."""

    def loss(x, batch):
        return jnp.mean(jnp.sqrt(jnp.abs(batch[0] @ x)))

    problem = cfl.Problem(loss, np.zeros(2), [(np.ones((3, 2)),)] * 2)
    with pytest.warns(cfl.ConvergenceWarning, match="The gradient is not finite at the start"):
        result = cfl.minimize(problem, None, method, rounds=5, **QUIET)
    assert result.ended_badly and "Smaller step" not in result.summary()


def test_features_of_different_scale_are_told_at_every_end():
    """A small residual beside that of the start is no sign of a solution."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 3)) * [1.0, 1.0, 5e4]
    y = x @ [1.0, -2.0, 1e-4]
    problem = cfl.models.linear_regression(3).problem([(x[i::3], y[i::3]) for i in range(3)])
    for _ in range(2):  # the warning before the run comes once, the sentence always
        result, said = told(problem, None, cfl.FedNMap(), rounds=100)
        residual = result.history.natural_residual_sq
        assert residual.iloc[-1] < 1e-6 * residual.iloc[0] and result.history.psi.iloc[-1] > 0.1
        assert not result.converged and "Columns 1 and 2 of x differ" in result.summary()
    assert not any(sentence.startswith("Columns") for sentence in said)
    assert cfl.minimize(problem, None, rounds=20, dtype="float64", **QUIET).converged  # Hessians


def test_separable_classes_end_with_all_samples_fitted():
    """Their Hessian vanishes to rounding: the method of Newton then stays where it is."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(20, 4)) + 4, rng.normal(size=(20, 4)) - 4])
    clients = [(x[i::4], np.repeat([1, 0], 5)) for i in range(4)]
    problem = cfl.models.logistic_regression(4).problem(clients)
    result, _ = told(problem, None, None, rounds=120)
    assert not any(result.diverged) and np.isfinite(result.params["dense0"]["kernel"]).all()
    assert "every sample is fitted, perhaps by numbers that would grow" in result.summary()


def test_the_round_limit_before_the_tolerance(lasso_problem):
    slow = cfl.FedNMap(gamma=1.0, local_steps=2, local_lr=0.01)
    with pytest.warns(cfl.ConvergenceWarning, match=r"still falling .* more rounds at this pace"):
        result = cfl.minimize(
            lasso_problem, cfl.L1(0.1), slow, rounds=60, tolerance=1e-6, trials=2, **QUIET
        )
    assert not result.converged and not result.ended_badly and result.stopped == "rounds"
    _, said = told(lasso_problem, cfl.L1(0.1), slow, rounds=60, trials=2)
    assert not said  # without a tolerance there is nothing to miss


def test_a_good_end_is_quiet(lasso_problem):
    good = cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=0.1)
    result, said = told(lasso_problem, cfl.L1(0.1), good, rounds=400, tolerance=1e-4)
    assert result.stopped == "tolerance" and result.converged and not said
    assert result.summary().startswith(f"converged in {result.rounds} rounds: natural residual")


def test_divergence_is_told_once_for_all_trials(lasso_problem):
    wild = cfl.PGD(lr=50.0)
    result, said = told(lasso_problem, None, wild, rounds=200, trials=3)
    assert len(said) == 1 and said[0].startswith("3 of 3 trials, first trial 0: diverged")
    assert result.ended_badly and result.stopped == "diverged" and min(result.diverged) > 0


@pytest.mark.parametrize("server_lr, words", [(6.0, "settle slowly"), (20.0, "are lost")])
def test_steps_above_gamma(lasso_problem, server_lr, words):
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05, server_lr=server_lr)
    (note, *_), _ = told(lasso_problem, cfl.L1(0.1), algorithm, rounds=1)[::-1]
    eta_hat = 0.15 * server_lr
    assert f"eta_hat={eta_hat:g} is above gamma=0.5" in note and words in note
    assert not cfl.FedNMap(gamma=0.15, local_steps=3, local_lr=0.05).cautions("float32")
    assert "lr=2 is above gamma=1" in cfl.NormSGD(lr=2.0, regularizer=cfl.L1(0.1)).cautions("")[0]
    assert not cfl.NormSGD(lr=2.0).cautions("")  # nothing is set to zero


DIVIDE = (cfl.FedNMap, cfl.ZA1, cfl.FedCanon, cfl.Scaffold, cfl.VRLSGD)


@pytest.mark.parametrize("method", DIVIDE, ids=lambda m: m.__name__)
def test_steps_too_small_for_float32(method):
    small = method(local_steps=3, local_lr=1e-5)
    assert "local_lr=1e-05 is below 0.0001" in small.cautions("float32")[0]
    assert not small.cautions("float64")
    assert not method(local_steps=3, local_lr=1e-3).cautions("float32")


def test_methods_that_do_not_divide_by_the_step_may_be_slow():
    assert not cfl.FedMiD(local_steps=3, local_lr=1e-5).cautions("float32")
    assert not cfl.ScaffoldI(local_steps=3, local_lr=1e-5).cautions("float32")


def test_a_float32_start_of_a_float64_run(lasso_problem):
    options = Options(rounds=1, dtype="float64", weights="uniform")
    short = lasso_problem.with_params(lasso_problem.params.astype(np.float32))
    assert "params are float32" in cautions(short, ALGORITHM, options)[0]
    assert not cautions(lasso_problem, ALGORITHM, options)
    model = cfl.models.linear_regression(8).problem(lasso_problem.clients)
    assert not model.short_start


def test_unequal_clients_are_told_once():
    problem = lasso()  # 7 to 15 samples
    first, again = (cautions(problem, ALGORITHM, Options(rounds=1)) for _ in range(2))
    assert len(first) == 1 and not again
    assert "7 to 15 samples" in first[0] and "weights='size'" in first[0]
    other = lasso()
    for weights in ("uniform", "size"):
        assert not cautions(other, ALGORITHM, Options(rounds=1, weights=weights))
    assert not cautions(lasso(clients=2, samples=(8, 15)), ALGORITHM, Options(rounds=1))


def table_of(scales, rows=30):
    """Two clients with columns of these scales, and a logistic regression of them."""
    rng = np.random.default_rng(0)
    made = [rng.normal(size=(rows, len(scales))) * scales for _ in range(2)]
    clients = [cfl.data.Samples(x, (x[:, 0] > 0).astype(np.int32)) for x in made]
    return cfl.models.logistic_regression(len(scales)).problem(clients)


def test_features_of_very_different_scale_are_told_once():
    raw = table_of([1.0, 1e-4, 0.0, 500.0])
    options = Options(rounds=1, weights="uniform")
    (said,) = cautions(raw, ALGORITHM, options)
    assert "Columns 1 and 3 of x" in said and "e+06" in said
    assert not cautions(raw, ALGORITHM, options)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale, words", [(1e200, "1 and 0 of x"), (1e-200, "0 and 1 of x")])
def test_columns_whose_squares_leave_float64(scale, words):
    said = cautions(table_of([scale, 1.0]), ALGORITHM, Options(rounds=1, weights="uniform"))
    assert words in said[0] and "e+200" in said[0]


@pytest.mark.parametrize("scales", [[1.0, 0.01, 5.0], [0.0, 3.0, 0.0]])
def test_features_of_about_one_scale_are_not(scales):
    assert not cautions(table_of(scales), ALGORITHM, Options(rounds=1, weights="uniform"))


def test_a_method_with_hessians_does_not_mind_scales():
    options = Options(rounds=1, weights="uniform", dtype="float64")
    problem = table_of([1.0, 1e-4, 500.0])
    said = [s for s in cautions(problem, cfl.ProxNewton(), options) if "scale" in s]
    assert not said and [s for s in cautions(problem, ALGORITHM, options) if "scale" in s]
