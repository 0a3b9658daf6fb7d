"""What a compiled program is made for, and what it changes: plain values, without any equation."""

from dataclasses import dataclass
from typing import NamedTuple

from jax.sharding import Mesh

from compositefl.core.types import Array, ClientState, Loss, ServerState


@dataclass(frozen=True)
class ClientSampling:
    """How many clients there are and how many are drawn in a round."""

    clients: int
    count: int
    replacement: bool

    @property
    def everyone(self) -> bool:
        """All clients take part in every round."""
        return self.count == self.clients and not self.replacement


@dataclass(frozen=True)
class Program:
    """What is compiled in: everything but numbers and data."""

    loss: Loss
    mesh: Mesh
    rows: int  # clients whose states one device keeps
    sampling: ClientSampling
    shared: bool  # every device reads all samples: participants are spread evenly over the devices
    largest: int  # samples of the largest client
    equal: bool  # all clients hold the same number of samples
    batch_size: int | None
    block: int  # clients worked on at the same time, on one device
    brought: bool = False  # the host has drawn the participants: there are no others here

    @property
    def share(self) -> int:
        """Participants of one device, where they are spread evenly."""
        return -(-self.sampling.count // self.mesh.size)


class Conditions(NamedTuple):
    """What goes wrong on the way; None: nothing."""

    dropout: Array = None  # probability that an upload is lost
    stragglers: Array = None  # probability that a client finishes only some of its steps


RELIABLE = Conditions()


class RunState(NamedTuple):
    """All that changes from round to round. Leading axis of every leaf: the run."""

    server: ServerState
    clients: ClientState  # second axis: rows of the layout
    diverged: Array  # round in which the run left the finite numbers, -1 if it did not


class Work(NamedTuple):
    """What the clients did, summed over them: for the accounts."""

    visits: Array
    steps: Array
