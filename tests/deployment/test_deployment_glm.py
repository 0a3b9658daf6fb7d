"""Generalised linear models over a transport: the simulation's coefficients, from sums alone."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from compositefl import linear_model
from compositefl.core.errors import CompositeFLError
from compositefl.deployment import Federation, InProcess, Site, Worker
from compositefl.deployment.coordinator import FINAL
from compositefl.deployment.dry_run import dry_run
from compositefl.deployment.glm_server import GLMCoordinator
from compositefl.deployment.glm_site import pack_request
from compositefl.deployment.messages import encode
from tests.deployment import trap

TRAP = "tests.deployment.trap"
SITES = ("north", "south", "west")
FEATURES = ("mean radius", "mean texture", "mean smoothness", "worst area", "worst symmetry")
QUICK = "[network]\nretries = 1\nretry_wait = 0.01\n"


def frame(features=FEATURES):
    data = load_breast_cancer(as_frame=True)
    table = data.data[list(features)].assign(outcome=np.where(data.target > 0, "good", "bad"))
    table["site"] = np.array(SITES)[np.digitize(table["worst area"], (600, 1000))]
    table["times"] = 1.0 + (np.arange(len(table)) % 7)
    table["seen"] = (np.arange(len(table)) % 3 > 0).astype(int)
    return table


def declare(
    glm,
    data='labels = ["bad", "good"]\ntarget = "outcome"',
    more="",
    rounds=400,
    features=FEATURES,
):
    return (
        f'name = "tumours"\nsites = {json.dumps(SITES)}\nrounds = {rounds}\nseed = 3\n'
        f"[data]\nfeatures = {json.dumps(features)}\n{data}\n[glm]\n{glm}\n{QUICK}{more}"
    )


def workers(tmp_path, text, tables, **more):
    federation = Federation.parse(text).check()
    handlers = {}
    for name, table in tables.items():
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        table.to_csv(folder / "data.csv", index=False)
        site = Site(name, (federation.hash,), folder, train={"file": "data.csv"}, **more)
        handlers[name] = Worker(site, folder / "state").handle
    return federation, handlers


def split(table):
    return {name: table[table["site"] == name].drop(columns="site") for name in SITES}


def fitted(tmp_path, text, fault=None):
    table = frame()
    federation, handlers = workers(tmp_path, text, split(table))
    events = []
    server = GLMCoordinator(
        federation, InProcess(handlers, fault), tmp_path / "server", "first", events.append
    )
    return table, server.run(), events


def test_one_alpha_equals_the_simulation(tmp_path):
    table, result, _ = fitted(tmp_path, declare('family = "binomial"\nalpha = 0.02'))
    here = linear_model.LogisticRegression(0.02).fit(
        table[list(FEATURES)], table["outcome"], sites=table["site"]
    )
    assert result.stopped == "converged"
    np.testing.assert_allclose(result.model.coef_, here.coef_, atol=1e-10, rtol=1e-10)
    np.testing.assert_allclose(result.model.intercept_, here.intercept_, rtol=1e-10)
    assert list(result.model.classes_) == ["bad", "good"]
    result.save(tmp_path / "out")
    again = linear_model.load_model(tmp_path / "out" / "model.json")
    np.testing.assert_array_equal(
        again.predict(table[list(FEATURES)]), here.predict(table[list(FEATURES)])
    )
    assert (tmp_path / "out" / "coefficients.csv").exists()


@pytest.mark.parametrize("numbers", ["alpha = 0.001", "cv = 3\nalphas = 5"])
def test_a_fit_that_was_given_up_is_not_said_to_have_converged(tmp_path, numbers):
    _, result, events = fitted(tmp_path, declare(f'family = "binomial"\n{numbers}\nmax_iter = 1'))
    assert result.model is not None and "did not converge" in result.config["summary"]
    assert result.stopped == events[-1]["reason"] == "not converged"
    assert result.config["ended_badly"] and result.stopped in FINAL  # another job would not help


def test_a_path_with_folds_equals_the_simulation(tmp_path):
    glm = 'family = "binomial"\ncv = 4\nalphas = 12'
    table, result, _ = fitted(tmp_path, declare(glm))
    here = linear_model.LogisticRegressionCV(cv=4, alphas=12, random_state=3).fit(
        table[list(FEATURES)], table["outcome"], sites=table["site"]
    )
    assert result.model.alpha_ == pytest.approx(here.alpha_, rel=1e-10)
    np.testing.assert_allclose(result.model.cv_mean_, here.cv_mean_, rtol=1e-9)
    np.testing.assert_allclose(result.model.coef_, here.coef_, atol=1e-10, rtol=1e-10)


def test_categories_with_gaps_equal_coded_columns(tmp_path):
    table = frame().assign(grade=np.array(["low", "mid", "high"], object)[np.arange(569) % 3])
    table.loc[::50, "grade"] = None
    features = ("mean texture", "grade")
    data = 'labels = ["bad", "good"]\ntarget = "outcome"\n'
    data += 'categories = {grade = ["low", "mid", "high"]}'
    glm = 'family = "binomial"\nalpha = 0.0\nimpute = "mean"'
    text = declare(glm, data, features=features)
    federation, handlers = workers(tmp_path, text, split(table))
    server = GLMCoordinator(
        federation, InProcess(handlers), tmp_path / "server", "first", lambda _event: None
    )
    result = server.run()
    codes = [(table["grade"] == v).where(table["grade"].notna(), np.nan) for v in ("mid", "high")]
    x = np.column_stack([table["mean texture"], *codes]).astype(float)
    here = linear_model.LogisticRegression(0.0, impute="mean")
    here.fit(x, table["outcome"], sites=table["site"])
    np.testing.assert_allclose(result.model.coef_, here.coef_, atol=1e-10, rtol=1e-10)
    result.save(tmp_path / "out")
    again = linear_model.load_model(tmp_path / "out" / "model.json")
    assert list(again.feature_names_in_) == ["mean texture", "grade=mid", "grade=high"]
    assert again.about_["categories"] == {"grade": ["low", "mid", "high"]}


def test_cox_with_the_sites_as_strata(tmp_path):
    glm = 'family = "cox"\nalpha = 0.0\nevent = "seen"'
    table, result, _ = fitted(tmp_path, declare(glm, 'target = "times"'))
    y = table[["times", "seen"]].to_numpy()
    here = linear_model.CoxRegression().fit(table[list(FEATURES)], y, sites=table["site"])
    np.testing.assert_allclose(result.model.coef_, here.coef_, rtol=1e-9)


def test_columns_are_matched_by_name(tmp_path):
    text = declare('family = "binomial"\nalpha = 0.02')
    tables = split(frame())
    mixed = {name: t[sorted(t.columns)] for name, t in tables.items()}
    first, handlers = workers(tmp_path / "a", text, tables)
    plain = GLMCoordinator(first, InProcess(handlers), tmp_path / "s1", "first").run()
    _, handlers = workers(tmp_path / "b", text, mixed)
    other = GLMCoordinator(first, InProcess(handlers), tmp_path / "s2", "first").run()
    np.testing.assert_array_equal(plain.model.coef_, other.model.coef_)


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda t: t.drop(columns="worst area"), "lack 1 of"),
        (lambda t: t.assign(**{"mean radius": "wide"}), "hold text"),
        (lambda t: t.assign(outcome="maybe"), "labels are not those"),
        (lambda t: t.head(2), "fewer samples"),
    ],
)
def test_a_site_whose_table_differs_is_told_and_named(tmp_path, spoil, kind):
    tables = split(frame())
    tables["south"] = spoil(tables["south"])
    federation, handlers = workers(tmp_path, declare('family = "binomial"\nalpha = 0.1'), tables)
    events = []
    server = GLMCoordinator(
        federation, InProcess(handlers), tmp_path / "server", "first", events.append
    )
    result = server.run()
    assert result.model is None and result.stopped != "converged"
    told = [e for e in events if e["event"] == "failure" and e.get("site") == "south"]
    assert told and kind in told[0]["reason"]


def test_a_lost_answer_is_asked_for_again(tmp_path):
    lost = {"left": 2}

    def fault(site, method, payload, call):
        if site == "west" and method == "sums" and lost["left"]:
            lost["left"] -= 1
            call()
            raise ConnectionError("the line is cut")
        return call()

    text = declare('family = "binomial"\nalpha = 0.02').replace("retries = 1", "retries = 3")
    table, result, _ = fitted(tmp_path, text, fault)
    here = linear_model.LogisticRegression(0.02).fit(
        table[list(FEATURES)], table["outcome"], sites=table["site"]
    )
    np.testing.assert_allclose(result.model.coef_, here.coef_, atol=1e-10)


def test_a_killed_server_goes_on_from_its_journal(tmp_path):
    text, table = declare('family = "binomial"\nalpha = 0.02'), frame()
    federation, handlers = workers(tmp_path, text, split(table))
    calls = {"sums": 0}

    def stops(site, method, payload, call):
        calls["sums"] += method == "sums"
        if calls["sums"] > 12:
            raise ConnectionError("gone")
        return call()

    first = GLMCoordinator(federation, InProcess(handlers, stops), tmp_path / "server", "run").run()
    assert first.model is None and first.stopped == "too few sites"
    asked = []

    def counts(site, method, payload, call):
        asked.append(method)
        return call()

    second = GLMCoordinator(federation, InProcess(handlers, counts), tmp_path / "server", "run")
    result = second.run()
    assert result.stopped == "converged"
    assert asked.count("sums") == 3 * (result.rounds - first.rounds + 1)
    here = linear_model.LogisticRegression(0.02).fit(
        table[list(FEATURES)], table["outcome"], sites=table["site"]
    )
    np.testing.assert_allclose(result.model.coef_, here.coef_, atol=1e-10)


def test_going_on_without_a_site_is_said(tmp_path):
    def fault(site, method, payload, call):
        if site == "west":
            raise ConnectionError("no route")
        return call()

    text = declare('family = "binomial"\nalpha = 0.02\nmissing = "without"')
    table, result, events = fitted(tmp_path, text, fault)
    rest = table[table["site"] != "west"]
    here = linear_model.LogisticRegression(0.02).fit(
        rest[list(FEATURES)], rest["outcome"], sites=rest["site"]
    )
    np.testing.assert_allclose(result.model.coef_, here.coef_, atol=1e-10)
    assert result.config["left_out"] == ["west"]
    assert any(event["event"] == "without" for event in events)


@pytest.mark.parametrize("comes_back", [True, False])
def test_last_sums_stand_for_a_site_that_is_away(tmp_path, comes_back):
    calls = {"west": 0}

    def fault(site, method, payload, call):
        calls["west"] += site == "west"
        if site == "west" and calls["west"] > 7 and not (comes_back and calls["west"] > 9):
            raise ConnectionError("no route")
        return call()

    text = declare('family = "binomial"\nalpha = 0.02\nmissing = "last"')
    if comes_back:
        text = text.replace("alpha = 0.02", "alpha = 0.002")  # rounds enough
    table, result, events = fitted(tmp_path, text, fault)
    here = linear_model.LogisticRegression(0.002 if comes_back else 0.02).fit(
        table[list(FEATURES)], table["outcome"], sites=table["site"]
    )
    told = [event["sites"] for event in events if event["event"] == "last"]
    assert told[0] == ["west"] and result.config["stood_in"]["west"] >= 1
    gap = np.abs((result.model.coef_ - here.coef_) * here.deviations_).max()
    assert result.config["ended_badly"] is not comes_back
    if comes_back:
        assert told == [["west"], []] and gap < 1e-6
    else:
        assert 1e-6 < gap < 1 and "not the coefficients of all" in result.config["summary"]


def test_a_site_answers_no_more_than_it_agreed_to(tmp_path):
    _, result, events = fitted(tmp_path, declare('family = "binomial"\nalpha = 0.02', rounds=3))
    assert result.model is None
    assert any("agreed to 3 rounds" in e.get("reason", "") for e in events)


def test_requests_of_a_wrong_form_are_refused(tmp_path):
    federation, handlers = workers(
        tmp_path, declare('family = "binomial"\nalpha = 0.1'), split(frame())
    )
    handle = handlers["north"]
    handle("hello", encode({"federation": federation.text, "run": "first"}))
    about = {"federation": federation.hash, "run": "first", "round": 0}
    p = len(FEATURES)
    good = {
        "points": np.zeros((1, 1 + p)),
        "problems": np.zeros(1, int),
        "hessians": np.ones(1, bool),
        "columns": np.arange(p),
        "mean": np.zeros(p),
        "scale": np.ones(p),
        "intercept": True,
    }
    assert handle("sums", encode(about, pack_request("evaluate", good)))
    wrong = {
        "points": np.full((1, 1 + p), np.nan),
        "problems": np.array([7]),
        "columns": np.array([0, 99]),
        "hessians": np.array([5]),  # numbers
        "scale": -np.ones(p),
        "mean": np.zeros(p + 1),
    }
    for name, value in wrong.items():
        with pytest.raises(CompositeFLError, match="refused a request"):
            handle("sums", encode(about, pack_request("evaluate", good | {name: value})))
    for number in (np.nan, np.inf, 2.0, 9, -1, True, [2]):
        arrays = pack_request("evaluate", good) | {"method": np.array(number)}
        with pytest.raises(CompositeFLError, match="the request names no method") as caught:
            handle("sums", encode(about, arrays))
        assert type(caught.value) is CompositeFLError


@pytest.mark.parametrize(
    ("glm", "words"),
    [
        ('family = "binomal"\nalpha = 1', "did you mean 'binomial'"),
        ('family = "binomial"', "either alpha"),
        ('family = "binomial"\nalpha = -1', "alpha=-1"),
        ('family = "huber"\ncv = 5', "give alpha"),
        ('family = "cox"\nalpha = 0', "event names"),
        ('family = "binomial"\nalpha = 1\nmissing = "hope"', "missing"),
        ('family = "multinomial"\nalpha = 1', "labels must name"),
        ('family = "binomial"\ncv = 4\nscoring = "nonsense"', "scoring='nonsense'"),
        ('family = "binomial"\nalpha = 1\npenalty = "mpc"', "did you mean 'mcp'"),
        ('family = "binomial"\nalpha = 1\npenalty = 3', "penalty=3 must be a word"),
        ('family = "binomial"\nalpha = 1\nl1_ratio = 7.0', "l1_ratio=7"),
        ('family = "binomial"\nalpha = 1\nl1_ratio = "a"', "l1_ratio='a' must be in"),
        ('family = "binomial"\ncv = 4\nalphas = 0', "alphas=0"),
        ('family = "binomial"\ncv = 4\nalphas = 100000000000', "must be at most 10000"),
        ('family = "binomial"\ncv = 100000000000', "must be at most 1000 folds"),
        ('family = "binomial"\ncv = 4\nalphas = "x"', "alphas='x' must be a number of alphas"),
        ('family = "binomial"\ncv = 4\nalphas = [-1.0]', "alpha"),
        ('family = "binomial"\nalpha = 1\npenalty_factor = [-1.0, 1, 1, 1, 1]', "penalty_factor"),
        ('family = "binomial"\nalpha = 1\nfit_intercept = "no"', "fit_intercept='no' must be true"),
        ('family = "binomial"\nalpha = 1\nweight = "mean radius"', "is a feature or the target"),
        (f'family = "binomial"\nalpha = 1\npenalty = "{TRAP}:Harsh:1"', "is not accepted here"),
    ],
)
def test_what_a_federation_cannot_say(glm, words):
    trap.SPRUNG.clear()
    with pytest.raises(CompositeFLError, match=words):
        Federation.parse(declare(glm)).check()
    assert not trap.SPRUNG


def test_the_penalty_of_an_accepted_module_is_used_at_the_server_alone(tmp_path):
    glm = 'family = "binomial"\nalpha = 1\npenalty = "compositefl.regularizers:L1:0.02"'
    table, result, _ = fitted(tmp_path, declare(glm))
    here = linear_model.LogisticRegression(0.02).fit(
        table[list(FEATURES)], table["outcome"], sites=table["site"]
    )
    np.testing.assert_allclose(result.model.coef_, here.coef_, atol=1e-8)


def test_folds_of_few_rows_are_refused(tmp_path):
    """A fold's sums are those of all rows less those without the fold."""
    table = frame()
    tables = split(table) | {"north": split(table)["north"].head(9)}
    federation, handlers = workers(tmp_path, declare('family = "binomial"\ncv = 4'), tables)
    hello = encode({"federation": federation.text, "run": "first"})
    assert handlers["south"]("hello", hello)
    with pytest.raises(CompositeFLError, match="cv=4 leaves folds of fewer rows than the minimum"):
        handlers["north"]("hello", hello)


