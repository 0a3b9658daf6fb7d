"""The workloads' networks as PyTorch modules, for all adapters that use PyTorch.

The arrays of a task are laid out as in JAX: dense kernels (in, out), convolutions (height, width,
in, out), images with channels last. PyTorch wants the opposite of each.
"""

from functools import cache

import torch
from protocol import Task
from torch import nn

LAYERS = {
    "softmax": lambda: [("dense0", nn.Linear(64, 10))],
    "mlp": lambda: [
        ("dense0", nn.Linear(784, 32)),
        ("s", nn.Sigmoid()),
        ("dense1", nn.Linear(32, 10)),
    ],
    "cnn": lambda: [
        ("conv0", nn.Conv2d(1, 32, 3, padding=1)),
        ("relu0", nn.ReLU()),
        ("pool0", nn.MaxPool2d(2)),
        ("conv1", nn.Conv2d(32, 32, 3, padding=1)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(2)),
        ("flatten", nn.Flatten()),
        ("dense0", nn.Linear(1568, 64)),
        ("relu2", nn.ReLU()),
        ("dense1", nn.Linear(64, 32)),
        ("relu3", nn.ReLU()),
        ("dense2", nn.Linear(32, 10)),
    ],
}
PICTURE = (7, 7, 32)  # what the CNN's first dense layer sees, channels last


def network(task):
    """The task's network at its start."""
    module = nn.Sequential()
    for name, layer in LAYERS[task.workload]():
        module.add_module(name, layer)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            layer, kind = name.split(".")
            a = torch.tensor(task.start[f"{layer}/{'kernel' if kind == 'weight' else 'bias'}"])
            if kind == "weight":
                a = _to_torch(task.workload, layer, a)
            parameter.copy_(a)
    return module


def arrays(task, state):
    """Parameters by their PyTorch names, as a task names and lays out its start."""
    found = {}
    for name, tensor in state.items():
        layer, kind = name.split(".")
        a = torch.as_tensor(tensor).detach().cpu()
        if kind == "weight":
            a = _from_torch(task.workload, layer, a)
        found[f"{layer}/{'kernel' if kind == 'weight' else 'bias'}"] = a.numpy()
    return found


def tensors(task):
    """Inputs and labels of all clients, where the network wants them."""
    x = torch.tensor(task.x)
    if task.workload == "cnn":
        x = x.permute(0, 1, 4, 2, 3).contiguous()
    return x, torch.tensor(task.y, dtype=torch.int64)


@cache
def loaded(folder):
    """The task in a folder, its network and its tensors, once in a process."""
    task = Task(folder)
    return task, network(task).to(task.device), *(a.to(task.device) for a in tensors(task))


def _to_torch(workload, layer, a):
    if layer.startswith("conv"):
        return a.permute(3, 2, 0, 1)
    if workload == "cnn" and layer == "dense0":
        a = a.reshape(*PICTURE, -1).permute(2, 0, 1, 3).reshape(a.shape)
    return a.T


def _from_torch(workload, layer, a):
    if layer.startswith("conv"):
        return a.permute(2, 3, 1, 0)
    a = a.T
    if workload == "cnn" and layer == "dense0":
        height, width, channels = PICTURE
        a = a.reshape(channels, height, width, -1).permute(1, 2, 0, 3).reshape(a.shape)
    return a
