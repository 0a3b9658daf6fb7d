"""PyTorch modules as models: PyTorch computes losses and gradients, everything else is as always.

Samples, equations, prox and averages are those of every other model, so a module follows the
trajectory of the same network written in JAX, in the simulation and over a network.
"""

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from compositefl.errors import CompositeFLError
from compositefl.models.base import Model, unpack
from compositefl.problem import Foreign

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
        raise CompositeFLError(f"module={module!r} must be a torch.nn.Module")
    module = copy.deepcopy(module)  # what the user does with theirs later does not matter
    params = {
        name: p.detach().cpu().numpy().copy()
        for name, p in module.named_parameters()
        if p.requires_grad
    }
    if not params:
        raise CompositeFLError(f"{type(module).__name__} has no parameters that require gradients")
    if loss is None:
        loss, accuracy = cross_entropy, accuracy or right
    return Model(
        name=type(module).__name__,
        init=lambda key: params,
        apply=Apply(module),
        loss=Mean(module, loss),
        accuracy=accuracy and Mean(module, accuracy),
        classes=classes,
        coupled=any(isinstance(m, _BatchNorm) and m.training for m in module.modules()),
    )


def load(params: Mapping[str, Any], module: torch.nn.Module) -> torch.nn.Module:
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


class Apply:
    """The module as a function of its parameters, in whatever precision they have."""

    def __init__(self, module: torch.nn.Module):
        self.modules = {next(module.parameters()).dtype: module}
        self.lock = threading.Lock()  # functional_call swaps parameters in place while it runs

    def __call__(self, params: Any, x: Any) -> np.ndarray:
        """Outputs for inputs x, as numpy arrays."""
        with torch.no_grad(), self.lock:
            tensors = {name: self.tensor(a) for name, a in params.items()}
            return self.outputs(tensors, self.tensor(x)).cpu().numpy()

    def outputs(self, tensors: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        module = self._module(next(iter(tensors.values())).dtype)
        buffers = {name: b.clone() for name, b in module.named_buffers()}  # batch norm writes them
        return functional_call(module, tensors | buffers, (x,))

    def tensor(self, a: Any) -> torch.Tensor:
        a = np.asarray(a)
        whole = np.issubdtype(a.dtype, np.integer)  # PyTorch wants 64 bits of labels
        return torch.tensor(a, dtype=torch.int64 if whole else None, device=self.device)

    @property
    def device(self) -> torch.device:
        return next(next(iter(self.modules.values())).parameters()).device

    def _module(self, dtype: torch.dtype) -> torch.nn.Module:
        """The module with frozen parameters and buffers of this type."""
        if dtype not in self.modules:
            first = next(iter(self.modules.values()))
            self.modules[dtype] = copy.deepcopy(first).to(dtype=dtype)
        return self.modules[dtype]


class Mean(Foreign):
    """The mean over a batch of function(module(x), y), which is one number a sample."""

    def __init__(self, module: torch.nn.Module, function: SampleFunction):
        self.name, self.function = type(module).__name__, function
        self.apply = Apply(module)

    def __call__(self, params: Any, batch: Any) -> np.ndarray:
        with torch.no_grad(), self.apply.lock:
            return self._terms(self._tensors(params), batch).mean().cpu().numpy()

    def value_and_gradient(self, params: Any, batch: Any) -> tuple[np.ndarray, Any]:
        with torch.enable_grad(), self.apply.lock:
            tensors = {name: t.requires_grad_() for name, t in self._tensors(params).items()}
            value = self._terms(tensors, batch).mean()
            found = torch.autograd.grad(value, list(tensors.values()), materialize_grads=True)
        gradient = {name: g.cpu().numpy() for name, g in zip(tensors, found, strict=True)}
        return value.detach().cpu().numpy(), gradient

    def _tensors(self, params: Any) -> dict[str, torch.Tensor]:
        return {name: self.apply.tensor(a) for name, a in params.items()}

    def _terms(self, tensors: dict[str, torch.Tensor], batch: Any) -> torch.Tensor:
        """function(module(x), y), with inputs in the precision of the parameters."""
        kind = next(iter(tensors.values())).dtype
        x, y = (self.apply.tensor(a) for a in unpack(batch))
        x, y = (a.to(kind) if a.is_floating_point() else a for a in (x, y))
        return self.function(self.apply.outputs(tensors, x), y)

    def check(self, batch: Any) -> None:
        x, y = (np.asarray(a) for a in unpack(batch))
        module = next(iter(self.apply.modules.values()))
        tensors = {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}
        try:
            with torch.no_grad(), self.apply.lock:
                first, again = (self._terms(tensors, (x, y)) for _ in range(2))
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
        if not torch.equal(first, again):
            raise CompositeFLError(
                f"{self.name} gives another answer each time, as with dropout; the loss must be a "
                "function of parameters and batch: call eval() first or set the dropout to 0"
            )
