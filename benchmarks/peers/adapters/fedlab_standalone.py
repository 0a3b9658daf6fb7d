"""FedLab: its standalone pipeline."""

import contextlib
import io
import logging
import sys
from importlib.metadata import version

import no_torchvision  # noqa: F401
import torch
from protocol import Clock, Task
from torch.utils.data import DataLoader, TensorDataset
from torch_networks import arrays, network, tensors

with contextlib.redirect_stdout(io.StringIO()):  # it logs to stdout from its import on
    from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
    from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler
    from fedlab.core.standalone import StandalonePipeline

logging.disable(logging.WARNING)
task = Task(sys.argv[1])
torch.manual_seed(task.seed)
clock = Clock(task)
x, y = tensors(task)


class Clients:
    """FedLab's way to hand out a client's samples."""

    def get_dataloader(self, client, batch_size, type="train"):
        return DataLoader(TensorDataset(x[client], y[client]), batch_size, shuffle=bool(task.batch))


class Pipeline(StandalonePipeline):
    def evaluate(self):
        """Not part of what is timed."""


Handler, Trainer = {
    "fedavg": (FedAvgServerHandler, FedAvgSerialClientTrainer),
    "scaffold": (ScaffoldServerHandler, ScaffoldSerialClientTrainer),
}[task.method]
cuda = task.device != "cpu"
module = network(task)
handler = Handler(module, global_round=0, sample_ratio=1.0, cuda=cuda)
trainer = Trainer(module, task.clients, cuda=cuda)
trainer.setup_dataset(Clients())
trainer.setup_optim(task.epochs, task.batch_size, task.lr)
if task.method == "scaffold":
    handler.setup_optim(lr=1.0)
pipeline = Pipeline(handler, trainer)


def advance(rounds):
    handler.global_round = handler.round + rounds
    pipeline.main()


clock.drive(advance, lambda: arrays(task, handler.model.state_dict()))
clock.report(version=version("fedlab"))
