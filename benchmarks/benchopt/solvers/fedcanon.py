"""FedCanon."""

from benchmark_utils.federated import Federated

import compositefl as cfl


class Solver(Federated):
    """`cfl.FedCanon`."""

    name = "FedCanon"

    def algorithm(self, step):
        return cfl.FedCanon(local_steps=self.local_steps, local_lr=step / self.local_steps)
