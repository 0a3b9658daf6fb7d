"""A federation in one process, next to the simulation of the same problem."""

import jax
import jax.numpy as jnp
import numpy as np

import compositefl as cfl
from compositefl.core.vector import unwrap
from compositefl.deployment import Coordinator, Federation, InProcess, Site, Worker
from compositefl.deployment.store import Store
from compositefl.models import Model
from compositefl.simulation.simulation import Simulation

SITES = ("north", "east", "south", "west")
SIZES = (12, 7, 12, 7)  # of two kinds: sites of one size run the same compiled programs
FEATURES = 8
OWN = "tests.deployment.deployment_cases"  # the module whose functions the federations name
FAST = "[network]\nround_timeout = 20.0\nretry_wait = 0.0\nretries = 3\n"


def squared_loss(params, batch):
    x, y = batch
    return 0.5 * jnp.mean((x @ params["w"] - y) ** 2)


def lasso_model(features=FEATURES) -> Model:
    """Least squares from a start that is not zero."""
    return Model(
        "lasso",
        lambda key: {"w": jnp.linspace(-0.5, 0.5, features)},
        lambda params, x: x @ params["w"],
        squared_loss,
    )


def lasso_data(seed=3):
    """Sites of unequal size, each with its own true weights."""
    rng = np.random.default_rng(seed)
    data = []
    for size in SIZES:
        x = rng.normal(size=(size, FEATURES)) * rng.uniform(0.5, 1.5, FEATURES)
        w = rng.normal(size=FEATURES) * (rng.random(FEATURES) < 0.6)
        data.append((x, x @ w + 0.1 * rng.normal(size=size)))
    return data


def network_data(seed=0):
    """Three classes, unequal sizes, a shift from site to site."""
    rng = np.random.default_rng(seed)
    return [
        (
            (rng.normal(size=(size, 4)) + i / 4).astype(np.float32),
            rng.integers(0, 3, size).astype(np.int32),
        )
        for i, size in enumerate(SIZES)
    ]


def coupled_loss(params, batch):
    """No mean over samples: it grows with the spread of the batch at hand."""
    return squared_loss(params, batch) * (1 + jnp.std(batch[0]))


def coupled_model(features=FEATURES) -> Model:
    start = lambda key: {"w": jnp.linspace(-0.5, 0.5, features)}  # noqa: E731
    return Model("coupled", start, lambda params, x: x @ params["w"], coupled_loss, coupled=True)


def torch_model() -> Model:
    """A PyTorch module, the same at every site."""
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    return cfl.models.from_torch(module, classes=3)


ALGORITHMS = {
    "fednmap": 'name = "fednmap"\nlocal_steps = 3\nlocal_lr = 0.05\nserver_lr = 1.0\ngamma = 0.5',
    "auto": 'name = "fednmap"\nlocal_lr = "auto"',
    "za1": 'name = "za1"\nlocal_steps = 3\nlocal_lr = 0.03\nserver_lr = 1.0',
    "fedcanon": 'name = "fedcanon"\nlocal_steps = 3\nlocal_lr = 0.05\nserver_lr = 0.8',
    "scaffold": (
        'name = "scaffold"\nlocal_steps = 3\nlocal_lr = 0.05\nserver_lr = 1.0\n'
        'composite = "server-prox"'
    ),
    "fedda": 'name = "fedda"\nlocal_steps = 3\nlocal_lr = 0.05\nserver_lr = 1.0',
    "feddr": (
        'name = "compositefl.algorithms.feddr:FedDR"\n'
        "local_steps = 3\nlocal_lr = 0.05\neta = 0.5\nrelaxation = 1.5"
    ),
    "prox-newton": 'name = "prox-newton"',
    "mime": (
        'name = "compositefl.algorithms.mime:MimeLite"\n'
        'local_steps = 3\nlocal_lr = 0.05\ncomposite = "server-prox"'
    ),
}
MODELS = {
    "lasso": 'name = "tests.deployment.deployment_cases:lasso_model"',
    "coupled": 'name = "tests.deployment.deployment_cases:coupled_model"',
    "torch": 'name = "tests.deployment.deployment_cases:torch_model"',
    "mlp": 'name = "mlp"\ninput_shape = [4]\nclasses = 3\nhidden = [5]',
}
DATA = {"lasso": lasso_data, "coupled": lasso_data, "mlp": network_data}


def text(algorithm="fednmap", model="lasso", network=FAST, extra="", **entries):
    """A federation.toml."""
    given = {
        "name": "test",
        "sites": list(SITES),
        "regularizer": "l1:0.05",
        "rounds": 6,
        "seed": 5,
        "dtype": "float64",
        "eval_every": 1,
        "eval_gamma": 0.5,
    } | entries
    lines = [f"{k} = {v!r}".replace("'", '"') for k, v in given.items() if v is not None]
    return (
        "\n".join(lines)
        + f"\n[model]\n{MODELS[model]}\n[algorithm]\n{ALGORITHMS[algorithm]}\n{network}{extra}"
    )


