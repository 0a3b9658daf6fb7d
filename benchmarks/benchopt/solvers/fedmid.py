"""FedMiD."""

from benchmark_utils.federated import Federated

import compositefl as cfl


class Solver(Federated):
    """`cfl.FedMiD`."""

    name = "FedMiD"

    def algorithm(self, step):
        return cfl.FedMiD(local_steps=self.local_steps, local_lr=step / self.local_steps)
