"""A federated problem: the clients' data, a loss and a start. It knows neither phi nor rounds."""

from compositefl.problem.clients import (
    ByNumber,
    OnDemand,
    RowClients,
    Stacked,
    checked_data,
    pieces,
)
from compositefl.problem.federated import DataIdentity, Problem
from compositefl.problem.losses import Coupled, External, uncoupled

__all__ = [
    "ByNumber",
    "Coupled",
    "DataIdentity",
    "External",
    "OnDemand",
    "Problem",
    "RowClients",
    "Stacked",
    "checked_data",
    "pieces",
    "uncoupled",
]
