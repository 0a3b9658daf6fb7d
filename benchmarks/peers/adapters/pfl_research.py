"""pfl (Apple's pfl-research): its simulated backend with a PyTorch model."""

import logging
import sys
from importlib.metadata import version

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from protocol import Clock, Task
from torch_networks import arrays, network, tensors

task = Task(sys.argv[1])
logging.disable(logging.WARNING)
torch.manual_seed(task.seed)
clock = Clock(task)
module = network(task)
module.loss = lambda x, y: torch.nn.functional.cross_entropy(module(x), y)
module.metrics = lambda x, y: {}
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
x, y = (a.to(task.device) for a in tensors(task))
users = {str(i): Dataset((x[i], y[i]), user_id=str(i)) for i in range(task.clients)}
data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
backend = SimulatedBackend(training_data=data, val_data=data)
storage = InMemoryUserStateStorage()
algorithm = {"fedavg": FederatedAveraging, "scaffold": SCAFFOLD}[task.method]()
done = 0


def advance(rounds):
    global done
    done += rounds
    settings = dict(
        central_num_iterations=done,
        evaluation_frequency=10**9,
        train_cohort_size=task.clients,
        val_cohort_size=0,
    )
    if task.method == "scaffold":
        params = SCAFFOLDParams(
            **settings,
            population=task.clients,
            use_gradient_as_control_variate=False,
            user_state_storage=storage,
        )
    else:
        params = NNAlgorithmParams(**settings)
    algorithm.run(
        params,
        backend,
        model,
        NNTrainHyperParams(
            local_num_epochs=task.epochs,
            local_learning_rate=task.lr,
            local_batch_size=task.batch_size,
        ),
        NNEvalHyperParams(local_batch_size=None),
        send_metrics_to_platform=False,
    )


clock.drive(advance, lambda: arrays(task, module.state_dict()))
clock.report(version=version("pfl"))
