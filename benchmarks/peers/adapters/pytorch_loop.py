"""The plain loop that one writes oneself: a module, SGD, an average."""

import sys

import torch
from protocol import Clock, Task
from torch.nn.functional import cross_entropy
from torch_networks import arrays, network, tensors

task = Task(sys.argv[1])
torch.manual_seed(task.seed)
clock = Clock(task)
device = torch.device(task.device)
module = network(task).to(device)
x, y = (a.to(device) for a in tensors(task))
params = list(module.parameters())
server = [p.detach().clone() for p in params]
control = [torch.zeros_like(p) for p in server]
controls = [[torch.zeros_like(p) for p in server] for _ in range(task.clients)]
optimizer = torch.optim.SGD(params, lr=task.lr)


def step(rows, client):
    optimizer.zero_grad()
    cross_entropy(module(x[client, rows]), y[client, rows]).backward()
    if task.method == "scaffold":
        for p, ours, own in zip(params, control, controls[client], strict=True):
            p.grad += ours - own
    optimizer.step()


def advance(rounds):
    samples = x.shape[1]
    for _ in range(rounds):
        mean = [torch.zeros_like(p) for p in server]
        change = [torch.zeros_like(p) for p in server]
        for client in range(task.clients):
            with torch.no_grad():
                for p, s in zip(params, server, strict=True):
                    p.copy_(s)
            for _ in range(task.epochs):
                order = torch.randperm(samples, device=device) if task.batch else None
                for first in range(0, samples, task.batch_size):
                    rows = slice(None) if order is None else order[first : first + task.batch_size]
                    step(rows, client)
            with torch.no_grad():
                for i, p in enumerate(params):
                    mean[i] += p / task.clients
                    if task.method == "scaffold":
                        moved = (server[i] - p) / (task.steps * task.lr) - control[i]
                        controls[client][i] += moved
                        change[i] += moved / task.clients
        for i in range(len(server)):
            server[i] = mean[i]
            control[i] = control[i] + change[i]
    if device.type == "cuda":
        torch.cuda.synchronize()


def model():
    names = [name for name, _ in module.named_parameters()]
    return arrays(task, dict(zip(names, server, strict=True)))


clock.drive(advance, model)
clock.report(version=torch.__version__)
