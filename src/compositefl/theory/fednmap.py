"""FedNMap, Theorems 5 and 8 (Huang, Pu, Johansson, arXiv 2602.03357).

Notation of the paper: eta_a = local_lr, eta_s = server_lr, eta_hat = eta_a eta_s Q. The analysis
takes m >= 1 rounds together; m is free, and the bounds hold for every m that the steps allow.
"""

import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from compositefl.core.errors import CompositeFLError
from compositefl.theory.base import Constants, Setting, Steps, StepSizes, Theorem, above


class Choice(NamedTuple):
    """The numbers of eq 15 or eq 19 as printed; eta_hat is None where the paper leaves it open."""

    gamma: float
    m: int
    eta_hat: float | None
    local_lr: float


def c_0(c: Constants, gamma: float) -> float:
    """C_0 of eq 22, below 1/2."""
    a = 3 - 4 * gamma * c.rho
    return a / (2 * (a + 4 * gamma**2 * c.L**2))


def curvature(c: Constants, gamma: float) -> float:
    """sqrt(L^2 + 1/gamma^2), which the conditions of Theorem 5 divide by."""
    return math.hypot(c.L, 1 / gamma)


def eq_15(c: Constants, rounds: int, local_steps: int) -> Choice:
    """Eq 15 as printed: with sigma = 0 the steps are infinite, for small T they break Theorem 5."""
    delta, n, q, t = c.need("delta", "eq 15"), c.clients, local_steps, rounds
    if delta == 0:
        raise CompositeFLError(
            "eq 15 needs delta > 0: with delta=0 the start is optimal and its steps are 0; "
            "give gamma, local_lr and server_lr to evaluate the bound"
        )
    sum_, var = c.L + c.rho, c.sigma**2
    m = math.ceil(math.sqrt(var * t / (9 * sum_ * delta * n * q)))
    slow = 320 * math.sqrt(var * t * sum_ / (n * q * delta))
    local = 380 * (var * t * q**3 * sum_**3 / (n * delta)) ** 0.25
    local += 240 * math.sqrt(sum_ * t * q * var / delta)
    return Choice(
        1 / (5 * sum_), m, 1 / slow if slow else math.inf, 1 / local if local else math.inf
    )


def eq_19(c: Constants, rounds: int, local_steps: int) -> Choice:
    """Eq 19 as printed; eta_hat = eta_a eta_s Q with any eta_s > 0."""
    mu, q, t = c.need("mu", "eq 19"), local_steps, rounds
    total = c.L + c.rho + mu
    local = math.log(c.clients * q * t) / (120 * q * total * t)
    return Choice(1 / (5 * total), math.ceil(mu * t / (c.L + c.rho)), None, local)


class _FedNMap(Theorem):
    """What both theorems share: limits on gamma, eta_hat and eta_a that fall with m."""

    formulas: ClassVar[tuple[str, str]]  # the limits of eta_hat and eta_a in words

    def gamma_limit(self, c: Constants) -> tuple[float, str]:
        raise NotImplementedError

    def limits(self, c: Constants, gamma: float, q: int, m: int) -> tuple[float, float]:
        """Largest eta_hat and eta_a."""
        raise NotImplementedError

    def finish(
        self, c: Constants, s: Setting, gamma: float, steps: tuple[float, float], m: int
    ) -> Steps:
        """The chosen steps, with m lowered where kept steps do not allow it."""
        local_lr, server_lr = steps
        chosen = {"gamma": gamma, "local_lr": local_lr, "server_lr": server_lr}
        return {**chosen, "m": s.m or min(m, self.largest_m(c, s, chosen))}

    def largest_m(self, c: Constants, s: Setting, steps: dict[str, float]) -> int:
        """The largest m <= T that the steps allow; it makes the bound smallest. At least 1."""
        low, high = 1, s.rounds
        while low < high:
            middle = (low + high + 1) // 2
            outside = any(self.step_violations(c, s, steps, middle))
            low, high = (low, middle - 1) if outside else (middle, high)
        return low

    def violations(self, c: Constants, s: Setting, steps: Steps) -> Iterator[str]:
        """At m = 1, where the conditions are weakest, unless m is given."""
        limit, formula = self.gamma_limit(c)
        yield from above("gamma", steps["gamma"], limit, formula)
        yield from self.step_violations(c, s, steps, s.m or 1)

    def step_violations(self, c: Constants, s: Setting, steps: Steps, m: int) -> Iterator[str]:
        gamma, q = steps["gamma"], s.local_steps
        if gamma * c.rho >= 1:
            yield f"gamma={gamma:.4g} is not below 1/rho = {1 / c.rho:.4g}"
            return
        eta_hat, local = self.limits(c, gamma, q, m)
        used = steps["local_lr"] * steps["server_lr"] * q
        yield from above("eta_hat", used, eta_hat, f"{self.formulas[0]} with m={m}")
        yield from above("local_lr", steps["local_lr"], local, f"{self.formulas[1]} with m={m}")


