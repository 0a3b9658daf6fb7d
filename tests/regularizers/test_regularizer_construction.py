"""Right and wrong calls: constructors, shapes, and the command line's names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl.regularizers as R
from compositefl.core.errors import CompositeFLError

NAN, INF = float("nan"), float("inf")

RIGHT = [
    lambda: R.Zero(),
    lambda: R.L1(0),
    lambda: R.L1(weight=jnp.float32(0.1)),
    lambda: R.ElasticNet(l1=0.0, l2=0),
    lambda: R.MCP(0.0, 1e-3),
    lambda: R.SCAD(1),
    lambda: R.SCAD(1, a=2.001),
    lambda: R.GroupLasso(0.1, "columns", group_weights="sqrt-size"),
    lambda: R.GroupLasso(0.1, [0, 0, 1]),
    lambda: R.GroupLasso(0.1, np.array([5, 0, 5])),
    lambda: R.Box(0, INF),
    lambda: R.Box(-INF, INF),
    lambda: R.Box(1, 1),
    lambda: R.Simplex(),
    lambda: R.TwoFour(0.1, bound=3),
]


@pytest.mark.parametrize("make", RIGHT)
def test_right_calls(make):
    assert isinstance(make(), R.Regularizer)


NON_NEGATIVE = "must be a finite number >= 0"
POSITIVE = "must be a finite number > 0"
WRONG = [
    (lambda: R.L1(-1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.L1(NAN), f"weight=nan {NON_NEGATIVE}"),
    (lambda: R.L1(INF), f"weight=inf {NON_NEGATIVE}"),
    (lambda: R.SquaredL2(-0.5), f"weight=-0.5 {NON_NEGATIVE}"),
    (lambda: R.ElasticNet(-1, 0), f"l1=-1 {NON_NEGATIVE}"),
    (lambda: R.ElasticNet(0, NAN), f"l2=nan {NON_NEGATIVE}"),
    (lambda: R.MCP(-1, 1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.MCP(1, 0), f"theta=0 {POSITIVE}"),
    (lambda: R.SCAD(-1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.SCAD(1, 2), "a=2 must be a finite number > 2"),
    (lambda: R.SCAD(1, NAN), "a=nan must be a finite number > 2"),
    (lambda: R.LogSum(-1, 1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.LogSum(1, -2), f"theta=-2 {POSITIVE}"),
    (lambda: R.TransformedL1(NAN, 1), f"weight=nan {NON_NEGATIVE}"),
    (lambda: R.TransformedL1(1, 0), f"a=0 {POSITIVE}"),
    (lambda: R.GroupLasso(-1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.GroupLasso(1, "row"), "unknown groups 'row'; did you mean 'rows'?"),
    (lambda: R.GroupLasso(1, [0.5, 1.0]), "groups must be one of rows, columns, channels, filters"),
    (lambda: R.GroupLasso(1, []), "groups must be one of rows, columns, channels, filters"),
    (lambda: R.GroupLasso(1, None), "groups must be one of rows, columns, channels, filters"),
    (lambda: R.GroupLasso(1, "rows", "sqrt"), "unknown group_weights 'sqrt'; did you mean 'sqrt-"),
    (lambda: R.SparseGroupLasso(-1, 1), f"l1=-1 {NON_NEGATIVE}"),
    (lambda: R.SparseGroupLasso(1, -1), f"l2=-1 {NON_NEGATIVE}"),
    (lambda: R.SparseGroupLasso(1, 1, "cols"), "unknown groups 'cols'; did you mean 'columns'?"),
    (lambda: R.NuclearNorm(-1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.LInf(-1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.Box(2, 1), "lower=2 must be <= upper=1"),
    (lambda: R.Box(INF, INF), "lower=inf must be <= upper=inf, with numbers between them"),
    (lambda: R.Box(-INF, -INF), "lower=-inf must be <= upper=-inf"),
    (lambda: R.Box(NAN, 1), "lower=nan must be <= upper=1"),
    (lambda: R.L2Ball(0), f"radius=0 {POSITIVE}"),
    (lambda: R.L1Ball(-1), f"radius=-1 {POSITIVE}"),
    (lambda: R.Simplex(0), f"total=0 {POSITIVE}"),
    (lambda: R.TotalVariation1D(-1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.TwoFour(-1), f"weight=-1 {NON_NEGATIVE}"),
    (lambda: R.TwoFour(1, 0), f"bound=0 {POSITIVE}"),
]


@pytest.mark.parametrize(("make", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_calls(make, text):
    with pytest.raises(CompositeFLError) as error:
        make()
    assert str(error.value).startswith(text)


ADVICE = "; use ByName to give leaves different regularizers"
SHAPES = [
    (R.GroupLasso(1), (3,), "has no rows: they need a matrix"),
    (R.GroupLasso(1), (2, 3, 4), "has no rows: they need a matrix"),
    (R.SparseGroupLasso(1, 1, "columns"), (3,), "has no columns: they need a matrix"),
    (R.GroupLasso(1, "channels"), (), "has no channels: they need at least one axis"),
    (R.GroupLasso(1, "filters"), (), "has no filters: they need at least one axis"),
    (R.GroupLasso(1, (0, 0, 1)), (4,), "does not fit 3 group ids: it must have 3 entries"),
    (R.NuclearNorm(1), (3,), "is not a matrix"),
    (R.TwoFour(1), (4, 6), "does not split into groups of 4 along its last axis"),
    (R.TwoFour(1), (), "does not split into groups of 4 along its last axis"),
]


@pytest.mark.parametrize(("phi", "shape", "problem"), SHAPES)
def test_wrong_shapes_are_refused_with_the_leaf_and_its_shape(phi, shape, problem):
    x = {"layer": [jnp.zeros(shape)]}
    text = f"{type(phi).__name__}: leaf 'layer/0' of shape {shape} {problem}{ADVICE}"
    for call in (phi.check_tree, phi.value, jax.jit(lambda x: phi.prox(x, 1.0))):
        with pytest.raises(CompositeFLError) as error:
            call(x)
        assert str(error.value) == text


def test_shapes_that_fit():
    R.GroupLasso(1, "channels").check_tree({"a": jnp.zeros(3), "b": jnp.zeros((2, 2, 3, 4))})
    R.NuclearNorm(1).check_tree([jnp.zeros((2, 3)), jnp.zeros((2, 3, 4))])
    R.TwoFour(1).check_tree([jnp.zeros(8), jnp.zeros((3, 4))])


PARSED = [
    ("zero", R.Zero()),
    ("l1:0.1", R.L1(0.1)),
    ("squared-l2:1e-3", R.SquaredL2(0.001)),
    ("elastic-net:0.001,0.01", R.ElasticNet(0.001, 0.01)),
    ("mcp:1,2", R.MCP(1.0, 2.0)),
    ("scad:0.5", R.SCAD(0.5, 3.7)),
    ("scad:0.5,4", R.SCAD(0.5, 4.0)),
    ("log-sum:1,2", R.LogSum(1.0, 2.0)),
    ("transformed-l1:1,2", R.TransformedL1(1.0, 2.0)),
    ("group-lasso:0.1", R.GroupLasso(0.1)),
    ("group-lasso:0.1,columns", R.GroupLasso(0.1, "columns")),
    ("sparse-group-lasso: 0.1, 0.2, channels, sqrt-size",
     R.SparseGroupLasso(0.1, 0.2, "channels", "sqrt-size")),
    ("nuclear-norm:0.1", R.NuclearNorm(0.1)),
    ("linf:0.1", R.LInf(0.1)),
    ("box:-1,1", R.Box(-1.0, 1.0)),
    ("box:0,inf", R.Box(0.0, INF)),
    ("nonnegative", R.NonNegative()),
    ("l2-ball:2", R.L2Ball(2.0)),
    ("l1-ball:2", R.L1Ball(2.0)),
    ("simplex", R.Simplex()),
    ("simplex:2", R.Simplex(2.0)),
    ("total-variation:0.1", R.TotalVariation1D(0.1)),
    ("two-four:0.1,2", R.TwoFour(0.1, 2.0)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "phi"), PARSED, ids=[text for text, _ in PARSED])
def test_parse(text, phi):
    assert R.parse(text) == phi


def test_every_name_is_parsed_by_some_row():
    assert {text.partition(":")[0] for text, _ in PARSED} == set(R.REGULARIZERS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("elasticnet:1,2", "unknown regularizer 'elasticnet'; did you mean 'elastic-net'?"),
        ("", "unknown regularizer ''"),
        ("l1", "'l1' has 0 parameters; expected l1:weight"),
        ("l1:1,2", "'l1:1,2' has 2 parameters; expected l1:weight"),
        ("zero:1", "'zero:1' has 1 parameters; expected zero, without parameters"),
        ("elastic-net:1", "'elastic-net:1' has 1 parameters; expected elastic-net:l1,l2"),
        ("scad", "'scad' has 0 parameters; expected scad:weight,[a=3.7]"),
        ("l1:abc", "'l1:abc': weight=abc is not a number"),
        ("box:-1,", "'box:-1,': upper= is not a number"),
        ("l1:-1", "weight=-1.0 must be a finite number >= 0"),
        ("group-lasso:1,column", "unknown groups 'column'; did you mean 'columns'?"),
    ],
)
def test_parse_errors_are_one_line_that_says_what_is_expected(text, message):
    with pytest.raises(CompositeFLError) as error:
        R.parse(text)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
