"""Ordinary inputs: tables and names are taken, the rest is refused in one line."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import compositefl as cfl
from compositefl.data.samples import Samples
from compositefl.solve.trajectory import Trajectory
from tests.problems import squared_loss

X = np.random.default_rng(0).normal(size=(12, 3))
Y = (X[:, 0] > 0).astype(int)
TABLE = pd.DataFrame(X, columns=["age", "dose", "size"])
LABELS = pd.Series(Y, name="ill", index=np.arange(12)[::-1])
MODEL = cfl.models.logistic_regression(3)
ALGORITHM = cfl.FedNMap(local_steps=2, local_lr=0.1)
NAMES = np.where(Y, "ill", "well")
MIXED = TABLE.assign(site="A")


def run(phi="l1:0.01", algorithm=ALGORITHM, problem=None, **options):
    problem = problem or MODEL.problem([(X, Y), (X, Y)])
    return cfl.minimize(problem, phi, algorithm, **dict(rounds=1, progress=False) | options)


def test_tables_are_arrays():
    want = MODEL.problem(cfl.partition.by_label((X, Y), clients=3), test=(X, Y))
    tables = MODEL.problem(cfl.partition.by_label((TABLE, LABELS), clients=3), test=(TABLE, LABELS))
    lists = MODEL.problem([(TABLE, LABELS)])
    np.testing.assert_equal(list(tables.clients), list(want.clients))
    np.testing.assert_equal(list(lists.clients), [(X, Y)])
    np.testing.assert_equal(tables.test, (X, Y))
    np.testing.assert_allclose(run(problem=tables).params["dense0"]["kernel"],
                               run(problem=want).params["dense0"]["kernel"])  # fmt: skip


SPLIT = [(TABLE[:6], LABELS[:6]), (TABLE[6:], LABELS[6:])]
TURNED = (TABLE[6:][["size", "age", "dose"]], LABELS[6:])
RENAMED = (TABLE[6:].rename(columns={"dose": "mg"}), LABELS[6:])


def on_demand(*batches):
    return cfl.OnDemand(lambda i: batches[i], [len(y) for _, y in batches])


@pytest.mark.parametrize(
    "clients, test",
    [
        ([SPLIT[0], TURNED], None),
        ([SPLIT[0], TURNED], TURNED),
        (on_demand(SPLIT[0], TURNED), TURNED),
        (cfl.partition.from_lists([SPLIT[0], TURNED]), TURNED),
        (cfl.partition.from_indices((TABLE, LABELS), [range(6), range(6, 12)])[:], TURNED),
        (cfl.Stacked((TABLE, LABELS), sizes=[6, 6]), TURNED),
        ([(X[:6], Y[:6]), SPLIT[1]], TURNED),
        ([(pd.DataFrame(X[:6]), Y[:6]), SPLIT[1]], TURNED),  # its columns have numbers for names
        ([SPLIT[0], (X[6:], Y[6:])], (X[6:], Y[6:])),
    ],
)
def test_columns_of_tables_are_matched_by_name(clients, test):
    problem = MODEL.problem(clients, test=test)
    made = [*problem.clients, *([] if test is None else [problem.test])]
    for (x, _), wanted in zip(made, (X[:6], X[6:], X[6:]), strict=False):
        np.testing.assert_array_equal(x, wanted)


def test_a_sample_of_clients_on_demand_has_the_columns_in_order_too():
    np.testing.assert_array_equal(on_demand(SPLIT[0], TURNED).sample(6)[1][0], X[6:])


def test_a_table_with_dummy_columns():
    dummies = pd.get_dummies(MIXED)  # floats and booleans: to_numpy() alone gives objects
    clients = cfl.partition.iid((dummies, LABELS), clients=2)
    assert clients[0][0].dtype == float and clients[0][0].shape == (6, 4)


def test_partitions_take_names_as_labels():
    parts = cfl.partition.by_label((TABLE, pd.Series(NAMES)), clients=2)
    assert set(parts[0][1]) == {"ill"} or set(parts[1][1]) == {"well"}


def test_a_regularizer_by_name():
    np.testing.assert_array_equal(
        run("l1:0.01").params["dense0"]["kernel"], run(cfl.L1(0.01)).params["dense0"]["kernel"]
    )


def test_a_regularizer_that_comes_with_the_algorithm():
    own = cfl.FedNMap(local_steps=2, local_lr=0.1, regularizer=cfl.L1(0.3))
    assert run(None, own).config["regularizer"] == repr(cfl.L1(0.3))
    with pytest.raises(cfl.CompositeFLError, match="give one of them"):
        run(cfl.L1(0.2), own)


WRONG = {
    "one batch": (lambda: MODEL.problem((X, Y)), r"a list of batches, .* write \[\(x, y\)\]"),
    "one batch of samples": (lambda: MODEL.problem(Samples(X, Y)), r"\[\(x, y\)\]"),
    "a table": (lambda: MODEL.problem(TABLE), r"a list of batches"),
    "a dict": (lambda: MODEL.problem({"x": X, "y": Y}), r"a list of batches"),
    "a batch for a problem": (
        lambda: cfl.Problem(squared_loss, np.zeros(3), (X, Y)),
        r"a list of batches",
    ),
    "an array": (lambda: MODEL.problem(X), r"a list of batches"),
    "a number": (lambda: MODEL.problem(3), r"clients=3 must be a list"),
    "no pair": (lambda: MODEL.problem([X, X]), r"must be a pair .* array of shape \(12, 3\)"),
    "string labels": (
        lambda: MODEL.problem([(X, NAMES)]),
        r"data of type <U4.*unique",
    ),
    "string labels of a partition": (
        lambda: MODEL.problem(cfl.partition.iid((X, NAMES), clients=2)),
        r"client has data of type <U4",
    ),
    "string labels for a problem": (
        lambda: cfl.Problem(
            squared_loss, np.zeros(3), cfl.partition.iid((X, NAMES.astype(object)), clients=2)
        ),
        r"client( 0)? has data of type object",
    ),
    "object column": (lambda: MODEL.problem([(MIXED, Y)]), r"columns that are no numbers: site;"),
    "object column in a partition": (
        lambda: cfl.partition.iid((MIXED, LABELS), clients=2),
        r"the data has columns that are no numbers: site",
    ),
    "object array": (
        lambda: MODEL.problem([(X.astype(object), Y)]),
        r"client( 0)? has data of type object",
    ),
    "sparse": (
        lambda: MODEL.problem([(scipy.sparse.csr_matrix(X), Y)]),
        r"client 0 has a sparse matrix of shape \(12, 3\); call its .toarray\(\)",
    ),
    "sparse in a partition": (
        lambda: cfl.partition.iid((scipy.sparse.csr_array(X), Y), clients=2),
        r"sparse matrix",
    ),
    "lists of lists": (
        lambda: cfl.Problem(squared_loss, np.zeros(3), [(X.tolist(), Y.tolist())]),
        r"client 0 has 48 single numbers \(make arrays of lists",
    ),
    "lists of lists in a partition": (
        lambda: cfl.partition.iid((X.tolist(), Y.tolist()), clients=2),
        r"single numbers",
    ),
    "other columns": (
        lambda: MODEL.problem([SPLIT[0], RENAMED]),
        r"client 1 has other columns than client 0: it lacks dose and only it has mg;",
    ),
    "fewer columns": (
        lambda: MODEL.problem([SPLIT[0], (TABLE[6:][["age", "size"]], LABELS[6:])]),
        r"client 1 has other columns than client 0: it lacks dose; columns are matched by name",
    ),
    "a column twice": (
        lambda: MODEL.problem(
            [(TABLE.set_axis(list("aab"), axis=1), Y), (TABLE.set_axis(list("aba"), axis=1), Y)]
        ),
        r"client 1 has other columns than client 0: a occurs twice",
    ),
    "other columns on demand": (
        lambda: MODEL.problem(on_demand(SPLIT[0], RENAMED)),
        r"client 1 has other columns than client 0",
    ),
    "other columns of a partition": (
        lambda: cfl.partition.from_lists([SPLIT[0], RENAMED]),
        r"client 1 has other columns than client 0",
    ),
    "other columns of the test set": (
        lambda: MODEL.problem(cfl.partition.iid((TABLE, LABELS), clients=2), test=RENAMED),
        r"the test set has other columns than the data: it lacks dose",
    ),
    "a test set that is not finite": (
        lambda: MODEL.problem([(X, Y)], test=(np.where(X > 1, np.nan, X), Y)),
        r"the test set has NaN or infinity in its data",
    ),
    "a test set of other lengths": (
        lambda: MODEL.problem([(X, Y)], test=(X, Y[1:])),
        r"the test set has arrays of shapes \(12, 3\), \(11,\); the leading axis",
    ),
    "regularizer 0.01": (lambda: run(0.01), r"regularizer=0.01 .* cfl.L1\(0.01\)"),
    "regularizer class": (lambda: run(cfl.L1), r"must be a regulariser, such as L1\(...\)"),
    "regularizer name": (lambda: run("l2:0.01"), r"unknown regularizer 'l2'"),
    "algorithm name": (
        lambda: run(algorithm="fednmap"),
        r"algorithm='fednmap' must be .* cfl.FedNMap\(...\)",
    ),
    "algorithm class": (lambda: run(algorithm=cfl.ZA1), r"cfl.ZA1\(...\)"),
    "resume alone": (lambda: run(resume=True), r"resume=True needs checkpoint="),
    "a number for constants": (
        lambda: run(constants=3),
        r"constants=3 must be cfl.theory.Constants, such as cfl.theory.estimate\(",
    ),
    "a word for a switch": (
        lambda: run(participation=1.0, replacement="no"),
        r"replacement='no' must be True or False",
    ),
    "no problem": (lambda: run(problem=(X, Y)), r"problem=.* must be a cfl.Problem"),
    "tune": (
        lambda: cfl.tune(MODEL.problem([(X, Y)]), 0.1, {"fednmap": ALGORITHM}, rounds=1),
        r"regularizer=0.1",
    ),
    "a checkpoint for tune": (
        lambda: cfl.tune(MODEL.problem([(X, Y)]), None, {"a": ALGORITHM}, rounds=1, resume=True),
        r"resume=True is for minimize; tune keeps no checkpoint",
    ),
    "a checkpoint for sweep": (
        lambda: cfl.sweep(
            MODEL.problem([(X, Y)]), None, ALGORITHM, {"local_lr": [1]}, rounds=1, checkpoint="c"
        ),
        r"checkpoint=c is for minimize; sweep keeps no checkpoint",
    ),
    "a checkpoint for path": (
        lambda: cfl.path(MODEL.problem([(X, Y)]), None, ALGORITHM, [0.1], rounds=1, checkpoint="c"),
        r"checkpoint=c is for minimize; path keeps no checkpoint",
    ),
    "tune without names": (
        lambda: cfl.tune(MODEL.problem([(X, Y)]), None, ALGORITHM, rounds=1),
        r"algorithms=.* must be a dict of names and algorithms",
    ),
}


@pytest.mark.parametrize("call, message", WRONG.values(), ids=WRONG)
def test_wrong(call, message):
    with pytest.raises(cfl.CompositeFLError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


LARGE = np.where(np.arange(12) == 7, -1e39, X[:, 1])
TOO_LARGE = (np.column_stack([X[:, 0], LARGE, X[:, 2]]), Y)
COUNTS = np.arange(36).reshape(12, 3)


@pytest.mark.parametrize(
    "clients, test, who",
    [
        ([(X, Y), TOO_LARGE], None, "client 1"),
        (on_demand((X, Y), TOO_LARGE), None, "client 1"),
        (cfl.Stacked(TOO_LARGE, sizes=[7, 5]), None, "client 1"),
        (cfl.partition.from_indices(TOO_LARGE, [[7, 8], [1, 2]]), None, "client 0"),
        ([(X, Y)], TOO_LARGE, "the test set"),
    ],
)
@pytest.mark.filterwarnings("error:overflow encountered in cast")
def test_numbers_beyond_the_type_of_a_run(clients, test, who):
    message = r" has numbers beyond float32 \(largest -1e\+39\); scale the columns, or use dtype="
    with pytest.raises(cfl.CompositeFLError, match=f"^{who}{message}"):
        run(problem=MODEL.problem(clients, test=test))


def test_numbers_of_numpy_and_whole_floats_are_numbers():
    problem = MODEL.problem([(X, Y)] * 3)
    options = dict(problem=problem, batch_size=4, rounds=2)
    want = run(participation=2, trials=2, **options)
    told = run(participation=np.int64(2), trials=2.0, **options)
    np.testing.assert_array_equal(told.params["dense0"]["kernel"], want.params["dense0"]["kernel"])
    assert told.config == want.config


@pytest.mark.parametrize("stacked", [False, True])
def test_whole_numbers_beyond_those_of_jax(stacked):
    counts = COUNTS.copy()
    counts[8, 1] = 2**31  # was -2^31 in the run
    clients = [(counts[:6], Y[:6]), (counts[6:], Y[6:])]
    if stacked:
        clients = cfl.Stacked((counts, Y), sizes=[6, 6])
    with pytest.raises(cfl.CompositeFLError, match=r"client 1 has whole numbers beyond int32"):
        run(problem=MODEL.problem(clients))


def test_two_clients_of_one_array_each_are_no_pair():
    problem = cfl.Problem(lambda w, x: jnp.mean((x @ w) ** 2), np.zeros(3), (X, X[:5]))
    assert problem.sizes.tolist() == [12, 5]


def test_losses_take_float64_data_quietly():
    params = MODEL.init(jax.random.key(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tree in (params, jax.device_get(params), {"dense0": {"kernel": np.ones((3, 1))}}):
            MODEL.loss(tree, (X, Y))
            MODEL.accuracy(tree, (X, Y))


def test_theorems_under_the_names_of_the_registry():
    constants = cfl.theory.Constants(L=1.0, clients=4, lipschitz=1.0, delta=1.0)
    names = ("fedprox-nonsmooth", "FedProxNonsmooth", cfl.FedProxNonsmooth)
    found = [cfl.theory.stepsizes(n, constants, rounds=10) for n in names]
    assert len({repr(steps) for steps in found}) == 1
    assert set(cfl.theory.THEOREMS) <= set(cfl.ALGORITHMS)


class BareL1(cfl.L1):
    """One's own regulariser; @cfl.component was forgotten, here and below."""