class Theorem5(_FedNMap):
    """Nonconvex f, weakly convex phi: the average of ||F_nor(z_t)||^2."""

    name = "FedNMap Theorem 5"
    measures = "(1/T) sum_{t<T} E ||F_nor^gamma(z_t)||^2"
    formulas = (
        "(1 - gamma rho)/(100 m sqrt(L^2 + 1/gamma^2))",
        "(1 - gamma rho)/(100 Q sqrt(m (L^2 + 1/gamma^2)))",
    )

    def choose(self, c: Constants, s: Setting) -> Steps:
        """Eq 15 with guards: 1 <= m <= T, and no step above the theorem's own limits.

        m <= T because the proof (after eq 98) counts m (R + 1) <= 2 T.
        """
        gamma = s.gamma or self.gamma_limit(c)[0]
        if s.local_lr is not None and s.server_lr is not None:
            return self.finish(c, s, gamma, (s.local_lr, s.server_lr), s.rounds)
        raw = eq_15(c, s.rounds, s.local_steps)
        assert raw.eta_hat is not None
        m = s.m or max(1, raw.m)
        eta_hat, local = self.limits(c, gamma, s.local_steps, m)
        steps = s.split(min(raw.eta_hat, eta_hat), min(raw.local_lr, local))
        return self.finish(c, s, gamma, steps, m)

    def gamma_limit(self, c: Constants) -> tuple[float, str]:
        """gamma <= 1/(5 (rho + L))."""
        return 1 / (5 * (c.rho + c.L)), "1/(5 (rho + L))"

    def limits(self, c: Constants, gamma: float, q: int, m: int) -> tuple[float, float]:
        """eta_hat <= a/m and eta_a <= a/(Q sqrt(m)) with
        a = (1 - gamma rho)/(100 sqrt(L^2 + 1/gamma^2)).
        """
        a = (1 - gamma * c.rho) / (100 * curvature(c, gamma))
        return a / m, a / (q * math.sqrt(m))

    def terms(self, c: Constants, steps: StepSizes, rounds: int) -> dict[str, float]:
        """Eq 14, term by term in the paper's order."""
        gamma, local_lr, eta_hat = steps.gamma, steps.local_lr, steps.eta_hat
        assert gamma and local_lr and eta_hat and steps.m
        t, n, q, var = rounds, c.clients, steps.setting.local_steps, c.sigma**2
        m = min(steps.m, t)  # a smaller m is admissible too, and the proof wants m <= T
        slack = (1 - gamma * c.rho) ** 2
        normal_map, gap, gradients = (
            c.need(name, self.name) for name in ("normal_map_sq", "prox_gap_sq", "gradients_sq")
        )
        return {
            "delta": 27 * c.need("delta", self.name) / (eta_hat * t),
            "normal_map": 27 * gamma * c_0(c, gamma) * normal_map / (2 * eta_hat * t),
            "noise": 330 * var / (m * n * q),
            "local_noise": 110000 * local_lr**2 * q * c.L**2 * var / slack,
            "start_prox": 2 * c.L**2 * gap / (slack * t),
            "start_gradients": 2 * gradients / (slack * t),
        }


