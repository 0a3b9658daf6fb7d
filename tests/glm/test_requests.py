"""Whatever a server asks, a site answers in the shapes that were agreed to, or refuses."""

import numpy as np
import pytest
from scipy import sparse

from compositefl.core.errors import CompositeFLError
from compositefl.glm.families import family
from compositefl.glm.requests import ENTRIES, answer_shapes, check_request
from compositefl.glm.site import Site

N, P, PROBLEMS = 30, 3, 3  # samples, features, and two folds besides the fit to all


def make_site(name, form=np.asarray):
    rng = np.random.default_rng(50)
    x = rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.5)
    y = np.arange(N) % (3 if name == "multinomial" else 2) + (name == "gamma")
    if name == "cox":
        y = np.column_stack([1 + np.arange(N) % 7, np.arange(N) % 2])
    site = Site("here", family(name), form(x), y, classes=3 if name == "multinomial" else 2)
    site.draw(PROBLEMS - 1, 0)
    return site


SITES = {name: make_site(name) for name in ("gaussian", "binomial", "multinomial", "gamma", "cox")}
SITES |= {"huber": make_site("huber"), "sparse": make_site("binomial", sparse.csr_array)}


def good(site, method):
    """All entries that a request may have."""
    if method == "describe":
        return {"problems": PROBLEMS}
    if method == "spread":
        return {"problems": PROBLEMS, "mean": np.full(P, 0.1)}
    size = (1 + P) * site.outputs + site.family.has_scale
    request = {
        "points": np.full((2, size), 0.5),
        "problems": np.array([0, 2]),
        "mean": np.full(P, 0.1),
        "scale": np.ones(P),
    }
    if method == "evaluate":
        more = {"hessians": np.array([True, False]), "columns": np.array([0, 2])}
        return request | more | {"intercept": site.family.intercept, "expected": True}
    if site.family.response != "class" or site.classes > 2:
        return request | {"score": "deviance"}
    return request | {"score": "auc", "centre": np.zeros(2), "spread": np.ones(2)}


def answered(site, method, request):
    """Whether a request is answered and not refused; anything else is a failure."""
    try:
        check_request(site, method, request, PROBLEMS)
    except CompositeFLError as error:
        assert type(error) is CompositeFLError and str(error).startswith("refused a request: ")
        assert len(str(error)) < 300 and "\n" not in str(error)
        return False
    with np.errstate(all="ignore"):
        answer = getattr(site, method)(**request)
    targets = site.classes if site.family.response == "class" else 1
    shapes = answer_shapes(
        method,
        request,
        features=P,
        targets=targets,
        outputs=site.outputs,
        scale=site.family.has_scale,
    )
    assert {name: np.shape(value) for name, value in answer.items()} == shapes
    return True


def wrong_kinds(right):
    """Values that have no business in the place of the right one, by name."""
    numbers = np.atleast_1d(np.asarray(0.0 if isinstance(right, str) else right, float))
    kinds = {
        "number": 1,
        "zero": 0,
        "negative": -1,
        "float": 3.0,
        "huge": 10**400,
        "huge float": 1e308,
        "NaN": np.nan,
        "infinite": np.inf,
        "true": True,
        "false": False,
        "word": "deviance",
        "no word": "\x00",
        "bytes": b"auc",
        "nothing": None,
        "list": numbers.tolist(),
        "tuple": (),
        "dict": {"a": {"b": {"c": 1}}},
        "object": object(),
        "NumPy's number": np.float64(3.0),
        "scalar array": np.array(3),
        "scalar array of floats": np.array(3.0),
        "scalar array of words": np.array("auc"),
        "empty": numbers[:0],
        "shorter": numbers[1:],
        "longer": np.concatenate([numbers, numbers]),
        "axis more": numbers[None],
        "axes more": numbers[None, None, None],
        "many": np.zeros(10_000, int),
        "masked": np.ma.masked_array(numbers, numbers > 0),
        "sparse": sparse.csr_array(np.atleast_2d(numbers)),
    }
    for kind in ("f8", "f4", "f2", ">f8", "g", "i8", "i4", "i1", "u4", "u1", "?", "c16", "O", "U4"):
        kinds[f"of type {kind}"] = numbers.astype(kind)
    kinds["dates"] = numbers.astype(int).astype("M8[s]")
    kinds["records"] = np.zeros(numbers.shape, [("a", "f8"), ("b", "i8")])
    for value in (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, -1.0, 0.0, 2.0**62):
        kinds[f"full of {value}"] = np.full(numbers.shape, value)
    for value in (-1, 0, 1, 2, 2**62, -(2**63)):
        kinds[f"full of whole {value}"] = np.full(numbers.shape, value)
    return kinds


