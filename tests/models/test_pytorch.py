"""PyTorch modules: the trajectory of the same network in JAX, and what is refused."""

import copy
import re

import jax
import numpy as np
import pytest

import compositefl as cfl
from tests.deployment.deployment_cases import Local, gap, simulate, text

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

torch.set_num_threads(1)  # the tests share the cores
PHI = cfl.ElasticNet(1e-3, 1e-2)
FEDNMAP = cfl.FedNMap(gamma=4.0, local_steps=3, local_lr=0.1)


def network(widths=(64, 8, 10)):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(*widths[:2]), nn.Sigmoid(), nn.Linear(*widths[1:]))


def in_jax(params):
    """The parameters of `network` as those of `cfl.models.mlp`; its kernels are transposed."""
    return {
        f"dense{i}": {"kernel": params[f"{2 * i}.weight"].T, "bias": params[f"{2 * i}.bias"]}
        for i in range(2)
    }


@pytest.fixture(scope="module")
def digits():
    whole = cfl.data.load("digits")
    return cfl.partition.dirichlet(whole.train, 4, alpha=1.0), whole.test


def solve(problem, algorithm=FEDNMAP, phi=PHI, **options):
    options = dict(rounds=3, batch_size=8, eval_every=1, dtype="float64", progress=False) | options
    return cfl.minimize(problem, phi, algorithm, **options)


@pytest.mark.parametrize("batch_size", [8, None])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_trajectory_of_the_same_network_in_jax(digits, dtype, batch_size):
    clients, test = digits
    module = cfl.models.from_torch(network()).problem(clients, test=test)
    mlp = cfl.models.mlp((64, 8, 10), activation="sigmoid").problem(clients, test=test)
    mlp = mlp.with_params(in_jax(module.params))
    mine, theirs = (solve(p, dtype=dtype, batch_size=batch_size) for p in (module, mlp))
    close = dict(rtol=1e-9, atol=1e-11) if dtype == "float64" else dict(rtol=1e-4, atol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **close), in_jax(mine.params), theirs.params
    )
    for name in ("psi", "natural_residual_sq", "normal_map_sq", "zeros", "accuracy", "bytes_up"):
        np.testing.assert_allclose(mine.history[name], theirs.history[name], **close)
    assert (mine.params["0.weight"] == 0).any()


def test_the_result_goes_back_into_the_module(digits, tmp_path):
    clients, test = digits
    module = network()
    result = solve(cfl.models.from_torch(module).problem(clients, test=test), dtype="float32")
    assert not np.array_equal(module[0].weight.detach(), result.params["0.weight"])
    assert cfl.models.to_torch(result.params, module) is module
    np.testing.assert_array_equal(module[0].weight.detach(), result.params["0.weight"])
    with torch.no_grad():
        right = module(torch.tensor(np.asarray(test.x, np.float32))).argmax(-1).numpy() == test.y
    assert right.mean() == pytest.approx(result.history.accuracy.iloc[-1])

    result.save(tmp_path / "run")  # the names in the file are PyTorch's
    from safetensors.torch import load_file

    network().load_state_dict(load_file(tmp_path / "run" / "model.safetensors"), strict=True)


def test_regularisers_by_name(digits):
    clients, _ = digits
    phi = cfl.ByName({"*weight": cfl.L1(10.0), "*": cfl.Zero()})
    params = solve(cfl.models.from_torch(network()).problem(clients), phi=phi).params
    assert not params["0.weight"].any() and not params["2.weight"].any()
    assert params["2.bias"].all()


def test_frozen_parameters_stay(digits):
    clients, _ = digits
    module = network()
    module[0].requires_grad_(False)
    result = solve(cfl.models.from_torch(module).problem(clients))
    assert set(result.params) == {"2.weight", "2.bias"}
    cfl.models.to_torch(result.params, module)
    np.testing.assert_array_equal(module[0].weight, network()[0].weight.detach())


def test_batch_normalisation(digits):
    clients, _ = digits
    module = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    model = cfl.models.from_torch(module)
    assert model.coupled  # minibatches of its own statistics
    problem = model.problem(clients, coupled_batch=16)
    before = {name: b.clone() for name, b in module.named_buffers()}
    first, again = (solve(problem, batch_size=16) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first.params, again.params)
    assert first.history.loss.iloc[-1] < first.history.loss.iloc[0]
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name])
    assert not cfl.models.from_torch(module.eval()).coupled


