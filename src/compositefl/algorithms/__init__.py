"""Every method behind one interface, one file each."""

from compositefl.algorithms.base import Algorithm, FederatedAlgorithm, SmoothAlgorithm
from compositefl.algorithms.centralised import PGD, NormSGD, ProxSGD
from compositefl.algorithms.fedavg import FedAvg
from compositefl.algorithms.fedcanon import FedCanon, FedCanonII
from compositefl.algorithms.fedda import FedDA
from compositefl.algorithms.fedmid import FedMiD
from compositefl.algorithms.fednmap import FedNMap
from compositefl.algorithms.scaffold import Scaffold
from compositefl.algorithms.za1 import ZA1

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fednmap": FedNMap,
    "za1": ZA1,
    "fedcanon": FedCanon,
    "fedcanon2": FedCanonII,
    "fedmid": FedMiD,
    "fedda": FedDA,
    "scaffold": Scaffold,
    "fedavg": FedAvg,
    "pgd": PGD,
    "prox-sgd": ProxSGD,
    "norm-sgd": NormSGD,
}

__all__ = [
    "ALGORITHMS",
    "PGD",
    "ZA1",
    "Algorithm",
    "FedAvg",
    "FedCanon",
    "FedCanonII",
    "FedDA",
    "FedMiD",
    "FedNMap",
    "FederatedAlgorithm",
    "NormSGD",
    "ProxSGD",
    "Scaffold",
    "SmoothAlgorithm",
]
