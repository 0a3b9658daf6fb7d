"""FedMSPP: FedProx on one fresh minibatch a round (Yuan and Li, NeurIPS 2022, Algorithm 1)."""

from dataclasses import KW_ONLY

from compositefl.algorithms.fedprox import FedProx
from compositefl.algorithms.fedprox_nonsmooth import FedProxNonsmooth
from compositefl.core.component import component


@component
class FedMSPP(FedProx):
    """x_i ~ argmin_u (1/b) sum_j loss(u; z_j) + ||u - x||^2/(2 eta), z_1, ..., z_b drawn anew.

    The minibatch stays the same for the whole round, so the local solve is deterministic and the
    accuracy rule of FedProx is a fact about the minibatch problem (Definition 3: the gap is at
    most ||gradient||^2/(2m)). With full batches it is FedProx. Partial participation as there.
    """

    paper = "Yuan, Li (2022), Algorithm 1 and Theorem 3"
    one_minibatch = True

    _: KW_ONLY
    accuracy: float = 1e-3


@component
class FedMSPPNonsmooth(FedProxNonsmooth):
    """FedMSPP with the certified solver, for nonsmooth weakly convex losses.

    Everything as in FedProxNonsmooth, on one fresh minibatch of each client a round.
    """

    paper = "Yuan, Li (2022), Algorithm 1 and Theorem 4"
    exact_gradients = False
    one_minibatch = True
