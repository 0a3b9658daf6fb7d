"""What stands for a site that is away: the quadratic of its last loss, gradient and Hessian.

A server that is asked to goes on with it. The fit then is not that of all tables; once the site is
back and answers, it is again.
"""

from dataclasses import dataclass, replace

import numpy as np

from compositefl.glm.layout import hessian_index, symmetric
from compositefl.glm.site import Request, Sums

Array = np.ndarray


@dataclass(frozen=True)
class Quadratic:
    """A site's sums for one problem around the last point that it was asked for."""

    point: Array
    loss: float
    gradient: Array
    hessian: Array  # may be of an earlier point
    index: Array  # entries of the Hessian


class StandIn:
    """The last answers of one site, by problem."""

    def __init__(self, outputs: int, scale: bool):
        self.outputs, self.scale = outputs, scale
        self.kept: dict[int, Quadratic] = {}

    def keep(self, request: Request, answer: Sums) -> None:
        """Note the answer to a request for losses and derivatives."""
        index = self._index(request)
        triangles = iter(answer["hessian"])
        for i, problem in enumerate(request["problems"].tolist()):
            here = (request["points"][i], float(answer["loss"][i]), answer["gradient"][i])
            if request["hessians"][i]:
                hessian = symmetric(next(triangles), len(index))
                self.kept[problem] = Quadratic(*here, hessian, index)
            elif problem in self.kept:
                old = self.kept[problem]
                self.kept[problem] = replace(old, point=here[0], loss=here[1], gradient=here[2])

    def answer(self, request: Request) -> Sums | None:
        """What the site would answer if it were its quadratics; None where one is not enough."""
        index = self._index(request)
        losses, gradients, triangles = [], [], []
        for i, problem in enumerate(request["problems"].tolist()):
            kept = self.kept.get(problem)
            if kept is None or not np.isin(index, kept.index).all():
                return None
            d = request["points"][i] - kept.point
            along = kept.hessian @ d[kept.index]
            gradient = kept.gradient.copy()
            gradient[kept.index] += along
            losses.append(kept.loss + kept.gradient @ d + 0.5 * d[kept.index] @ along)
            gradients.append(gradient)
            if request["hessians"][i]:
                at = np.searchsorted(kept.index, index)
                part = kept.hessian[np.ix_(at, at)]
                triangles.append(part[np.tril_indices(len(index))])
        size = len(index) * (len(index) + 1) // 2
        return {
            "loss": np.array(losses),
            "gradient": np.array(gradients),
            "hessian": np.array(triangles).reshape(len(triangles), size),
        }

    def _index(self, request: Request) -> Array:
        """The entries of the Hessians of a request, which rise."""
        size = request["points"].shape[1]
        return hessian_index(
            request["columns"], size, self.outputs, request["intercept"], self.scale
        )
