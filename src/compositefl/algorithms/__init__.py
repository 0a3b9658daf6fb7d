"""Every method behind one interface, one file each."""

from compositefl.algorithms.base import (
    Algorithm,
    AveragingAlgorithm,
    FederatedAlgorithm,
    SmoothAlgorithm,
)
from compositefl.algorithms.centralised import PGD, NormSGD, ProxSGD
from compositefl.algorithms.compressors import Identity, RandomK, TopK
from compositefl.algorithms.econtrolda import EControlDA
from compositefl.algorithms.fast_fedda import FastFedDA
from compositefl.algorithms.fedadmm import FedADMM
from compositefl.algorithms.fedavg import FedAvg
from compositefl.algorithms.fedavg_m import FedAvgM
from compositefl.algorithms.fedcanon import FedCanon, FedCanonII
from compositefl.algorithms.fedda import FedDA
from compositefl.algorithms.feddc import FedDC
from compositefl.algorithms.feddr import FedDR
from compositefl.algorithms.feddyn import FedDyn
from compositefl.algorithms.fedmid import FedMiD
from compositefl.algorithms.fedmspp import FedMSPP, FedMSPPNonsmooth
from compositefl.algorithms.fednmap import FedNMap
from compositefl.algorithms.fedpd import FedPD
from compositefl.algorithms.fedprox import FedProx
from compositefl.algorithms.fedprox_nonsmooth import FedProxNonsmooth
from compositefl.algorithms.fedsplit import FedSplit
from compositefl.algorithms.mime import Mime, MimeLite
from compositefl.algorithms.prox_newton import ProxNewton
from compositefl.algorithms.proxskip import ProxSkip
from compositefl.algorithms.scaffnew import Scaffnew
from compositefl.algorithms.scaffold import Scaffold, ScaffoldI
from compositefl.algorithms.scaffold_m import ScaffoldM
from compositefl.algorithms.stem import STEM
from compositefl.algorithms.vrl_sgd import VRLSGD
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
    "prox-newton": ProxNewton,
    # smooth
    "fedavg": FedAvg,
    "fedavg-m": FedAvgM,
    "scaffold": Scaffold,
    "scaffold-1": ScaffoldI,
    "scaffold-m": ScaffoldM,
    "scaffnew": Scaffnew,
    "vrl-sgd": VRLSGD,
    "fedprox": FedProx,
    "fedprox-nonsmooth": FedProxNonsmooth,
    "fedmspp": FedMSPP,
    "fedmspp-nonsmooth": FedMSPPNonsmooth,
    "fedpd": FedPD,
    "feddyn": FedDyn,
    "feddc": FedDC,
    "fedsplit": FedSplit,
    "mime": Mime,
    "mimelite": MimeLite,
    "stem": STEM,
    # centralised
    "pgd": PGD,
    "prox-sgd": ProxSGD,
    "norm-sgd": NormSGD,
    "proxskip": ProxSkip,
}

__all__ = [
    "ALGORITHMS",
    "PGD",
    "STEM",
    "VRLSGD",
    "ZA1",
    "Algorithm",
    "AveragingAlgorithm",
    "EControlDA",
    "FastFedDA",
    "FedADMM",
    "FedAvg",
    "FedAvgM",
    "FedCanon",
    "FedCanonII",
    "FedDA",
    "FedDC",
    "FedDR",
    "FedDyn",
    "FedMSPP",
    "FedMSPPNonsmooth",
    "FedMiD",
    "FedNMap",
    "FedPD",
    "FedProx",
    "FedProxNonsmooth",
    "FedSplit",
    "FederatedAlgorithm",
    "Identity",
    "Mime",
    "MimeLite",
    "NormSGD",
    "ProxNewton",
    "ProxSGD",
    "ProxSkip",
    "RandomK",
    "Scaffnew",
    "Scaffold",
    "ScaffoldI",
    "ScaffoldM",
    "SmoothAlgorithm",
    "TopK",
]
