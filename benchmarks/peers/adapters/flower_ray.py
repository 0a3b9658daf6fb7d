"""Flower: its simulation engine, clients on Ray actors, one for each core."""

import logging
import sys
from importlib.metadata import version

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from protocol import Clock, Task, save_model
from torch.nn.functional import cross_entropy
from torch_networks import arrays, loaded, network

folder = sys.argv[1]
task = Task(folder)
if task.method != "fedavg":
    sys.exit("Flower has no SCAFFOLD")
clock = Clock(task)


client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    task, module, x, y = loaded(folder)
    client = context.node_config["partition-id"]
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(module.parameters(), lr=task.lr)
    samples = x.shape[1]
    for _ in range(task.epochs):
        order = torch.randperm(samples) if task.batch else torch.arange(samples)
        for rows in order.split(task.batch_size):
            optimizer.zero_grad()
            cross_entropy(module(x[client, rows]), y[client, rows]).backward()
            optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": samples}),
        }
    )
    return Message(content=content, reply_to=message)


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    def after(round_: int, _: ArrayRecord) -> None:
        if round_:
            clock.tick()

    result = FedAvg(fraction_evaluate=0.0, min_available_nodes=task.clients).start(
        grid, ArrayRecord(network(task).state_dict()), num_rounds=task.rounds, evaluate_fn=after
    )
    save_model(task, arrays(task, result.arrays.to_torch_state_dict()))
    clock.report(version=version("flwr"))


logging.disable(logging.WARNING)
gpus = 0.0 if task.device == "cpu" else 0.25
run_simulation(
    server_app,
    client_app,
    task.clients,
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": gpus}},
)