class Theorem8(_FedNMap):
    """psi satisfies the PL inequality 2 mu (psi - psi*) <= dist(0, dpsi)^2: the last model."""

    name = "FedNMap Theorem 8"
    measures = "E psi(x_T) - psi*"
    formulas = ("the limit of eta_hat", "the limit of eta_a")

    def choose(self, c: Constants, s: Setting) -> Steps:
        """Eq 19 with guards: eta_hat at its limit, and a smaller m.

        With the m of eq 19 every admissible eta_hat has eta_hat mu T <= 1/120, so the first term of
        eq 18 never decays. The m chosen here is of the same order up to a logarithm, and makes that
        term L_0 / (nQT).
        """
        t, q = s.rounds, s.local_steps
        raw = eq_19(c, t, q)
        gamma = s.gamma or raw.gamma
        if s.local_lr is not None and s.server_lr is not None:
            return self.finish(c, s, gamma, (s.local_lr, s.server_lr), t)
        m = s.m or 1
        if s.m is None and c.sigma > 0:
            decay = self.rate(c, gamma) * self.limits(c, gamma, q, 1)[0] * t
            m = max(1, math.floor(decay / max(1.0, math.log(c.clients * q * t))))
        eta_hat, local = self.limits(c, gamma, q, m)
        # log(nQT) is 0 for one step of one client; any eta_a within the limit is as good then.
        steps = s.split(eta_hat, min(raw.local_lr or local, local))
        return self.finish(c, s, gamma, steps, m)

    def rate(self, c: Constants, gamma: float) -> float:
        """The exponent of eq 18 divided by eta_hat T."""
        mu = c.need("mu", self.name)
        return 2 * mu / (9 * (1 + gamma * mu * c_0(c, gamma)))

    def gamma_limit(self, c: Constants) -> tuple[float, str]:
        """gamma <= 1/(5 (rho + L + mu))."""
        return 1 / (5 * (c.rho + c.L + c.need("mu", self.name))), "1/(5 (rho + L + mu))"

    def limits(self, c: Constants, gamma: float, q: int, m: int) -> tuple[float, float]:
        """eta_hat <= 1/(120 m (L + rho + mu)), eta_a <= 1/(96 Q (L + rho + mu)), and what the proof
        uses besides: Lemma 11, and eta_a <= (1 - gamma rho)/(20 sqrt(m) Q L) of C.2.
        """
        total = c.L + c.rho + c.need("mu", self.name)
        slack = 1 - gamma * c.rho
        lemma = slack / (20 * curvature(c, gamma))
        local = min(1 / (96 * total), lemma, slack / (20 * math.sqrt(m) * c.L))
        return min(1 / (120 * total), lemma) / m, local / q

    def terms(self, c: Constants, steps: StepSizes, rounds: int) -> dict[str, float]:
        """Eq 18, with psi* subtracted from L_0 as in the proof (eq 101) and L_0 from eqs 21, 26."""
        gamma, local_lr, eta_hat, m = steps.gamma, steps.local_lr, steps.eta_hat, steps.m
        assert gamma and local_lr and eta_hat and m
        mu, q, var = c.need("mu", self.name), steps.setting.local_steps, c.sigma**2
        slack = (1 - gamma * c.rho) ** 2
        normal_map, gap, gradients = (
            c.need(name, self.name) for name in ("normal_map_sq", "prox_gap_sq", "gradients_sq")
        )
        # Eq 26 divided by n Q: the mean drift of the clients in the first round.
        drift = local_lr**2 * (3 * q * var + 2 * q**2 * gap / gamma**2 + 2 * q**2 * gradients)
        start = c.need("delta", self.name) + gamma * c_0(c, gamma) / 2 * normal_map
        start += 25 * eta_hat * c.L**2 / slack * drift
        return {
            "start": math.exp(-self.rate(c, gamma) * eta_hat * rounds) * start,
            "noise": 36 * var / (m * c.clients * mu * q),
            "local_noise": 12100 * local_lr**2 * q * c.L**2 * var / (mu * slack),
        }
