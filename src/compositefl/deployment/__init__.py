"""The same algorithms over a real network: a server, sites that keep their data, faults.

Engine-neutral: `Coordinator` and `Worker` speak through a `Transport`. `flare.py` is the adapter to
NVIDIA FLARE, the only file that imports it.
"""

from compositefl.deployment.coordinator import Coordinator
from compositefl.deployment.federation import Federation
from compositefl.deployment.site import Site
from compositefl.deployment.transport import Failure, InProcess, Transport
from compositefl.deployment.worker import Worker

__all__ = ["Coordinator", "Failure", "Federation", "InProcess", "Site", "Transport", "Worker"]