class BareOwn(cfl.Regularizer):
    def __init__(self, weight):
        self.weight = weight


class BareFedAvg(cfl.FedAvg):
    pass


BARE = [  # regulariser, algorithm, what the message begins with
    (BareL1(0.1), ALGORITHM, "the class BareL1 lacks @cfl.component"),
    (BareOwn(0.1), ALGORITHM, "the class BareOwn lacks @cfl.component"),
    (cfl.ByName({"*": BareL1(0.1)}), ALGORITHM, "the class BareL1 lacks"),
    (
        None,
        cfl.FedNMap(local_steps=2, local_lr=0.1, regularizer=BareL1(0.1)),
        "the class BareL1 lacks @cfl.component",
    ),
    (
        None,
        BareFedAvg(local_steps=2, local_lr=0.1),
        "the class BareFedAvg lacks @cfl.component",
    ),
]


@pytest.mark.parametrize(("phi", "algorithm", "text"), BARE)
def test_a_class_without_component(phi, algorithm, text):
    problem = MODEL.problem([(X, Y), (X, Y)])
    options = {"rounds": 1, "progress": False}
    calls = [
        lambda: run(phi, algorithm),
        lambda: cfl.sweep(problem, phi, algorithm, {"local_lr": [0.1]}, **options),
        lambda: cfl.tune(problem, phi, {"one": algorithm}, **options),
        lambda: Trajectory(problem, phi, algorithm),
    ]
    for call in calls[: 3 if phi is None else 4]:  # a Trajectory takes phi apart from its method
        with pytest.raises(cfl.CompositeFLError) as error:
            call()
        assert str(error.value).startswith(text) and "\n" not in str(error.value)
