"""Every method behind one interface, one file each."""

from compositefl.algorithms.base import Algorithm, FederatedAlgorithm, SmoothAlgorithm
from compositefl.algorithms.centralised import PGD, NormSGD, ProxSGD
from compositefl.algorithms.compressors import Identity, RandomK, TopK
from compositefl.algorithms.econtrolda import EControlDA
from compositefl.algorithms.fast_fedda import FastFedDA
from compositefl.algorithms.fedadmm import FedADMM
from compositefl.algorithms.fedavg import FedAvg
from compositefl.algorithms.fedavg_m import FedAvgM
from compositefl.algorithms.fedcanon import FedCanon, FedCanonII
from compositefl.algorithms.fedda import FedDA
from compositefl.algorithms.feddr import FedDR
from compositefl.algorithms.fedmid import FedMiD
from compositefl.algorithms.fednmap import FedNMap
from compositefl.algorithms.proxskip import ProxSkip
from compositefl.algorithms.scaffold import Scaffold, ScaffoldI
from compositefl.algorithms.scaffold_m import ScaffoldM
from compositefl.algorithms.za1 import ZA1

ALGORITHMS: dict[str, type[Algorithm]] = {
    # composite
    "fednmap": FedNMap,
    "za1": ZA1,
    "fedcanon": FedCanon,
    "fedcanon2": FedCanonII,
    "fedmid": FedMiD,
    "fedda": FedDA,
    "fast-fedda": FastFedDA,
    "feddr": FedDR,
    "fedadmm": FedADMM,
    "econtrolda": EControlDA,
    # smooth
    "fedavg": FedAvg,
    "fedavg-m": FedAvgM,
    "scaffold": Scaffold,
    "scaffold-1": ScaffoldI,
    "scaffold-m": ScaffoldM,
    # centralised
    "pgd": PGD,
    "prox-sgd": ProxSGD,
    "norm-sgd": NormSGD,
    "proxskip": ProxSkip,
}

__all__ = [
    "ALGORITHMS",
    "PGD",
    "ZA1",
    "Algorithm",
    "EControlDA",
    "FastFedDA",
    "FedADMM",
    "FedAvg",
    "FedAvgM",
    "FedCanon",
    "FedCanonII",
    "FedDA",
    "FedDR",
    "FedMiD",
    "FedNMap",
    "FederatedAlgorithm",
    "Identity",
    "NormSGD",
    "ProxSGD",
    "ProxSkip",
    "RandomK",
    "Scaffold",
    "ScaffoldI",
    "ScaffoldM",
    "SmoothAlgorithm",
    "TopK",
]
