"""Sums that no table has are refused by site; those of every honest table pass."""

import numpy as np
import pytest

from compositefl import linear_model
from compositefl.deployment import Federation, InProcess
from compositefl.deployment.glm_checks import SumChecks
from compositefl.deployment.glm_server import GLMCoordinator
from compositefl.deployment.glm_site import LARGEST_LOSS, _finite
from compositefl.deployment.messages import answer_digest, call_digest, decode, encode
from compositefl.glm.requests import METHODS
from compositefl.glm.site import Site
from compositefl.glm.sites import add_up
from tests.deployment.test_deployment_glm import FEATURES, declare, frame, split, workers

ONE = 'family = "binomial"\nalpha = 0.02\nmissing = "without"'


def forged(method, name, number, forger="north", calls=None):
    """A dishonest site: other sums under a name, with a digest that fits."""

    def fault(site, called, payload, call):
        answer = call()
        if calls is not None:
            calls.append(called)
        if site != forger or called != "sums":
            return answer
        asked, made = decode(payload, len(payload)), decode(answer, len(answer))
        if METHODS[int(asked.arrays["method"])] != method or f"sums/{name}" not in made.arrays:
            return answer
        arrays = dict(made.arrays)
        arrays[f"sums/{name}"] = np.full_like(arrays[f"sums/{name}"], number)
        values = {n: v for n, v in made.values.items() if n != "digest"}
        about = call_digest(
            values["federation"], values["run"], called, values["round"], asked.arrays
        )
        return encode(values | {"digest": answer_digest(about, values, arrays)}, arrays)

    return fault


def fit(tmp_path, text, fault=None, tables=None):
    federation, handlers = workers(tmp_path, text, tables or split(frame()))
    events = []
    transport = InProcess(handlers, fault)
    server = GLMCoordinator(federation, transport, tmp_path / "server", "first", events.append)
    return server.run(), [e for e in events if e["event"] == "failure"]


@pytest.fixture(scope="module")
def others():
    """The fit to the tables of the other sites."""
    table = frame()
    rest = table[table["site"] != "north"]
    made = linear_model.LogisticRegression(0.02)
    return made.fit(rest[list(FEATURES)], rest["outcome"], sites=rest["site"]).coef_


@pytest.mark.parametrize(
    ("method", "name", "number"),
    [
        ("describe", "rows", -1e6),
        ("describe", "weight", -1e6),
        ("describe", "weight", 1e30),
        ("describe", "weight_x", 0.0),
        ("describe", "sum_x", 1e20),
        ("describe", "sum_y", -5e5),
        ("describe", "sum_y", 1e9),
        ("describe", "sum_yy", -1.0),
        ("describe", "missing", 3.0),
        ("describe", "saturated", 1e31),
        ("describe", "sum_tilt", 5.0),
        ("describe", "counted", 3.0),
        ("spread", "sum_zz", -1e9),
        ("spread", "sum_zz", 1e30),
        ("spread", "sum_z", 1e15),
        ("evaluate", "loss", -1e290),
        ("evaluate", "gradient", 1e299),
        ("evaluate", "hessian", -1e20),
        ("evaluate", "hessian", 1e299),
    ],
)
def test_sums_that_cannot_be_are_refused_and_the_fit_goes_on(
    tmp_path, others, method, name, number
):
    """The attack: all coefficients 0 without a warning, or an error that names no site."""
    result, failures = fit(tmp_path, declare(ONE), forged(method, name, number))
    assert result.stopped == "converged" and result.config["left_out"] == ["north"]
    np.testing.assert_allclose(result.model.coef_, others, atol=1e-10)
    assert {(f["site"], f["call"]) for f in failures} == {("north", "sums")}
    assert all(f["reason"].startswith("refused: its ") for f in failures)
    assert name in failures[0]["reason"] and "outside" in failures[0]["reason"]