def test_a_dry_run_tells_of_rows_that_the_sums_give_away(tmp_path):
    table = split(frame())["north"]
    table["worst area"] = (np.arange(len(table)) == 3) * 1.0
    text = declare('family = "binomial"\nalpha = 0.02')
    federation, _ = workers(tmp_path, text, {"north": table})
    site = Site("north", (federation.hash,), tmp_path / "north", train={"file": "data.csv"})
    (note,) = dry_run(site, federation).notes
    assert "fewer than 5 rows differ from all others in column 'worst area'" in note


@pytest.mark.parametrize(("glm", "score"), [("alpha = 0.1", "auc"), ("cv = 4", "accuracy")])
def test_a_site_scores_only_what_it_agreed_to(tmp_path, glm, score):
    declared = declare(f'family = "binomial"\n{glm}')
    federation, handlers = workers(tmp_path, declared, split(frame()))
    handlers["north"]("hello", encode({"federation": federation.text, "run": "first"}))
    p = len(FEATURES)
    request = {"points": np.zeros((1, 1 + p)), "problems": np.zeros(1, int), "score": score}
    request |= {"mean": np.zeros(p), "scale": np.ones(p)}
    about = {"federation": federation.hash, "run": "first", "round": 0}
    ask = lambda **more: handlers["north"](  # noqa: E731
        "sums", encode(about, pack_request("validate", request | more))
    )
    with pytest.raises(CompositeFLError, match=f"agreed to no score {score}"):
        ask()
    if "cv" in glm:
        assert ask(score="deviance")


def test_missing_values_are_filled_with_the_mean_over_all_sites(tmp_path):
    table = frame()
    table.loc[table.index[::11], "mean texture"] = np.nan
    text = declare('family = "binomial"\nalpha = 0.02\nimpute = "mean"')
    federation, handlers = workers(tmp_path, text, split(table))
    result = GLMCoordinator(federation, InProcess(handlers), tmp_path / "server", "first").run()
    here = linear_model.LogisticRegression(0.02, impute="mean").fit(
        table[list(FEATURES)], table["outcome"], sites=table["site"]
    )
    np.testing.assert_allclose(result.model.coef_, here.coef_, atol=1e-10)
