"""Scaffnew: ProxSkip for consensus (Mishchenko et al., ICML 2022)."""

from dataclasses import KW_ONLY

import jax

from compositefl.algorithms.geometric import geometric
from compositefl.algorithms.vrl_sgd import VRLSGD
from compositefl.core.component import component, static
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Number


@component
class Scaffnew(VRLSGD):
    """x_i <- x_i - gamma (g_i(x_i) - h_i), and after each step one coin shared by all clients:

        with probability p:  z = mean(x_i);  h_i <- h_i + (p/gamma)(z - x_i);  x_i = z

    p = 1/local_steps is the probability to communicate, gamma = local_lr. A round ends with a
    communication, so its number of steps is geometric with mean local_steps. With random=False it
    is always local_steps, and the method is VRL-SGD. The theory has gamma <= 1/L and p =
    1/sqrt(kappa), and all clients in every communication.
    """

    paper = "Mishchenko, Malinovsky, Stich, Richtarik (2022)"
    covers = "smooth strongly convex"

    _: KW_ONLY
    random: bool = static(default=True)

    def check(self) -> None:
        super().check()
        if self.composite == "server-prox" and self.random:
            raise CompositeFLError(
                "composite='server-prox': the prox belongs to Q steps, and a random number of them "
                "would give phi another weight in every round; ",
                parameter="composite",
                value=self.composite,
                also={"random": self.random},
                remedy="fixed steps",
            )

    def draw_steps(self, key: jax.Array) -> Number:
        return geometric(key, 1 / self.local_steps) if self.random else self.local_steps