@pytest.mark.parametrize(
    "layers, why",
    [
        ((nn.Linear(64, 10),), ""),
        ((nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10)), "running_mean|in-place|inplace"),
        ((nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 2, 8), nn.Flatten()), "Conv2d"),
    ],
    ids=["linear", "batch normalisation", "convolution"],
)
def test_clients_side_by_side_where_the_module_allows_it(digits, layers, why):
    model = cfl.models.from_torch(nn.Sequential(*layers), loss=lambda out, y: out.sum(1) * y)
    params = model.init(None)
    found = model.loss.side_by_side(params, digits[0][0])
    assert re.search(why, found) if why else found == ""


class Words(nn.Module):
    """Several positions a sample, and a parameter that is not used."""

    def __init__(self):
        super().__init__()
        self.each, self.unused = nn.Linear(4, 3, bias=False), nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.each(x).tanh().sum(1)


def of_positions(outputs, y):
    """Three positions a sample, each with a label."""
    return nn.functional.cross_entropy(outputs, y, reduction="none").mean(1)


@pytest.mark.parametrize(
    "module, shape, loss",
    [
        (lambda: network((5, 4, 3)), (5,), None),
        (lambda: network((5, 4, 3)), (5,), lambda out, y: out.square().sum(1) * y),
        (Words, (6, 4), None),
        (lambda: nn.Linear(2, 4), (3, 2), of_positions),
    ],
    ids=["cross-entropy", "own loss", "three axes", "labels of positions"],
)
def test_several_clients_at_once_as_one_after_the_other(module, shape, loss):
    model = cfl.models.from_torch(module(), loss)
    rng = np.random.default_rng(0)
    one = {name: np.asarray(p) for name, p in model.init(None).items()}
    all_ = {name: rng.normal(size=(4, *p.shape)).astype(p.dtype) for name, p in one.items()}
    same = {name: np.broadcast_to(p, (4, *p.shape)) for name, p in one.items()}
    x = rng.normal(size=(4, 7, *shape)).astype(np.float32)
    outputs = model.apply(one, x[0])
    y = rng.integers(0, outputs.shape[1], (4, 7, *outputs.shape[2:])).astype(np.int32)
    for params in (all_, same):
        values, gradients = model.loss.values_and_gradients(params, (x, y))
        for i in range(4):
            mine = {name: p[i] for name, p in params.items()}
            value, gradient = model.loss.value_and_gradient(mine, (x[i], y[i]))
            np.testing.assert_allclose(values[i], value, rtol=1e-5)
            for name in gradient:
                np.testing.assert_allclose(gradients[name][i], gradient[name], atol=1e-6)


def test_regression_with_a_loss_of_ones_own(lasso_problem):
    module = nn.Linear(8, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(lasso_problem.params)[None])
    half = lambda outputs, y: 0.5 * (outputs[:, 0] - y) ** 2  # noqa: E731
    model = cfl.models.from_torch(module, half)
    assert model.accuracy is None
    algorithm = cfl.FedNMap(gamma=0.7, local_steps=3, local_lr=0.05)
    mine = solve(model.problem(lasso_problem.clients), algorithm, cfl.L1(0.05))
    theirs = solve(lasso_problem, algorithm, cfl.L1(0.05))
    np.testing.assert_allclose(mine.params["weight"][0], theirs.params, atol=1e-12)


