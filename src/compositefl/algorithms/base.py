"""The nine questions every algorithm answers, and the hyper-parameters that they share."""

import dataclasses
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.component import component, replace, static
from compositefl.core.errors import (
    CompositeFLError,
    is_concrete,
    require_integer,
    require_positive,
    require_single,
    wrong_value,
)
from compositefl.core.trees import tree_bytes
from compositefl.core.types import (
    Broadcast,
    ClientState,
    LocalState,
    Number,
    PyTree,
    ServerState,
    Upload,
)
from compositefl.core.vector import Vector
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.elementary import Zero

if TYPE_CHECKING:
    StepSize: TypeAlias = float
    StepCount: TypeAlias = int
else:
    StepSize = float | str  # a number, or "auto" or "theory" until `minimize` has found the number
    StepCount = int | str  # a number, or "auto"

AUTO: Any = "auto"
SMALLEST_STEP = 1e-4  # below it, float32 loses what a division by the step is to recover
WITHIN = 0.9  # share of 1/rho that steps which set themselves may take


class Knobs(NamedTuple):
    """The numbers that set themselves; a method takes those that it was told are "auto"."""

    local_lr: float
    local_steps: int
    server_lr: float = 1.0
    memory: float = 1.0  # gamma / eta_hat: over how many rounds z averages gradients at zeros


def is_auto(value: object) -> bool:
    """Whether a number is to set itself."""
    return isinstance(value, str) and value == AUTO


def automatic(algorithm: "Algorithm") -> list[str]:
    """The fields of an algorithm that are to set themselves."""
    names = [f.name for f in dataclasses.fields(algorithm)]
    return [name for name in names if is_auto(getattr(algorithm, name))]


def wants_theory(algorithm: "Algorithm") -> bool:
    """Whether the step sizes are left to the theorem."""
    step = getattr(algorithm, "local_lr", None)
    return isinstance(step, str) and step == "theory"


