"""What noise at the sites costs in accuracy: `python benchmarks/privacy.py`.

FedDA and FedNMap on the bundled digits, 4 sites in this process, multinomial regression; the
accuracy is that of the final model on the public test set. Needs `compositefl[privacy]`.
"""

import tempfile
from pathlib import Path

import compositefl as cfl
from compositefl.cli.rehearsal_data import write_site
from compositefl.deployment import Coordinator, Federation, InProcess, Site, Worker

DECLARATION = """name = "privacy"
sites = ["a", "b", "c", "d"]
rounds = {rounds}
batch_size = 32
eval_every = 0
regularizer = "l1:0.0001"
[model]
name = "multinomial"
input_shape = [64]
classes = 10
[algorithm]
name = "{algorithm}"
local_steps = 10
local_lr = 0.1
"""
NOISE = "[privacy]\nclip = {clip}\nnoise = {noise}\n"
ROUNDS = 30


def accuracy(algorithm: str, clip: float, noise: float) -> tuple[float, float]:
    """(test accuracy, epsilon) after the run."""
    text = DECLARATION.format(rounds=ROUNDS, algorithm=algorithm)
    if noise:
        text += NOISE.format(clip=clip, noise=noise)
    federation = Federation.parse(text)
    data = cfl.data.load("digits")
    assert data.test is not None
    clients = cfl.partition.iid(data.train, len(federation.sites))
    with tempfile.TemporaryDirectory() as folder:
        handlers = {}
        for name, batch in zip(federation.sites, clients, strict=True):
            here = Path(folder) / name
            here.mkdir()
            write_site(here, name, federation, batch, data.test)
            handlers[name] = Worker(Site.read(here / "site.toml"), here / "state").handle
        transport = InProcess(handlers)
        result = Coordinator(federation, transport, Path(folder) / "server", "run").run()
        transport.close()
    model = federation.make_model()
    assert model.accuracy is not None
    share = float(model.accuracy(result.params, data.test))
    return share, float(result.config.get("epsilon", float("inf")))


if __name__ == "__main__":
    for algorithm in ("fedda", "fednmap"):
        for clip, noise in ((0.0, 0.0), (1.0, 0.05), (1.0, 0.5), (1.0, 2.0), (1.0, 8.0)):
            share, epsilon = accuracy(algorithm, clip, noise)
            told = f"accuracy {share:.3f}, epsilon {epsilon:.3g}"
            print(f"{algorithm}, clip {clip}, noise {noise}: {told}", flush=True)
