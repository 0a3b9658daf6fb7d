"""FedNMap."""

from benchmark_utils.federated import Federated

import compositefl as cfl


class Solver(Federated):
    """`cfl.FedNMap`."""

    name = "FedNMap"

    def algorithm(self, step):
        return cfl.FedNMap(
            gamma=step, local_steps=self.local_steps, local_lr=step / self.local_steps
        )