@component
class Algorithm:
    """A federated method as pure functions; an engine owns the loop, the data and the network.

    One round, for an engine that runs client i:

        message = algorithm.broadcast(server)
        local = algorithm.begin(message, client)
        for l in range(steps):
            point = algorithm.query(local, l)
            local = algorithm.step(local, gradient of f_i at point, l)
        upload, client = algorithm.finish(local, steps)
        server = algorithm.update(server, mean of the uploads, participation)

    States, messages and uploads are pytrees (NamedTuples) of `Vector`s and scalars.
    """

    paper: ClassVar[str] = ""
    covers: ClassVar[str] = ""  # the class of problems that the paper treats
    # What the engine must know. Reasons are sentences for error messages.
    exact_gradients: ClassVar[bool] = False  # every gradient is a full local gradient
    one_minibatch: ClassVar[bool] = False  # the same minibatch for all steps of a round
    wants_values: ClassVar[bool] = False  # `step` gets (loss, gradient) instead of the gradient
    stops_early: ClassVar[bool] = False  # `finished` may end a client's round early
    takes_steps: ClassVar[bool] = True  # False: `begin` and `finish` are a client's whole round
    needs: ClassVar[frozenset[str]] = frozenset()  # extra arguments of `begin`, see there
    allows_noise: ClassVar[bool] = False  # uploads may be clipped and changed, see `state_after`
    divides_by_step: ClassVar[bool] = False  # recovers a mean gradient from a difference of points
    needs_everyone: ClassVar[str] = ""  # why it cannot run with a part of the clients
    needs_all_steps: ClassVar[str] = ""  # why no client may stop before its last step
    # Prox evaluations of `update` where a loop hides them from the accounts, which trace it.
    prox_of_update: ClassVar[int | None] = None

    _: KW_ONLY
    regularizer: Regularizer = field(default=Zero(), repr=False)

    def check(self) -> None:
        """Refuse hyper-parameters outside their range, given the regulariser."""

    def cautions(self, dtype: str) -> list[str]:
        """What these numbers, though allowed, will probably do: sentences for a warning.

        dtype: the floating-point type of the run.
        """
        step: Any = getattr(self, "local_lr", None)
        if not (self.divides_by_step and dtype == "float32" and is_concrete(step)):
            return []
        if step >= SMALLEST_STEP:
            return []
        return [
            f"local_lr={step:g} is below {SMALLEST_STEP:g}: {type(self).__name__} divides "
            "differences of points by it, which in float32 leaves few digits of the mean gradient; "
            "dtype='float64' keeps them"
        ]

    def at(self, knobs: Knobs) -> Self:
        """This method with numbers where "auto" stands, eta_a Q eta_s kept below 1/rho."""
        wanted = [name for name in automatic(self) if name in Knobs._fields]
        if not wanted:
            return self
        there: Any = {name: getattr(self, name, 1.0) for name in Knobs._fields}
        there |= {name: getattr(knobs, name) for name in wanted}
        most = WITHIN * float(jnp.min(jnp.asarray(self.regularizer.max_prox)))
        if "local_steps" in wanted and "local_lr" not in wanted:
            there["local_steps"] = max(1, int(min(there["local_steps"], most / there["local_lr"])))
        if "local_lr" in wanted:
            longest = most / (there["local_steps"] * max(1.0, there["server_lr"]))
            there["local_lr"] = min(there["local_lr"], longest)
        return replace(self, **{name: there[name] for name in wanted})

    def rescale(self, server: ServerState, new: "Algorithm") -> ServerState:
        """The server's state for the same method with other numbers, at the same model.

        For a class whose state depends on its numbers; they may change between two rounds.
        """
        return server

    def prox(self, z: Vector, t: Number) -> Vector:
        """prox_t(z) of the regulariser."""
        return Vector(self.regularizer.prox(z.tree, t))

    @property
    def steps(self) -> Number:
        """Gradient steps that a client takes in one round."""
        return 1

    def draw_steps(self, key: jax.Array) -> Number:
        """The number of steps of this round, the same for all clients; may be random."""
        return self.steps

    def start_at(self, x0: Vector) -> Vector:
        """The start `params` for which the first model is x0.

        x0 itself, except for a method that starts before a prox: prox_t(x0 + t s) = x0 with s a
        subgradient of phi at x0. That lets methods be compared from the same model.
        """
        point = self.normal_map_point(self.init_server(x0))
        return x0 if point is None else x0 + point[1] * self.subgradient(x0)

    def subgradient(self, x: Vector) -> Vector:
        """A subgradient of phi at x: its gradient where it has one, 0 where an entry is 0."""
        slope = Vector(jax.grad(self.regularizer.value)(x.tree))
        if not self.regularizer.is_separable:
            return slope
        return slope.map(lambda s, a: jnp.where(a == 0, 0, s), x)

    def init_server(self, x0: Vector) -> ServerState:
        raise NotImplementedError

    def init_client(self, x0: Vector) -> ClientState:
        """One client's private state before its first round."""
        return ()

    def broadcast(self, server: ServerState) -> Broadcast:
        """What goes down the wire to every client of the round."""
        raise NotImplementedError

    def anchor(self, message: Broadcast) -> Vector:
        """The point of the full gradients that `needs` names."""
        raise NotImplementedError

    def begin(self, message: Broadcast, client: ClientState) -> LocalState:
        """The client's local state at the start of a round.

        Keyword arguments that a class may ask for in `needs`: "key", a random key of its own;
        "shared_key", the round's key of `draw_steps`, the same for all clients;
        "full_loss", "full_gradient", "hessian", the mean of the client's loss over all its samples
        at `anchor(message)`, its gradient, and its Hessian as a matrix in the flat order of the
        parameters (`ravel_pytree`);
        "mean_full_gradient", the mean of those over the round's clients (one more round trip).
        """
        raise NotImplementedError

    def query(self, local: LocalState, l: Number) -> PyTree:
        """The point where the l-th gradient of the round is wanted, or a tuple of points.

        All points of one step are answered on the same minibatch.
        """
        raise NotImplementedError

    def step(self, local: LocalState, gradient: PyTree, l: Number) -> LocalState:
        """The local state after the l-th local step; `gradient` is shaped like the query."""
        raise NotImplementedError

    def finished(self, local: LocalState) -> jax.Array:
        """Whether the client may stop before its last step, for a class that `stops_early`."""
        raise NotImplementedError

    def finish(self, local: LocalState, steps: Number) -> tuple[Upload, ClientState]:
        """(upload, new private state) after `steps` local steps.

        The new state becomes valid only when the server has accepted the upload.
        """
        raise NotImplementedError

    def state_after(self, message: Broadcast, client: ClientState, sent: Upload) -> ClientState:
        """The private state that belongs to an upload other than the one of `finish`.

        For a class that `allows_noise` and has private states: the server knows only what was sent,
        and both must agree.
        """
        raise NotImplementedError

    def update(
        self, server: ServerState, mean_upload: Upload, participation: Number
    ) -> ServerState:
        """The server's new state.

        `mean_upload` is the weighted mean over the uploads that arrived and `participation` the
        share of the total client weight that they carry (1 when everyone answered).
        """
        raise NotImplementedError

    def model(self, server: ServerState) -> Vector:
        """The model for the user: a point that comes out of a prox."""
        raise NotImplementedError

    def normal_map_point(self, server: ServerState) -> tuple[Vector, Number] | None:
        """(z, gamma) with model(server) = prox_gamma(z), for a method that iterates on such a z.

        The history's normal map is then the method's own, F_nor(z) = grad f(x) + (z - x)/gamma.
        """
        return None

    def upload_bytes(self, upload: Upload) -> int:
        """Bytes of an upload on the wire; less than its arrays hold if it is compressed."""
        return tree_bytes(upload)


