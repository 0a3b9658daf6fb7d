"""ZA1, Theorems 3.5, 3.6 and 3.8 (Zhang, Hu, Johansson, Automatica 2026).

The paper's sigma^2 / b, the variance of a minibatch gradient, is `Constants.sigma` squared. The
theorems give ranges; within them the steps below make the bound after T rounds smallest.
"""

import math
from collections.abc import Iterator

from compositefl.theory.base import (
    ROUNDING,
    Constants,
    Setting,
    Steps,
    StepSizes,
    Theorem,
    above,
    smallest,
)


class _ZA1(Theorem):
    """What the three theorems share: phi convex with subgradients bounded by B_g."""

    def eta_hat_limit(self, c: Constants) -> tuple[float, str]:
        """Eq 13."""
        return 1 / (10 * c.L), "1/(10 L)"

    def server_lr(self, c: Constants) -> float:
        """The smallest eta_s of eq 13, max(1.5, sqrt(n/8))."""
        return max(1.5, math.sqrt(c.clients / 8))

    def choose(self, c: Constants, s: Setting) -> Steps:
        server_lr = s.server_lr or self.server_lr(c)
        if s.local_lr is not None:
            return {"local_lr": s.local_lr, "server_lr": server_lr}
        limit, _ = self.eta_hat_limit(c)
        eta_hat = limit
        if None not in (c.delta, c.subgradient, c.dissimilarity_sq):
            eta_hat = smallest(
                lambda step: sum(self.parts(c, s, step, server_lr, s.rounds).values()), limit
            )
        return {"local_lr": eta_hat / (server_lr * s.local_steps), "server_lr": server_lr}

    def terms(self, c: Constants, steps: StepSizes, rounds: int) -> dict[str, float]:
        assert steps.eta_hat and steps.server_lr
        return self.parts(c, steps.setting, steps.eta_hat, steps.server_lr, rounds)

    def parts(
        self, c: Constants, s: Setting, eta_hat: float, server_lr: float, rounds: int
    ) -> dict[str, float]:
        raise NotImplementedError

    def violations(self, c: Constants, s: Setting, steps: Steps) -> Iterator[str]:
        server_lr = steps["server_lr"]
        if c.rho > 0:
            yield f"phi has rho={c.rho:.4g}, the theorem wants it convex (rho = 0)"
        limit, formula = self.eta_hat_limit(c)
        yield from above("eta_hat", steps["local_lr"] * server_lr * s.local_steps, limit, formula)
        yield from self.server_violations(c, server_lr)

    def server_violations(self, c: Constants, server_lr: float) -> Iterator[str]:
        least = self.server_lr(c)
        if server_lr < least * (1 - ROUNDING):
            yield f"server_lr={server_lr:.4g} is below max(1.5, sqrt(n/8)) = {least:.4g}"

    def drift(self, c: Constants) -> float:
        """(1/n) sum_i ||grad f_i - grad f||^2 at the start.

        Lambda_i^1 = eta Q grad f_i(P), so ||Lambda - mean||^2 / n is (eta Q)^2 = (eta_hat/eta_s)^2
        times this.
        """
        if c.dissimilarity_sq is None:
            c.need("zeta", f"{self.name} (zeta or gradients_sq)")
        assert c.dissimilarity_sq is not None
        return c.dissimilarity_sq

    def noise(self, c: Constants, s: Setting) -> float:
        """sigma^2 / (n Q b)."""
        return c.sigma**2 / (c.clients * s.local_steps)


class Theorem35(_ZA1):
    """Nonconvex f: the average of ||G||^2."""

    name = "ZA1 Theorem 3.5"
    measures = "(1/T) sum_t E ||G(P(xbar_t))||^2, the natural residual with parameter eta_hat"

    def parts(
        self, c: Constants, s: Setting, eta_hat: float, server_lr: float, rounds: int
    ) -> dict[str, float]:
        """Theorem 3.5, with Omega_1 of eq 10 split into its two parts."""
        bound = c.need("subgradient", self.name)
        return {
            "delta": c.need("delta", self.name) / (0.3 * eta_hat * rounds),
            "start_gradients": self.drift(c) / (0.3 * server_lr**2 * rounds),
            "noise": 20 * self.noise(c, s),
            "subgradient": 187 * (c.L * eta_hat * bound / server_lr) ** 2,
        }


class Theorem36(_ZA1):
    """Proximal PL inequality: the auxiliary function Omega after T rounds."""

    name = "ZA1 Theorem 3.6"
    measures = "E Omega_{T+1}, at least E psi(P(xbar_{T+1})) - psi*"

    def parts(
        self, c: Constants, s: Setting, eta_hat: float, server_lr: float, rounds: int
    ) -> dict[str, float]:
        """Theorem 3.6, with Omega_1 of eq 10 split into its two parts."""
        mu, bound = c.need("mu", self.name), c.need("subgradient", self.name)
        contraction = (1 - mu * eta_hat / 3) ** rounds
        return {
            "delta": contraction * c.need("delta", self.name),
            "start_gradients": contraction * eta_hat / server_lr**2 * self.drift(c),
            "noise": 18 * self.noise(c, s) / mu,
            "subgradient": 168 * (c.L * eta_hat * bound / server_lr) ** 2 / mu,
        }


class Theorem38(_ZA1):
    """f mu-strongly convex: the squared distance to the solution after T rounds."""

    name = "ZA1 Theorem 3.8"
    measures = "E Omega_sc_{T+1}, at least E ||P(xbar_{T+1}) - x*||^2"

    def eta_hat_limit(self, c: Constants) -> tuple[float, str]:
        """The largest eta_hat of the theorem, as a number and in words."""
        return c.need("mu", self.name) / (150 * c.L**2), "mu/(150 L^2)"

    def server_lr(self, c: Constants) -> float:
        """The theorem's server step."""
        return math.sqrt(c.clients)

    def server_violations(self, c: Constants, server_lr: float) -> Iterator[str]:
        """What is wrong with a server step, in words."""
        if not math.isclose(server_lr, self.server_lr(c), rel_tol=1e-9):
            yield f"server_lr={server_lr:.4g} is not sqrt(n) = {self.server_lr(c):.4g}"

    def parts(
        self, c: Constants, s: Setting, eta_hat: float, server_lr: float, rounds: int
    ) -> dict[str, float]:
        """Theorem 3.8; ||x_0 - x*||^2 <= 2 delta / mu by strong convexity."""
        mu, bound = c.need("mu", self.name), c.need("subgradient", self.name)
        contraction = (1 - mu * eta_hat / 3) ** rounds
        return {
            "delta": contraction * 2 * c.need("delta", self.name) / mu,
            "start_gradients": contraction * (eta_hat / server_lr) ** 2 * self.drift(c),
            "noise": 30 * eta_hat * self.noise(c, s) / mu,
            "subgradient": 21 * eta_hat * bound**2 / (mu * server_lr**2),
        }
