"""PyTorch modules as models: PyTorch computes losses and gradients, everything else is as always.

Samples, equations, prox and averages are those of every other model, so a module follows the
trajectory of the same network written in JAX, in the simulation and over a network.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from compositefl.core.errors import CompositeFLError, wrong_value
from compositefl.core.types import Array, Batch, Params
from compositefl.models.base import Model, unpack
from compositefl.problem import External

SampleFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """-ln softmax(outputs)_y."""
    return torch.nn.functional.cross_entropy(outputs, y, reduction="none")


def right(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """1 where the largest output is that of the label."""
    return (outputs.argmax(-1) == y).to(outputs.dtype)


def model(
    module: torch.nn.Module,
    loss: SampleFunction | None,
    accuracy: SampleFunction | None,
    classes: int | None,
) -> Model:
    """See `compositefl.models.from_torch`."""
    if not isinstance(module, torch.nn.Module):
        raise wrong_value("module", module, "a torch.nn.Module", shown=repr(module))
    if any(map(is_lazy, module.parameters())):
        raise CompositeFLError(
            f"{type(module).__name__} has lazy layers without shapes yet; call it once on a batch"
        )
    module = copy.deepcopy(module)  # what the user does with theirs later does not matter
    if any(p.dtype == torch.bfloat16 for p in module.parameters()):
        # NumPy has no bfloat16, and a run does not compute in it.
        module = module.to(dtype=torch.float32)
    params = {
        name: p.detach().cpu().numpy().copy()
        for name, p in module.named_parameters()
        if p.requires_grad
    }
    if not params:
        raise CompositeFLError(f"{type(module).__name__} has no parameters that require gradients")
    outputs = None  # a loss of the user's may take fewer than there are classes, or more
    if loss is None:
        loss, accuracy, outputs = cross_entropy, accuracy or right, classes
    return Model(
        name=type(module).__name__,
        init=lambda key: params,
        apply=Apply(copy.deepcopy(module)),
        loss=Mean(module, loss, outputs),
        accuracy=accuracy and Mean(module, accuracy),
        classes=classes,
        coupled=any(isinstance(m, _BatchNorm) and m.training for m in module.modules()),
    )


def load(params: Mapping[str, Array], module: torch.nn.Module) -> torch.nn.Module:
    """See `compositefl.models.to_torch`."""
    wanted = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if wanted.keys() != params.keys():
        differ = ", ".join(sorted(wanted.keys() ^ params.keys()))
        raise CompositeFLError(f"params and the module differ in {differ}")
    for name, parameter in wanted.items():
        if np.shape(params[name]) != parameter.shape:
            raise CompositeFLError(
                f"params['{name}'] has shape {np.shape(params[name])}, the module's has "
                f"{tuple(parameter.shape)}"
            )
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(torch.tensor(np.asarray(params[name])))
    return module


def _numbers(gradient: torch.Tensor) -> np.ndarray:
    """As an array; that of an embedding may be sparse."""
    found: np.ndarray = gradient.to_dense().cpu().numpy()
    return found


def _draws(module: torch.nn.Module) -> bool:
    """Whether a layer drops numbers at random; on few samples it may happen to drop none."""

    def rate(m: torch.nn.Module) -> float:
        if isinstance(m, _DropoutNd):
            return m.p
        if isinstance(m, torch.nn.RNNBase):
            return m.dropout if m.num_layers > 1 else 0.0
        return m.dropout if isinstance(m, torch.nn.MultiheadAttention) else 0.0

    return any(m.training and rate(m) > 0 for m in module.modules())


class Apply:
    """The module as a function of its parameters, in whatever precision they have."""

    def __init__(self, module: torch.nn.Module):
        self.copies = {next(module.parameters()).dtype: Copy(module)}
        self.lock = threading.Lock()  # a copy holds the parameters of one call at a time

    def __call__(self, params: Params, x: Array) -> np.ndarray:
        """Outputs for inputs x, as numpy arrays."""
        with torch.no_grad(), self.lock:
            copy_ = self.loaded(params)
            return copy_.outputs(copy_.tensor(x)).cpu().numpy()

    def loaded(self, params: Params) -> "Copy":
        """A copy of the module with these parameters."""
        found = self.typed(params)
        found.load(params)
        return found

    def typed(self, params: Params) -> "Copy":
        """The copy of the module in the precision of these parameters."""
        dtype = torch.tensor(np.empty(0, next(iter(params.values())).dtype)).dtype
        first = next(iter(self.copies.values()))
        if dtype not in self.copies:
            self.copies[dtype] = Copy(copy.deepcopy(first.module).to(dtype=dtype))
        return self.copies[dtype]


class Copy:
    """A module whose parameters are overwritten before each call; its buffers stay."""

    def __init__(self, module: torch.nn.Module):
        self.module = module
        self.parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        first = next(iter(self.parameters.values()))
        self.dtype, self.device = first.dtype, first.device
        self.buffers = [(b, b.clone()) for b in module.buffers()]

    def load(self, params: Params) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if parameter.device.type == "cpu":
                    np.copyto(parameter.detach().numpy(), params[name])
                else:
                    parameter.copy_(torch.tensor(np.asarray(params[name])))

    def tensor(self, a: Array) -> torch.Tensor:
        a = np.asarray(a)
        whole = np.issubdtype(a.dtype, np.integer)  # PyTorch wants 64 bits of labels
        return torch.tensor(a, dtype=torch.int64 if whole else self.dtype, device=self.device)

    def shared(self, a: Array) -> torch.Tensor:
        """An array as a tensor like those of `tensor`, without a copy where that is possible."""
        try:
            found = torch.from_dlpack(a)
        except BufferError:  # NumPy before 2.1 does not lend what must not be written to
            found = torch.tensor(np.asarray(a))
        whole = not found.is_floating_point()
        return found.to(device=self.device, dtype=torch.int64 if whole else self.dtype)

    def outputs(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for buffer, kept in self.buffers:  # batch normalisation has written its averages
                buffer.copy_(kept)
        return self.module(x)


def _weight_in_front(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """The layer as (W x')' instead of x W'."""
    if x.dim() != 2:
        return torch.nn.functional.linear(x, layer.weight, layer.bias)
    found = (layer.weight @ x.mT).mT
    return found if layer.bias is None else found + layer.bias


@contextmanager
def weights_in_front(module: torch.nn.Module) -> Iterator[None]:
    """Linear layers of several clients at once: the gradient of W comes as W lies, not as W'.

    Its transpose would be copied number by number, which takes longer than the product.
    """
    layers = [
        m for m in module.modules() if type(m) is torch.nn.Linear and not vars(m).get("forward")
    ]
    for layer in layers:
        vars(layer)["forward"] = partial(_weight_in_front, layer)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


class Mean(External):
    """The mean over a batch of function(module(x), y), which is one number a sample.

    classes: how many outputs a sample must have; None: any number.
    """

    def __init__(
        self, module: torch.nn.Module, function: SampleFunction, classes: int | None = None
    ):
        self.name, self.function, self.classes = type(module).__name__, function, classes
        self.apply = Apply(copy.deepcopy(module))

    def __call__(self, params: Params, batch: Batch) -> np.ndarray:
        with torch.no_grad(), self.apply.lock:
            return self._terms(self.apply.loaded(params), batch).mean().cpu().numpy()

    def value_and_gradient(self, params: Params, batch: Batch) -> tuple[np.ndarray, Params]:
        with torch.enable_grad(), self.apply.lock:
            loaded = self.apply.loaded(params)
            value = self._terms(loaded, batch).mean()
            wanted = list(loaded.parameters.values())
            found = torch.autograd.grad(value, wanted, materialize_grads=True)
        names = loaded.parameters
        gradient = {name: _numbers(g) for name, g in zip(names, found, strict=True)}
        return value.detach().cpu().numpy(), gradient

    def values_and_gradients(self, params: Params, batch: Batch) -> tuple[np.ndarray, Params]:
        """Of several clients at once: the gradient of a mapped forward pass."""
        with self.apply.lock:
            copy_ = self.apply.typed(params)
            weights = {n: copy_.shared(params[n]).requires_grad_() for n in copy_.parameters}
            x, y = (copy_.shared(a) for a in unpack(batch))
            with torch.enable_grad(), weights_in_front(copy_.module):
                values = self._of_all(copy_.module, weights, x, y)
                # A client's value depends on its own parameters alone.
                found = torch.autograd.grad(
                    values.sum(), list(weights.values()), materialize_grads=True
                )
        gradient = {name: _numbers(g) for name, g in zip(weights, found, strict=True)}
        return values.detach().cpu().numpy(), gradient

    def _of_all(
        self,
        module: torch.nn.Module,
        weights: dict[str, torch.Tensor],
        x: torch.Tensor,
        y: torch.Tensor,
    ) -> torch.Tensor:
        """The mean of each client, with its parameters and batch in front."""
        buffers = {name: b.clone() for name, b in module.named_buffers()}

        def outputs(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(module, (weights, buffers), (x,))

        if self.function is cross_entropy and y.dim() == 2 and not y.is_floating_point():
            found = torch.func.vmap(outputs)(weights, x)
            if found.dim() == 3:  # along a last axis of a few classes it takes longer
                return cross_entropy(found.mT, y).mean(1)

        def mean(
            weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
        ) -> torch.Tensor:
            return self.function(outputs(weights, x), y).mean()

        return torch.func.vmap(mean)(weights, x, y)

    def side_by_side(self, params: Params, batch: Batch) -> str:
        """Tried on two clients with two samples each, against one after the other."""
        kinds = {type(m).__name__ for m in self.apply.typed(params).module.modules()}
        slow = sorted(kind for kind in kinds if kind.startswith("Conv"))
        if slow:
            return f"PyTorch takes longer for {slow[0]} of several clients at once"
        two = [{name: np.asarray(p) * scale for name, p in params.items()} for scale in (1.0, 0.9)]
        two = [{name: p.astype(params[name].dtype) for name, p in one.items()} for one in two]
        both = {name: np.stack([one[name] for one in two]) for name in params}
        batches = tuple(np.stack([np.asarray(a)[:2]] * 2) for a in unpack(batch))
        try:
            _, found = self.values_and_gradients(both, batches)
        except Exception as error:  # whatever the module does that vmap does not
            return " ".join(str(error).split())[:200]
        for number, one in enumerate(two):
            _, wanted = self.value_and_gradient(one, tuple(a[number] for a in batches))
            for name, gradient in wanted.items():
                size = float(np.abs(gradient).max(initial=1e-6))
                if not np.allclose(found[name][number], gradient, rtol=0, atol=1e-3 * size):
                    return "torch.func gives another gradient"
        return ""

    def _check_outputs(self, present: Copy, x: np.ndarray) -> None:
        """Refuse a module whose outputs are not one for each class."""
        if self.classes is None:
            return
        try:
            with torch.no_grad(), self.apply.lock:
                shape = tuple(present.outputs(present.tensor(x)).shape)
        except Exception:  # is told where the loss is tried
            return
        if len(shape) > 1 and shape[1] != self.classes:
            raise CompositeFLError(
                f"classes={self.classes} but {self.name} has {shape[1]} outputs; cross-entropy "
                "takes one for each class",
                parameter="classes",
                value=self.classes,
            )

    def _terms(self, loaded: Copy, batch: Batch) -> torch.Tensor:
        """function(module(x), y)."""
        x, y = (loaded.tensor(a) for a in unpack(batch))
        return self.function(loaded.outputs(x), y)

    def check(self, batch: Batch) -> None:
        x, y = (np.asarray(a) for a in unpack(batch))
        (present,) = self.apply.copies.values()
        self._check_outputs(present, x)
        try:
            with torch.no_grad(), self.apply.lock:
                first, again = (self._terms(present, (x, y)) for _ in range(2))
        except Exception as error:
            raise CompositeFLError(
                f"{self.name} or its loss fails on samples of shape {x.shape[1:]} with targets of "
                f"shape {y.shape[1:]}: {error}"
            ) from error
        if first.shape != (len(x),):
            raise CompositeFLError(
                f"{self.function} returned shape {tuple(first.shape)} for {len(x)} samples; it "
                "must return one number a sample (PyTorch's own losses: reduction='none')"
            )
        if not torch.equal(first, again) or _draws(present.module):
            raise CompositeFLError(
                f"{self.name} gives another answer each time, as with dropout; the loss must be a "
                "function of parameters and batch: call eval() first or set the dropout to 0"
            )
