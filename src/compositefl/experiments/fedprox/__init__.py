"""Yuan, Li (2022): FedProx and FedMSPP."""

from compositefl.experiments.fedprox import theorems

EXPERIMENTS = tuple(module.EXPERIMENT for module in (theorems,))
