"""FedDA."""

from benchmark_utils.federated import Federated

import compositefl as cfl


class Solver(Federated):
    """`cfl.FedDA`."""

    name = "FedDA"

    def algorithm(self, step):
        return cfl.FedDA(local_steps=self.local_steps, local_lr=step / self.local_steps)
