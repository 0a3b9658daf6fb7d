"""What a theorem is made of: constants of a problem, a rule for the steps, a bound, conditions."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from compositefl.core.errors import (
    CompositeFLError,
    require_integer,
    require_nonnegative,
    require_positive,
    wrong_value,
)

# A theorem's steps by the fields of `StepSizes`: numbers, None for what the method does not have.
Steps: TypeAlias = dict[str, Any]

ROUNDING = 1e-9  # a step this much (relatively) above its limit is a rounding error


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of a problem psi = f + phi, f = (1/n) sum_i f_i; what is None is not known.

    The start is x_0 = prox(z_0), with FedNMap's gamma (for ZA1 with eta_hat): `delta` and the
    three squared norms depend on it.
    """

    L: float  # smoothness of each f_i
    clients: int  # n
    rho: float = 0.0  # weak convexity of phi
    sigma: float = 0.0  # standard deviation of one stochastic gradient, at the batch size used
    delta: float | None = None  # psi(x_0) - psi*
    mu: float | None = None  # PL or strong convexity modulus
    nu: float | None = None  # weak convexity of a client's loss; L + rho if None
    lipschitz: float | None = None  # G, Lipschitz constant of the losses
    subgradient: float | None = None  # B_g, bound on the subgradients of phi; may be infinite
    zeta: float | None = None  # heterogeneity, sup ||grad f_i - grad f||
    normal_map_sq: float | None = None  # ||F_nor(z_0)||^2
    prox_gap_sq: float | None = None  # ||prox(z_0) - z_0||^2
    gradients_sq: float | None = None  # (1/n) sum_i ||grad f_i(x_0)||^2

    def __post_init__(self) -> None:
        require_positive(L=self.L)
        require_integer(clients=self.clients)
        require_nonnegative(rho=self.rho, sigma=self.sigma)
        for name in (
            *("delta", "nu", "lipschitz", "zeta"),
            *("normal_map_sq", "prox_gap_sq", "gradients_sq"),
        ):
            if getattr(self, name) is not None:
                require_nonnegative(**{name: getattr(self, name)})
        if self.mu is not None:
            require_positive(mu=self.mu)
        if self.subgradient is not None and not self.subgradient >= 0:
            raise wrong_value("subgradient", self.subgradient, "a number >= 0")

    def need(self, name: str, who: str) -> float:
        """The constant `name`, or an error that says who needs it."""
        value = getattr(self, name)
        if value is None:
            raise CompositeFLError(f"{who} needs the constant {name}; Constants has {name}=None")
        return value

    @property
    def dissimilarity_sq(self) -> float | None:
        """An upper bound on (1/n) sum_i ||grad f_i(x_0) - grad f(x_0)||^2."""
        known = [self.gradients_sq, None if self.zeta is None else self.zeta**2]
        return min((value for value in known if value is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run: T rounds of Q local steps; steps that are given here are kept by the rules."""

    rounds: int
    local_steps: int
    batch_size: int | None = None
    participants: int | None = None  # clients in a round, None for all
    gamma: float | None = None
    local_lr: float | None = None
    server_lr: float | None = None
    m: int | None = None  # rounds that FedNMap's analysis takes together
    envelope: float | None = None  # parameter of the Moreau envelope, FedProx Theorems 2 and 4

    def __post_init__(self) -> None:
        require_integer(rounds=self.rounds, local_steps=self.local_steps)
        for name in ("batch_size", "participants", "m"):
            if getattr(self, name) is not None:
                require_integer(**{name: getattr(self, name)})
        for name in ("gamma", "local_lr", "server_lr", "envelope"):
            if getattr(self, name) is not None:
                require_positive(**{name: getattr(self, name)})

    def split(self, eta_hat: float, local_lr: float) -> tuple[float, float]:
        """(eta_a, eta_s) with eta_a eta_s Q = eta_hat, from what is given and the two limits."""
        steps = self.local_steps
        if self.server_lr is not None:
            chosen = self.local_lr or min(local_lr, eta_hat / (self.server_lr * steps))
            return chosen, self.server_lr
        chosen = self.local_lr or local_lr
        return chosen, eta_hat / (chosen * steps)


class Theorem:
    """One theorem: `choose` the steps, the `terms` of its bound, and what its conditions forbid."""

    name: ClassVar[str]
    measures: ClassVar[str]  # what the bound is a bound of
    exact: ClassVar[bool] = True  # False: the paper gives the bound up to a constant factor
    full_participation: ClassVar[bool] = True  # the theorem covers nothing else

    def choose(self, c: Constants, s: Setting) -> Steps:
        """The steps, as the fields of `StepSizes`."""
        raise NotImplementedError

    def terms(self, c: Constants, steps: "StepSizes", rounds: int) -> dict[str, float]:
        """The terms of the right-hand side after `rounds` rounds with these steps."""
        raise NotImplementedError

    def violations(self, c: Constants, s: Setting, steps: Steps) -> Iterator[str]:
        """The conditions that `steps` violates, in words."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class StepSizes:
    """Step sizes of a theorem, with its bound. A field that the method does not have is None."""

    theorem: str
    measures: str  # what `bound` bounds
    exact: bool  # False: the paper states the bound up to a constant factor only
    gamma: float | None = None
    local_lr: float | None = None
    server_lr: float | None = None
    eta: float | None = None  # FedProx, FedMSPP: weight 1/(2 eta) of the local quadratic
    eps: float | None = None  # their accuracy of the local problem, as a gap of its objective
    m: int | None = None  # FedNMap: rounds that the analysis takes together
    envelope: float | None = None  # parameter of the Moreau envelope that is measured
    notes: tuple[str, ...] = ()
    setting: Setting = field(repr=False)
    constants: Constants = field(repr=False)
    rule: Theorem = field(repr=False)

    @property
    def eta_hat(self) -> float | None:
        """Effective step of a round, eta_a eta_s Q."""
        if self.local_lr is None or self.server_lr is None:
            return None
        return self.local_lr * self.server_lr * self.setting.local_steps

    def terms(self, rounds: int | None = None) -> dict[str, float]:
        """The terms of the bound after `rounds` rounds with these steps, by name."""
        outside = self.admissible()
        if outside:
            raise CompositeFLError(f"the bound of {self.theorem} does not hold: {outside[0]}")
        rounds = self.setting.rounds if rounds is None else rounds
        require_integer(rounds=rounds)
        return self.rule.terms(self.constants, self, rounds)

    def bound(self, rounds: int | None = None) -> float:
        """The right-hand side of the theorem after `rounds` rounds, the sum of `terms`."""
        return sum(self.terms(rounds).values())

    def admissible(
        self,
        local_lr: float | None = None,
        server_lr: float | None = None,
        gamma: float | None = None,
        eta: float | None = None,
    ) -> list[str]:
        """The theorem's conditions that these steps violate; empty when they are inside.

        What is not given is taken from this object.
        """
        given = {"local_lr": local_lr, "server_lr": server_lr, "gamma": gamma, "eta": eta}
        steps = {k: getattr(self, k) if v is None else v for k, v in given.items()}
        return list(self.rule.violations(self.constants, self.setting, steps))


def above(name: str, value: float, limit: float, formula: str) -> Iterator[str]:
    """The sentence for a value above its limit; nothing when it is not."""
    if not value <= limit * (1 + ROUNDING):
        yield f"{name}={value:.4g} is above {formula} = {limit:.4g}"


def smallest(function: Callable[[float], float], limit: float) -> float:
    """The step in (0, limit] with the smallest function value, on a fine grid.

    Values that are not finite (an unknown constant made them so) leave the limit itself.
    """
    grid = [limit * 10 ** (-k / 50) for k in range(251)]
    return min(grid, key=lambda step: value if math.isfinite(value := function(step)) else math.inf)