def overshoot_of_zeros(
    name: str, step: Number, gamma: Number, regularizer: Regularizer
) -> list[str]:
    """A caution where the step of a normal-map method exceeds gamma.

    On coordinates that the prox sets to zero x stands still, and the distance of z to its fixed
    point changes by the factor 1 - step/gamma per round: beyond 2 gamma it grows.
    """
    if not (is_concrete(step) and is_concrete(gamma)) or isinstance(regularizer, Zero):
        return []
    if step <= gamma * (1 + 1e-6):
        return []
    what = "zeros are lost" if step > 2 * gamma else "zeros settle slowly"
    return [
        f"{name}={step:g} is above gamma={gamma:g}: on zeros of the model z is multiplied by "
        f"1 - {step:g}/{gamma:g} in every round, so {what}; smaller steps or a larger gamma help"
    ]


def require_numbers(algorithm: Algorithm) -> None:
    """Refuse what is no number, or an array, in a field declared as a number; and what is no bool.

    Where a method computes, True is 1 and "0.1" may be 0.1, or not.
    """
    for f in dataclasses.fields(algorithm):
        kinds, value = {f.type, *get_args(f.type)}, getattr(algorithm, f.name)
        if {float, int} & kinds:
            require_single(**{f.name: value})
            others = tuple(kind for kind in kinds - {float, int} if isinstance(kind, type))
            if not (is_concrete(value) or isinstance(value, (jax.core.Tracer, *others))):
                raise wrong_value(f.name, value, "a number", shown=repr(value))
        elif f.type is bool and not isinstance(value, (bool, np.bool_)):
            raise wrong_value(f.name, value, "True or False", shown=repr(value))


def require_steps(algorithm: Algorithm, *names: str) -> None:
    """Refuse numbers that are neither in their range nor to be found in the run."""
    later = automatic(algorithm) + (["local_lr"] if wants_theory(algorithm) else [])
    for name in names:
        if name not in later:
            require_single(**{name: getattr(algorithm, name)})
            check = require_integer if name == "local_steps" else require_positive
            check(**{name: getattr(algorithm, name)})
    if wants_theory(algorithm) and "local_steps" in later:
        raise CompositeFLError(
            f"local_steps={AUTO!r} must be ",
            parameter="local_steps",
            value=AUTO,
            also={"local_lr": "theory"},
            remedy="steps for theory",
        )


