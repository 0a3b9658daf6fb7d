"""fluke: its clients and server, evaluation off."""

import sys
from importlib.metadata import version

import no_torchvision  # noqa: F401
from fluke import DDict, FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.algorithms.scaffold import SCAFFOLD
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver
from protocol import Clock, Task, save_model
from torch_networks import arrays, network, tensors

task = Task(sys.argv[1])
clock = Clock(task)
env = FlukeENV()
env.set_seed(task.seed)
env.set_device(task.device)
env.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
x, y = tensors(task)


class Splitter:
    """Each client its own arrays, nothing to test on."""

    def assign(self, clients, batch_size):
        loaders = [
            FastDataLoader(
                x[i], y[i], num_labels=10, batch_size=batch_size, shuffle=bool(task.batch)
            )
            for i in range(clients)
        ]
        return (loaders, [None] * clients), None


settings = DDict(
    client=DDict(
        batch_size=task.batch_size,
        local_epochs=task.epochs,
        loss="CrossEntropyLoss",
        optimizer=DDict(name="SGD", lr=task.lr),
        scheduler=DDict(name="StepLR", step_size=1, gamma=1),
    ),
    server=DDict(weighted=False),
    model=network(task),
)
kind = {"fedavg": CentralizedFL, "scaffold": SCAFFOLD}[task.method]
federation = kind(task.clients, Splitter(), settings)


class Watch(FederationObserver):
    """Its own `run` ends with an exchange that is no round, so rounds are timed from inside."""

    def end_round(self, round):
        clock.tick()


federation.set_callbacks(Watch())
federation.run(n_rounds=task.rounds, eligible_perc=1.0)
save_model(task, arrays(task, federation.server.model.state_dict()))
clock.report(version=version("fluke-fl"))
