"""Zhou et al. (2025): what the figures and Table VII share: networks under label skews."""

from dataclasses import dataclass

from compositefl import data, models
from compositefl.core.types import Batch, Params
from compositefl.data import partition
from compositefl.experiments.starts import drawn
from compositefl.problem import Problem

SOURCE = "Zhou et al. (2025)"
CLIENTS = 10
SKEWS = ("iid", "weak skew", "strong skew")
CONCENTRATIONS = {  # of the Dirichlet distribution
    "weak skew": 1.0,
    "strong skew": 0.1,
    "Dirichlet(0.1)": 0.1,
    "Dirichlet(0.05)": 0.05,
}
EVERYONE = f"{CLIENTS} clients, all in every round; minibatch 32"
SHARED = (
    f"{EVERYONE}; the penalty covers all parameters.",
    "Skews: each class spread in Dirichlet(1) (weak) or Dirichlet(0.1) (strong) proportions. The "
    "paper's concentrations, minibatch and step sizes are not in our copy.",
)
SOME = (
    "Training loss and residuals from 200 fixed random samples of each client, accuracy from the "
    "whole test set."
)


def spread(samples: Batch, skew: str) -> partition.Partition:
    """The samples on the clients."""
    if skew == "iid":
        return partition.iid(samples, CLIENTS)
    return partition.dirichlet(samples, CLIENTS, CONCENTRATIONS[skew], min_samples=32)


@dataclass(frozen=True)
class Images:
    """A network on images; the numbers of parameters are those of the paper's Table V."""

    data: str
    model: str
    skew: str

    @property
    def network(self) -> models.Model:
        """The network."""
        features, channels = (3072, 3) if self.data == "cifar10" else (784, 1)
        return {
            "Linear": lambda: models.multinomial(features, 10),
            "MLP": lambda: models.mlp((features, 128, 64, 10), "relu"),
            "CNN": lambda: models.cnn_fedcanon(channels),
            "ResNet-18": lambda: models.resnet18(10, channels),
        }[self.model]()

    def __call__(self) -> Problem:
        """The problem, with the data loaded."""
        samples = data.load(self.data)
        parts = spread(samples.train, self.skew)
        return self.network.problem(parts, test=samples.test, eval_samples=200)

    def start(self, trial: int) -> Params:
        """The start that the trial draws."""
        return drawn(self.network, trial)
