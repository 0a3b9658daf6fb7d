"""The parameter `penalty` of an estimator: a name, or a regulariser of the library."""

from typing import TYPE_CHECKING, Any

from compositefl.core.errors import CompositeFLError

if TYPE_CHECKING:
    from compositefl.regularizers.base import Regularizer

RATIOS = {"l1": 1.0, "l2": 0.0}
NONCONVEX = {"mcp": 3.0, "scad": 3.7}  # with their usual second numbers
NAMES = ("elasticnet", "none", *RATIOS, *NONCONVEX)  # all that are no regulariser of the library


def chosen_penalty(
    penalty: "Regularizer | str | None", *, path: bool
) -> tuple["Regularizer | None", dict[str, Any]]:
    """(regulariser or None for the elastic net, changes of the specification).

    path: the alphas are weights of the regulariser; else it has its own.
    """
    if penalty is None or (isinstance(penalty, str) and penalty == "elasticnet"):
        return None, {}
    if isinstance(penalty, str) and penalty == "none":
        if path:
            raise CompositeFLError(
                "penalty='none' has no alpha to choose; the estimator without CV takes it",
                parameter="penalty",
                value=penalty,
            )
        return None, {"alphas": [0.0]}
    if isinstance(penalty, str) and penalty in RATIOS:
        return None, {"l1_ratio": RATIOS[penalty]}
    from compositefl.regularizers import MCP, SCAD, Regularizer, parse

    if isinstance(penalty, str) and penalty in NONCONVEX:
        made = {"mcp": MCP, "scad": SCAD}[penalty](1.0, NONCONVEX[penalty])
        return made, {}
    phi = parse(penalty) if isinstance(penalty, str) else penalty
    if not isinstance(phi, Regularizer):
        raise CompositeFLError(
            f"penalty={penalty!r} must be None, 'l1', 'l2', 'elasticnet', 'none', 'mcp', 'scad' or "
            "a regulariser of the library, such as compositefl.GroupLasso(0.1)",
            parameter="penalty",
            value=penalty,
        )
    if path and not phi.has_field("weight"):
        raise CompositeFLError(
            f"penalty={penalty!r} has no weight that the alphas of a path could be; the estimator "
            "without CV takes it",
            parameter="penalty",
            value=penalty,
        )
    return phi, ({} if path else {"alphas": None})