FIELDS = [(m, name) for m, parts in ENTRIES.items() for name in sorted(set().union(*parts))]


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("method", ENTRIES)
def test_good_requests_are_answered(method, name):
    site = SITES[name]
    request = good(site, method)
    assert answered(site, method, request)
    assert answered(site, method, {key: request[key] for key in ENTRIES[method][0]})


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize(("method", "field"), FIELDS)
def test_wrong_kinds_are_refused(method, field, name):
    site = SITES[name]
    request = good(site, method)
    kinds = wrong_kinds(request.get(field, np.zeros(2)))
    taken = {
        kind for kind, value in kinds.items() if answered(site, method, request | {field: value})
    }
    # only arrays of the right kind and words for words are right, by chance
    assert not taken & {"float", "huge", "NaN", "nothing", "dict", "list", "scalar array", "many"}
    if field not in ("intercept", "expected"):
        assert not taken & {"true", "false"}
    if field in ENTRIES[method][0]:
        assert not answered(site, method, {k: v for k, v in request.items() if k != field})


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("method", ["evaluate", "validate"])
def test_linear_predictors_that_overflow_have_an_answer(method, name):
    request = good(SITES[name], method)
    signs = np.where(np.arange(request["points"].shape[1]) % 2, 1.0, -1.0)
    for scale in (1.0, 1e-300):
        extreme = {"points": np.tile(1e308 * signs, (2, 1)), "scale": np.full(P, scale)}
        assert answered(SITES[name], method, request | extreme)


WRONG = [  # of which family, method, entries that differ, what the refusal says
    ("gaussian", "describe", {"problems": 3.0}, "problems must be 3"),
    ("gaussian", "describe", {"problems": np.array([3])}, "problems must be 3"),
    ("gaussian", "describe", {"more": 1}, "describe must have problems"),
    ("gaussian", "spread", {"mean": np.zeros(P, np.float32)}, "mean must be numbers of shape"),
    ("gaussian", "evaluate", {"columns": np.array(1)}, "columns must be features"),
    ("gaussian", "evaluate", {"columns": np.array([1, 1])}, "columns must be features"),
    ("gaussian", "evaluate", {"hessians": np.array(True)}, "hessians must be true or false for"),
    ("gaussian", "evaluate", {"intercept": 1}, "intercept must be true or false"),
    ("cox", "evaluate", {"intercept": True}, "intercept must be false for the family cox"),
    ("cox", "validate", {"score": "pearson"}, "score must be one of c_index, deviance"),
    ("multinomial", "validate", {"score": "auc"}, "score must be one of accuracy, deviance"),
    ("binomial", "validate", {"score": np.array([1])}, "score must be one of accuracy, auc, devi"),
    ("binomial", "validate", {"score": "accuracy"}, "centre and spread go with the score auc"),
    ("binomial", "validate", {"spread": None}, "spread must be numbers of shape"),
]


@pytest.mark.parametrize(("name", "method", "changes", "text"), WRONG)
def test_refusals_say_what_is_allowed(name, method, changes, text):
    request = good(SITES[name], method) | changes
    with pytest.raises(CompositeFLError, match=f"^refused a request: {text}"):
        check_request(SITES[name], method, request, PROBLEMS)


@pytest.mark.parametrize("alone", ["centre", "spread"])
def test_the_bins_of_a_histogram_need_both_numbers(alone):
    request = good(SITES["binomial"], "validate")
    del request["spread" if alone == "centre" else "centre"]
    with pytest.raises(CompositeFLError, match="refused a request: centre and spread go together"):
        check_request(SITES["binomial"], "validate", request, PROBLEMS)


@pytest.mark.parametrize("method", ["draw", "__init__", "", None, 0, ["describe"], {}])
def test_other_methods_are_refused(method):
    with pytest.raises(CompositeFLError, match="refused a request: it must be one of describe"):
        check_request(SITES["gaussian"], method, {"problems": PROBLEMS}, PROBLEMS)