PATIENT = FAST.replace("20.0", "200.0")  # a site that is lost for a moment changes the decisions
AUTO = text(
    "auto", network=PATIENT, rounds=30, eval_every=5, eval_gamma=None
)  # numbers set themselves


def declare(text):
    """The federation of a text on a node that accepts our functions."""
    return Federation.parse(text).trusting([OWN])


def write_sites(folder, federation, data, test=None, accept=True):
    """A folder with data and site.toml for each site; returns the sites."""
    sites = {}
    for name, (x, y) in zip(federation.sites, data, strict=True):
        here = folder / name
        here.mkdir(parents=True, exist_ok=True)
        np.savez(here / "data.npz", x=x, y=y)
        hashes = f'["{federation.hash}"]' if accept else "[]"
        lines = f'name = "{name}"\naccept = {hashes}\nmodules = ["{OWN}"]\n'
        lines += '[train]\nfile = "data.npz"\nx = "x"\ny = "y"\n'
        if test is not None:
            np.savez(here / "test.npz", x=test[0], y=test[1])
            lines += '[test]\nfile = "test.npz"\nx = "x"\ny = "y"\n'
        (here / "site.toml").write_text(lines)
        sites[name] = Site.read(here / "site.toml")
    return sites


class Local:
    """A federation on workers of this process."""

    def __init__(self, folder, federation_text, model="lasso", fault=None, test=None):
        self.folder = folder
        self.federation = declare(federation_text)
        self.data = DATA[model]()
        self.sites = write_sites(folder, self.federation, self.data, test)
        self.workers = {}
        for name in self.sites:
            self.restart(name)
        self.events = []
        self.fault = fault
        self.coordinator = self.new_coordinator()

    def restart(self, name):
        """A new worker process for a site: only its disk survives."""
        self.workers[name] = Worker(self.sites[name], self.folder / name / "state")

    def handlers(self):
        return {
            name: (lambda method, payload, name=name: self.workers[name].handle(method, payload))
            for name in self.sites
        }

    def new_coordinator(self):
        """A new server process: only its disk survives."""
        transport = InProcess(self.handlers(), self.fault)
        return Coordinator(
            self.federation, transport, self.folder / "server", "run", self.events.append
        )

    def failures(self):
        """What went wrong, one line each."""
        form = "{site} {call} {round}: {reason}"
        return [form.format(**e) for e in self.events if e["event"] == "failure"]

    def committed(self, coordinator=None):
        """The sites' states that the server's state counts on, by its own table.

        From the disk: a worker that was restarted last has nothing in memory.
        """
        states = {}
        plan = (coordinator or self.coordinator).plan
        for site, accepted in (coordinator or self.coordinator).roster.accepted().items():
            folder = self.folder / site / "state" / "run" / self.federation.hash[:16]
            store = Store(folder, plan.client, plan.shapes.upload)
            entry = store.committed if store.committed.round == accepted else store.pending
            assert entry is not None and entry.round == accepted
            states[site] = entry.state
        return states

    def drift(self):
        """|mean of the committed h_i - cbar|, FedNMap's invariant."""
        states = self.committed()
        hs = [state.h.tree for state in states.values()]
        mean = jax.tree.map(lambda *a: np.mean(a, axis=0), *hs)
        gaps = jax.tree.map(
            lambda a, b: np.abs(a - b).max(), mean, self.coordinator.server.cbar.tree
        )
        return max(jax.tree.leaves(gaps))


def simulate(federation, data, test=None, **options):
    """The same run in the simulation."""
    problem = federation.make_model().problem(data, test=test, seed=federation.seed)
    algorithm = federation.make_algorithm()
    given = federation.shared() | {"progress": False} | options
    return cfl.minimize(problem, algorithm.regularizer, algorithm, **given)


def simulated_models(federation, data):
    """The simulation's model after every round."""
    problem = federation.make_model().problem(data, seed=federation.seed)
    with jax.enable_x64(federation.dtype == "float64"):
        simulation = Simulation(
            problem,
            [federation.make_algorithm()],
            [0],
            seed=federation.seed,
            batch_size=federation.batch_size,
            count=len(data),
            weights=np.ones(len(data)),
            dtype=federation.dtype,
        )
        for round_ in range(1, federation.rounds + 1):
            simulation.advance(round_)
            yield jax.tree.map(lambda a: a[0], unwrap(simulation.models()))


def gap(a, b):
    """The largest difference between two pytrees."""
    gaps = jax.tree.map(lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max()), a, b)
    return max(jax.tree.leaves(gaps))


def centralised(data, weight, iterations=20000):
    """Proximal gradient in plain NumPy for the mean of the sites plus weight * ||x||_1."""
    hessian = np.mean([a.T @ a / len(b) for a, b in data], axis=0)
    linear = np.mean([a.T @ b / len(b) for a, b in data], axis=0)
    step, x = 1.0 / np.linalg.eigvalsh(hessian)[-1], np.zeros(hessian.shape[0])
    for _ in range(iterations):
        z = x - step * (hessian @ x - linear)
        x = np.sign(z) * np.maximum(np.abs(z) - step * weight, 0.0)
    return x
