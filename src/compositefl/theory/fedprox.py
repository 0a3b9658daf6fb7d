"""FedProx, Theorems 1 and 2, and FedMSPP, Theorems 3 and 4 (Yuan and Li, NeurIPS 2022).

A client solves min_u f_i(u) + ||u - x_t||^2 / (2 eta) up to a gap of eps in its objective; the
losses are G-Lipschitz. The paper bounds a random iterate, up to a constant factor.
"""

import math
from collections.abc import Iterator

from compositefl.core.errors import CompositeFLError, wrong_value
from compositefl.theory.base import Constants, Setting, Steps, StepSizes, Theorem, above


class _Smooth(Theorem):
    """Theorems 1 and 3: L-smooth losses."""

    measures = "E ||grad f(x_{t*})||^2, t* uniform in 0..T-1"
    exact = False
    full_participation = False
    factor = 3.0

    def speedup(self, c: Constants, s: Setting) -> float:
        """How many clients (and samples) act together; infinite where the paper drops the term."""
        raise NotImplementedError

    def eta(self, c: Constants, s: Setting) -> float:
        t = s.rounds
        return min(t ** (-1 / 3), math.sqrt(self.speedup(c, s) / t)) / (self.factor * c.L)

    def eps(self, c: Constants, s: Setting, eta: float) -> float:
        raise NotImplementedError

    def choose(self, c: Constants, s: Setting) -> Steps:
        """eta and eps of the theorem; the inner gradient step local_lr = 1/(L + 1/eta) is ours."""
        eta = self.eta(c, s)
        eps = None if c.lipschitz is None else self.eps(c, s, eta)
        local_lr = s.local_lr or 1 / (c.L + 1 / eta)
        return {"eta": eta, "eps": eps, "local_lr": local_lr, "server_lr": s.server_lr or 1.0}

    def terms(self, c: Constants, steps: StepSizes, rounds: int) -> dict[str, float]:
        """(L Delta + G^2) max(T^(-2/3), (T I)^(-1/2)), b I for I in Theorem 3; eta tuned to T."""
        together = self.speedup(c, steps.setting)
        rate = max(rounds ** (-2 / 3), 1 / math.sqrt(rounds * together))
        return {
            "delta": rate * c.L * c.need("delta", self.name),
            "lipschitz": rate * c.need("lipschitz", self.name) ** 2,
        }

    def violations(self, c: Constants, s: Setting, steps: Steps) -> Iterator[str]:
        eta = self.eta(c, s)
        if steps["eta"] is not None and not math.isclose(steps["eta"], eta, rel_tol=1e-6):
            yield f"eta={steps['eta']:.4g} is not {eta:.4g}, what the theorem sets for these rounds"
        if steps["server_lr"] is not None and steps["server_lr"] != 1:
            yield f"server_lr={steps['server_lr']:.4g} is not 1"


class Theorem1(_Smooth):
    """FedProx, smooth losses, I clients a round."""

    name = "FedProx Theorem 1"

    def speedup(self, c: Constants, s: Setting) -> float:
        """I; with everyone taking part Remark 2 drops the term."""
        everyone = s.participants is None or s.participants >= c.clients
        return math.inf if everyone else s.participants or math.inf

    def eps(self, c: Constants, s: Setting, eta: float) -> float:
        """Theorem 1: min{2 L^2 G^2 eta^3 / (I^2 (L eta + 1)), G^2 eta / (2 I (L eta + 1))}."""
        i, g = s.participants or c.clients, c.need("lipschitz", self.name)
        return min(2 * c.L**2 * g**2 * eta**3 / i**2, g**2 * eta / (2 * i)) / (c.L * eta + 1)


class Theorem3(_Smooth):
    """FedMSPP, smooth losses, I clients a round with minibatches of b samples."""

    name = "FedMSPP Theorem 3"
    factor = 8.0

    def speedup(self, c: Constants, s: Setting) -> float:
        """b I."""
        return self.batch(s) * (s.participants or c.clients)

    def eps(self, c: Constants, s: Setting, eta: float) -> float:
        """The minimum, in Theorem 3, of G^2 eta / (2 (L eta + 1)), G^2 eta / (8 b^2) and
        L^2 G^2 eta^3 / (2 b I (L eta + 1)).
        """
        g, b, one = c.need("lipschitz", self.name), self.batch(s), c.L * eta + 1
        cubic = c.L**2 * g**2 * eta**3 / (2 * self.speedup(c, s) * one)
        return min(g**2 * eta / (2 * one), g**2 * eta / (8 * b**2), cubic)

    def violations(self, c: Constants, s: Setting, steps: Steps) -> Iterator[str]:
        """Those of Theorem 1, and full batches."""
        if s.batch_size is None:
            yield "there are no minibatches: with full batches the method is FedProx (Theorem 1)"
        else:
            yield from super().violations(c, s, steps)

    def batch(self, s: Setting) -> int:
        """The samples of a minibatch."""
        if s.batch_size is None:
            raise CompositeFLError(f"{self.name} needs batch_size, the samples of a minibatch")
        return s.batch_size


class _Nonsmooth(Theorem):
    """Theorems 2 and 4: nu-weakly convex losses, exact local solutions (eps = 0)."""

    measures = "E ||grad of the Moreau envelope of f with parameter `envelope`, at x_{t*}||^2"
    exact = False
    full_participation = False

    def choose(self, c: Constants, s: Setting) -> Steps:
        """eta = r / sqrt(T) with r < 1/(2 nu), by default half of that.

        For convex losses (nu = 0) every r is allowed; r = Delta / G^2 makes both terms equal.
        """
        nu = c.L + c.rho if c.nu is None else c.nu
        if s.envelope is not None:
            r = s.envelope
        elif nu > 0:
            r = 1 / (4 * nu)
        else:
            r = c.need("delta", self.name) / c.need("lipschitz", self.name) ** 2
        if not 0 < r * 2 * nu < 1 and nu > 0:
            raise wrong_value(
                "envelope", r, f"below 1/(2 nu) = {1 / (2 * nu):.4g}", shown=f"{r:.4g}"
            )
        steps = {"server_lr": s.server_lr or 1.0, "local_lr": s.local_lr}
        return {**steps, "eta": r / math.sqrt(s.rounds), "eps": 0.0, "envelope": r}

    def terms(self, c: Constants, steps: StepSizes, rounds: int) -> dict[str, float]:
        """(Delta_r + r G^2) / (r sqrt(T)); Delta_r, of the envelope, is at most Delta."""
        assert steps.envelope
        root = math.sqrt(rounds)
        return {
            "delta": c.need("delta", self.name) / (steps.envelope * root),
            "lipschitz": c.need("lipschitz", self.name) ** 2 / root,
        }

    def violations(self, c: Constants, s: Setting, steps: Steps) -> Iterator[str]:
        nu = c.L + c.rho if c.nu is None else c.nu
        if nu > 0 and steps["eta"] is not None:
            r = steps["eta"] * math.sqrt(s.rounds)
            yield from above("eta sqrt(T)", r, 1 / (2 * nu), "1/(2 nu)")
        if steps["server_lr"] is not None and steps["server_lr"] != 1:
            yield f"server_lr={steps['server_lr']:.4g} is not 1"


class Theorem2(_Nonsmooth):
    """FedProx, nonsmooth weakly convex losses."""

    name = "FedProx Theorem 2"


class Theorem4(_Nonsmooth):
    """FedMSPP, nonsmooth weakly convex losses."""

    name = "FedMSPP Theorem 4"