def test_a_fold_has_no_more_than_the_table(tmp_path):
    def forge(site, called, payload, call):
        if site != "north" or called != "sums":
            return call()
        asked, made = decode(payload, len(payload)), decode(call(), 2**20)
        arrays = {name: np.array(a) for name, a in made.arrays.items()}
        if METHODS[int(asked.arrays["method"])] == "spread":
            arrays["sums/sum_zz"][1] = 2 * arrays["sums/sum_zz"][0] + 1
        values = {n: v for n, v in made.values.items() if n != "digest"}
        about = values["federation"], values["run"], called, values["round"]
        digest = answer_digest(call_digest(*about, asked.arrays), values, arrays)
        return encode(values | {"digest": digest}, arrays)

    glm = 'family = "binomial"\ncv = 3\nalphas = 3\nmissing = "without"'
    result, failures = fit(tmp_path, declare(glm), forge)
    assert result.config["left_out"] == ["north"]
    assert all("its sum_zz is" in f["reason"] for f in failures)


@pytest.mark.parametrize(
    ("score", "name", "number"),
    [
        ("deviance", "weight", 1e6),
        ("deviance", "deviance", -1e3),
        ("accuracy", "right", 1e6),
        ("auc", "score_square", -1.0),
        ("auc", "positive", -1.0),
        ("auc", "negative", 1e6),
    ],
)
def test_scores_that_cannot_be_are_refused(tmp_path, score, name, number):
    glm = f'family = "binomial"\ncv = 3\nalphas = 3\nscoring = "{score}"\nmissing = "without"'
    result, failures = fit(tmp_path, declare(glm), forged("validate", name, number))
    assert result.config["left_out"] == ["north"] and result.stopped == "converged"
    assert {f["site"] for f in failures} == {"north"}
    assert all("refused: its " in f["reason"] for f in failures)


def test_the_checks_outlive_the_server(tmp_path):
    """A server that goes through its journal knows again what each site said of its table."""
    text = declare(ONE.replace("without", "wait"))
    federation, handlers = workers(tmp_path, text, split(frame()))
    calls = {"sums": 0}

    def stops(_site, method, _payload, call):
        calls["sums"] += method == "sums"
        if calls["sums"] > 12:
            raise ConnectionError("gone")
        return call()

    def server(fault, events):
        transport = InProcess(handlers, fault)
        return GLMCoordinator(federation, transport, tmp_path / "server", "run", events.append)

    assert server(stops, []).run().stopped == "too few sites"
    events, asked = [], []
    spoilt = server(forged("evaluate", "hessian", -1e20, calls=asked), events).run()
    assert spoilt.stopped == "too few sites"
    told = [e["reason"] for e in events if e["event"] == "failure"]
    assert told and all("its diagonal of the hessian is -1e+20" in t for t in told)
    assert asked.count("sums") < 3 + 2 * 3  # the rounds of the journal are not asked for again
    assert server(None, []).run().stopped == "converged"


class Checked:
    """Sites of this process whose answers are checked as a server does."""

    away = ()

    def __init__(self, sites, checks):
        self.sites, self.checks = sites, checks
        self.rounds = self.bytes_up = self.bytes_down = 0
        self.names = [site.name for site in sites]
        self.asked = set()

    def ask(self, method, **request):
        self.rounds += 1
        self.asked.add(method)
        answers = []
        for site in self.sites:
            made = _finite(getattr(site, method)(**request))
            self.checks.check(site.name, len(site.y), method, request, made)
            answers.append(made)
        return add_up(answers)