@component
class FederatedAlgorithm(Algorithm):
    """A method with local steps: Q = local_steps, eta_a = local_lr, eta_s = server_lr.

    A number that is "auto" sets itself in the run (`engine.pilot`), by default Q and eta_a.
    local_lr="theory" leaves all step sizes to the method's theorem (see `compositefl.theory`).
    """

    _: KW_ONLY
    local_steps: StepCount = AUTO
    local_lr: StepSize = AUTO
    server_lr: StepSize = 1.0

    def __post_init__(self) -> None:
        require_steps(self, "local_steps", "local_lr", "server_lr")

    @property
    def steps(self) -> Number:
        return self.local_steps

    @property
    def eta_hat(self) -> Number:
        """Effective step of one round, eta_hat = eta_a * eta_s * Q."""
        return self.local_lr * self.server_lr * self.local_steps


@component
class CompositeVariants(Algorithm):
    """A method whose paper has no regulariser, with two composite variants that are ours.

    composite="none": phi must be zero. "subgradient": clients add a subgradient of phi to their
    gradient (no exact zeros come out). "server-prox": the server applies prox with parameter
    eta_hat, the effective step of one round, after its update.
    """

    eta_hat_formula: ClassVar[str] = ""  # for error messages
    prox_counts_steps: ClassVar[bool] = False  # eta_hat has a Q that the uploads have as well

    _: KW_ONLY
    composite: str = static(default="none")

    def check(self) -> None:
        allowed = ("none", "subgradient", "server-prox")
        if self.composite not in allowed:
            raise wrong_value(
                "composite", self.composite, f"one of {allowed}", shown=repr(self.composite)
            )
        if self.composite == "none" and not isinstance(self.regularizer, Zero):
            raise CompositeFLError(
                f"{type(self).__name__} is defined without a regulariser; ",
                parameter="composite",
                value=self.composite,
                remedy="composite",
            )
        if self.composite == "server-prox":
            self.regularizer.check_prox(self.eta_hat_formula, self.eta_hat)
        if self.composite == "subgradient" and self.regularizer.constrains:
            raise CompositeFLError(
                f"composite='subgradient' cannot enforce a constraint: the gradient of "
                f"{self.regularizer!r} is zero wherever it exists",
                parameter="composite",
                value=self.composite,
            )

    @property
    def needs_all_steps(self) -> str:  # type: ignore[override]
        """A prox for Q steps after an upload of fewer would give phi another weight than f."""
        if self.composite == "server-prox" and self.prox_counts_steps:
            return "the server's prox belongs to Q steps of every client"
        return ""

    @property
    def eta_hat(self) -> Number:
        """Effective step of one round."""
        raise NotImplementedError

    def total_gradient(self, gradient: Vector, x: Vector) -> Vector:
        """The gradient, plus a subgradient of phi at x in the subgradient variant."""
        if self.composite != "subgradient":
            return gradient
        return gradient + Vector(jax.grad(self.regularizer.value)(x.tree))

    def server_prox(self, x: Vector) -> Vector:
        """prox_{eta_hat}(x) in the server-prox variant, x otherwise."""
        return self.prox(x, self.eta_hat) if self.composite == "server-prox" else x


@component
class SmoothAlgorithm(CompositeVariants, FederatedAlgorithm):
    """A federated method for smooth objectives: local steps, and the two composite variants."""

    eta_hat_formula = "eta_hat = local_lr*server_lr*local_steps"
    eta_hat = FederatedAlgorithm.eta_hat


@component
class AveragingAlgorithm(CompositeVariants):
    """A method for smooth objectives whose server averages its clients: there is no server_lr.

    Q = local_steps, eta_a = local_lr, and the effective step of a round is eta_a * Q.
    """

    eta_hat_formula = "eta_hat = local_lr*local_steps"

    _: KW_ONLY
    local_steps: StepCount = AUTO
    local_lr: StepSize = AUTO

    def __post_init__(self) -> None:
        require_steps(self, "local_steps", "local_lr")

    @property
    def steps(self) -> Number:
        return self.local_steps

    @property
    def eta_hat(self) -> Number:
        return self.local_lr * self.local_steps
