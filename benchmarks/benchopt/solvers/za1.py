"""ZA1."""

from benchmark_utils.federated import Federated

import compositefl as cfl


class Solver(Federated):
    """`cfl.ZA1`."""

    name = "ZA1"

    def algorithm(self, step):
        return cfl.ZA1(local_steps=self.local_steps, local_lr=step / self.local_steps)