def tables(family, seed, far):
    """Three tables of unequal size with constant, rare and, with `far`, far-off columns."""
    rng = np.random.default_rng(seed)
    for n in (9, 40, 200):
        x = rng.normal(size=(n, 5)) * [1.0, 30.0, 1e-3, 1.0, 1.0] + [0, 0, 0, far, 7.0]
        x[:, 2] = np.arange(n) == 0
        x[:, 4] = 0.1
        eta = 0.5 * x[:, 0] - 0.02 * x[:, 1]
        noise = rng.normal(size=n)
        y = {
            "binomial": (eta + noise > 0).astype(float),
            "multinomial": np.arange(n) % 3,
            "poisson": rng.poisson(np.exp(eta)).astype(float),
            "gamma": np.exp(eta + noise),
            "cox": np.column_stack([np.exp(noise - eta).round(1), np.arange(n) % 3 > 0]),
        }.get(family, 1e3 * (eta + noise))
        yield x, y, rng


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("gaussian", "cv = 3\nalphas = 6"),
        ("gaussian", 'cv = 3\nalphas = 6\nscoring = "r2"'),
        ("gaussian", "alpha = 0"),
        ("binomial", 'cv = 3\nalphas = 6\nscoring = "auc"'),
        ("binomial", 'cv = 3\nalphas = 6\nscoring = "accuracy"'),
        ("multinomial", "cv = 3\nalphas = 6"),
        ("poisson", "cv = 3\nalphas = 6"),
        ("poisson", "alpha = 0"),
        ("gamma", "cv = 3\nalphas = 6"),
        ("gamma", 'cv = 3\nalphas = 6\nscoring = "mae"'),
        ("gamma", "alpha = 0"),
        ("huber", "alpha = 0.01"),
        ("cox", "cv = 3\nalphas = 6"),
        ("cox", 'cv = 3\nalphas = 6\nscoring = "c_index"'),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_the_sums_of_honest_tables_pass(family, more, plain):
    """Whatever the family: weights and offsets or none, gaps, constant and far-off columns."""
    labels = {"binomial": ("a", "b"), "multinomial": ("a", "b", "c")}.get(family, ())
    about = f'labels = {list(labels)}\ntarget = "y"'.replace("'", '"')
    glm = f'family = "{family}"\n{more}' + ('\nevent = "e"' if family == "cox" else "")
    glm += "" if plain else '\nweight = "w"\noffset = "o"\nimpute = "mean"'
    names = [f"x{i}" for i in range(5)]
    federation = Federation.parse(declare(glm, about, features=names))
    table = federation.glm
    model = table.estimator(1, federation.modules)
    kind = model._family(len(labels) or 2)
    made = []
    for i, (x, y, rng) in enumerate(tables(family, 5, 1.0 if plain else 1e7)):
        weight = offset = None
        if not plain:
            weight, offset = (
                rng.random(len(x)) * (rng.random(len(x)) < 0.8),
                rng.normal(size=len(x)),
            )
            x[3, 0] = np.nan
        made.append(Site(f"s{i}", kind, x, y, weight, offset, classes=len(labels) or 2))
        if table.cv:
            made[-1].draw(table.cv, 1)
    sites = Checked(made, SumChecks(federation, kind))
    model.fit_over(sites, names, labels or None)
    wanted = {"describe", "spread", "evaluate"} | ({"validate"} if table.cv else set())
    assert sites.asked >= wanted and np.isfinite(model.coef_).all()


def test_sums_that_overflow_travel_as_large_numbers():
    """The loss of a step too far: its derivatives are refused at neither end of the numbers."""
    large, most = 1.7e308, LARGEST_LOSS
    loss = np.array([np.inf, -np.inf, np.nan, large, -large, 3.0, 4.0])
    gradient = np.array([[0.0, 1.0]] * 6 + [[-np.inf, 2.0]])
    hessian = np.array([[np.inf, -np.inf, np.nan, -large, 5.0]])
    sent = _finite({"loss": loss, "gradient": gradient, "hessian": hessian})
    assert sent["loss"].tolist() == [most, most, most, most, -most, 3.0, most]
    assert sent["gradient"][-2:].tolist() == [[0.0, 1.0], [-most, 2.0]]
    assert sent["hessian"].tolist() == [[most, -most, 0.0, -most, 5.0]]


def test_a_site_with_negative_weights_does_not_take_part(tmp_path):
    text = declare(ONE + '\nweight = "times"')
    tables_ = split(frame())
    tables_["north"] = tables_["north"].assign(times=-1.0)
    result, failures = fit(tmp_path, text, tables=tables_)
    assert result.config["left_out"] == ["north"]
    assert failures[0]["reason"] == "its weights are negative; its log says more"


def test_large_tables_need_a_larger_largest_number(tmp_path):
    """[limits] largest_number bounds the numbers of the tables, too."""
    tables_ = split(frame())
    tables_["north"]["mean radius"] *= 1e13
    _, failures = fit(tmp_path / "a", declare(ONE), tables=tables_)
    assert "refused: its sum_x is" in failures[0]["reason"]
    more = "\n[limits]\nlargest_number = 1e16\n"
    _, failures = fit(tmp_path / "b", declare(ONE, more=more), tables=tables_)
    assert not failures