def test_what_is_refused(digits):
    clients, _ = digits
    make = lambda *given, **named: cfl.models.from_torch(*given, **named).problem(clients)  # noqa: E731
    with pytest.raises(cfl.CompositeFLError, match="another answer each time, as with dropout"):
        make(nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.5)))
    make(nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.5)).eval())
    with pytest.raises(cfl.CompositeFLError, match="reduction='none'"):
        make(network(), nn.CrossEntropyLoss())
    with pytest.raises(cfl.CompositeFLError, match=r"Sequential .* samples of shape \(64,\)"):
        make(network((63, 8, 10)))
    with pytest.raises(cfl.CompositeFLError, match="whole numbers from 0 to 8"):
        make(network(), classes=9)
    with pytest.raises(cfl.CompositeFLError, match="classes=10 but Linear has 11 outputs"):
        make(nn.Linear(64, 11), classes=10)
    with pytest.raises(cfl.CompositeFLError, match="classes=10 but Linear has 9 outputs"):
        make(nn.Linear(64, 9), classes=10)
    make(nn.Linear(64, 11), lambda outputs, _: outputs.sum(1), classes=10)
    with pytest.raises(cfl.CompositeFLError, match=r"must be a torch.nn.Module"):
        make(lambda x: x)
    with pytest.raises(cfl.CompositeFLError, match="no parameters that require gradients"):
        make(nn.Sigmoid())
    with pytest.raises(cfl.CompositeFLError, match=r"differ in 2\.bias"):
        cfl.models.to_torch({k: 0 for k in ("0.weight", "0.bias", "2.weight")}, network())
    with pytest.raises(cfl.CompositeFLError, match=r"'0\.weight'\] has shape \(\)"):
        params = cfl.models.from_torch(network()).init(None)
        cfl.models.to_torch(params | {"0.weight": 0}, network())


class Rare(nn.Module):
    """A dropout that two samples do not see."""

    def __init__(self):
        super().__init__()
        self.each, self.drop = nn.Linear(64, 10), nn.Dropout(1e-9)

    def forward(self, x):
        return self.drop(self.each(x))


@pytest.mark.parametrize(
    "module, message",
    [
        (Rare, "as with dropout"),
        (lambda: nn.Sequential(nn.LazyLinear(10)), "call it once on a batch"),
    ],
)
def test_what_a_module_may_not_have(digits, module, message):
    with pytest.raises(cfl.CompositeFLError, match=message):
        cfl.models.from_torch(module()).problem(digits[0])


def test_several_inputs_are_refused():
    x, y = np.ones((6, 4), np.float32), np.arange(6) % 3
    for several in ((x, x[:, :2]), {"a": x, "b": x}):
        with pytest.raises(cfl.CompositeFLError, match="takes one array of inputs"):
            cfl.models.from_torch(nn.Linear(4, 3)).problem([(several, y)] * 2)


class Odd(nn.Module):
    """Sparse gradients of an embedding, and a parameter without entries."""

    def __init__(self):
        super().__init__()
        self.words, self.none = nn.Embedding(5, 3, sparse=True), nn.Parameter(torch.ones(0, 2))

    def forward(self, x):
        return self.words(x).sum(1)


def test_sparse_gradients_and_empty_parameters():
    x, y = np.arange(24).reshape(8, 3) % 5, np.arange(8) % 3
    torch.manual_seed(0)
    odd = Odd()
    dense = copy.deepcopy(odd)
    dense.words.sparse = False
    runs = [
        solve(cfl.models.from_torch(m).problem([(x, y)] * 2), batch_size=4) for m in (odd, dense)
    ]
    np.testing.assert_array_equal(*(r.params["words.weight"] for r in runs))


def test_bfloat16_becomes_float32():
    x, y = np.ones((6, 4), np.float32), np.arange(6) % 3
    model = cfl.models.from_torch(nn.Linear(4, 3, dtype=torch.bfloat16))
    result = solve(model.problem([(x, y)] * 2), dtype="float32")
    assert result.params["weight"].dtype == np.float32


def test_outputs_for_new_inputs(digits):
    _, test = digits
    model = cfl.models.from_torch(network())
    outputs = model.apply(model.init(None), np.asarray(test.x[:5], np.float32))
    with torch.no_grad():
        wanted = network()(torch.tensor(np.asarray(test.x[:5], np.float32)))
    np.testing.assert_allclose(outputs, wanted, rtol=1e-6)


@pytest.mark.parametrize("algorithm", ["fednmap", "mime"])
def test_over_a_network_as_in_the_simulation(tmp_path, algorithm):
    rng = np.random.default_rng(1)
    test = rng.normal(size=(20, 4)), rng.integers(0, 3, 20).astype(np.int32)
    declared = text(algorithm, "torch", batch_size=4)
    local = Local(tmp_path, declared, "mlp", test=test)
    result = local.coordinator.run()
    assert not local.failures()
    theirs = simulate(local.federation, local.data, test=test)
    assert gap(result.params, theirs.params) <= 1e-12
    for name in ("psi", "natural_residual_sq", "normal_map_sq", "accuracy", "bytes_up"):
        np.testing.assert_allclose(result.history[name], theirs.history[name], rtol=1e-9)
