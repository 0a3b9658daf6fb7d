"""Spreading samples over clients: evenly, by label, by Dirichlet draws, or as naturally grouped.

Every function returns a `Partition`, a sequence of batches, and gives each sample to exactly one
client and each client at least one sample. Random ones depend on the seed alone. Labels are the
data's `.y`, its `["y"]` or the last element of a tuple, unless `labels=` gives them.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from compositefl.core.arrays import Columns, as_arrays, same_columns
from compositefl.core.errors import CompositeFLError, require_integer, require_positive, wrong_value
from compositefl.core.trees import named_leaves
from compositefl.core.types import Batch
from compositefl.data import synthetic as synthetic_data
from compositefl.data.samples import sample_count, take


class Partition(Sequence[Batch]):
    """The clients' batches. `partition[i]` takes client i's samples from `data` when asked.

    data: the batch that was spread. indices: one integer array a client, rows of `data`.
    sizes: the number of samples of each client. labels: of all samples of `data`, or None.
    """

    def __init__(self, data: Batch, indices: Iterable[ArrayLike], labels: ArrayLike | None = None):
        self.columns: Columns = {}
        data = same_columns(data, "the data", self.columns)
        self.data = as_arrays(data, "the data", text=True)
        self.indices = [np.asarray(part) for part in indices]
        self.labels = _labels(data, labels)
        self._check()
        self.sizes = np.array([len(part) for part in self.indices])

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, client: int) -> Batch: ...

    @overload
    def __getitem__(self, client: slice) -> "Partition": ...

    def __getitem__(self, client: int | slice) -> Batch:
        if isinstance(client, slice):
            part = Partition(self.data, self.indices[client], self.labels)
            part.columns = self.columns
            return part
        return take(self.data, self.indices[client])

    def rows(self, clients: np.ndarray) -> np.ndarray:
        """The rows of `data` that some clients hold, one client after the other."""
        parts = [self.indices[client] for client in clients]
        return np.concatenate(parts) if parts else np.zeros(0, int)

    def __repr__(self) -> str:
        return self.summary()

    def summary(self, rows: int = 12) -> str:
        """A table of samples and label counts by client; of many clients the first and last."""
        title = (
            f"Partition: {len(self)} clients, {self.sizes.sum()} samples "
            f"({self.sizes.min()} to {self.sizes.max()} a client)"
        )
        classes = [] if self.labels is None else np.unique(self.labels).tolist()
        by_class = 0 < len(classes) <= 20
        header = ["client", "samples"]
        if classes:
            header += [f"y={c}" for c in classes] if by_class else ["labels"]
        shown = range(len(self))
        hidden = len(self) > rows
        top = (rows + 1) // 2
        table = [header]
        for client in [*shown[:top], *shown[len(self) - rows + top :]] if hidden else shown:
            line = [client, self.sizes[client]]
            if classes:
                mine = self.labels[self.indices[client]]  # type: ignore[index]
                line += [np.sum(mine == c) for c in classes] if by_class else [len(np.unique(mine))]
            table.append([str(cell) for cell in line])
        if hidden:
            table.insert(top + 1, ["..."] * len(header))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in table]
        return "\n".join([title, *lines])

    def _check(self) -> None:
        count = sample_count(self.data)
        if not self.indices:
            raise CompositeFLError("a partition needs at least one client")
        used = np.zeros(count, bool)
        for client, part in enumerate(self.indices):
            if part.ndim != 1 or not len(part) or not np.issubdtype(part.dtype, np.integer):
                raise CompositeFLError(
                    f"client {client} needs a non-empty list of whole numbers, "
                    f"got shape {part.shape} of {part.dtype}"
                )
            if part.min() < 0 or part.max() >= count:
                raise CompositeFLError(
                    f"client {client} has indices {part.min()} to {part.max()}, "
                    f"outside the {count} samples"
                )
            if used[part].any() or len(np.unique(part)) < len(part):
                raise CompositeFLError(f"client {client} has a sample that is assigned already")
            used[part] = True


def iid(data: Batch, clients: int, seed: int = 0, *, labels: ArrayLike | None = None) -> Partition:
    """Shuffle, then cut into parts whose sizes differ by at most one."""
    clients, count = _sizes(data, clients)
    order = np.random.default_rng(seed).permutation(count)
    return Partition(data, np.array_split(order, clients), labels)


def by_label(data: Batch, clients: int, *, labels: ArrayLike | None = None) -> Partition:
    """Sort by label, then cut into consecutive parts whose sizes differ by at most one."""
    clients, _ = _sizes(data, clients)
    order = np.argsort(_require_labels(data, labels), kind="stable")
    return Partition(data, np.array_split(order, clients), labels)


def dirichlet(
    data: Batch,
    clients: int,
    alpha: float,
    seed: int = 0,
    min_samples: int = 1,
    *,
    labels: ArrayLike | None = None,
) -> Partition:
    """Spread each class over the clients in proportions drawn from Dirichlet(alpha, ..., alpha).

    Small alpha: few classes a client; large alpha: nearly iid. A client left with fewer than
    `min_samples` then receives some from whoever has the most.
    """
    clients, count = _sizes(data, clients)
    min_samples = _whole("min_samples", min_samples)
    if clients * min_samples > count:
        raise CompositeFLError(
            f"{clients} clients with min_samples={min_samples} need {clients * min_samples} "
            f"samples, the data has {count}"
        )
    rng = np.random.default_rng(seed)
    found = _require_labels(data, labels)
    order = rng.permutation(count)
    order = order[np.argsort(found[order], kind="stable")]
    _, starts = np.unique(found[order], return_index=True)
    owner = np.empty(count, int)
    for rows in np.split(order, starts[1:]):
        cuts = np.cumsum(_proportions(rng, clients, alpha))[:-1] * len(rows)
        owner[rows] = np.searchsorted(np.rint(cuts), np.arange(len(rows)), side="right")
    return Partition(data, _top_up(_group(rng, owner, clients), min_samples), labels)


def mixed(
    data: Batch, clients: int, seed: int = 0, *, labels: ArrayLike | None = None
) -> Partition:
    """A random half spread evenly; of the other half, class l goes to client l mod `clients`.

    The MNIST experiment of Zhang, Hu and Johansson, with 10 clients. Classes are numbered from 0 in
    the order of their labels. Where the data leaves a client empty, it receives one sample.
    """
    clients, count = _sizes(data, clients)
    rng = np.random.default_rng(seed)
    _, classes = np.unique(_require_labels(data, labels), return_inverse=True)
    order = rng.permutation(count)
    even, rest = order[: count // 2], order[count // 2 :]
    owner = np.empty(count, int)
    owner[even] = np.arange(len(even)) % clients
    owner[rest] = classes[rest] % clients
    return Partition(data, _top_up(_group(rng, owner, clients), 1), labels)


def quantity(
    data: Batch, clients: int, alpha: float, seed: int = 0, *, labels: ArrayLike | None = None
) -> Partition:
    """Clients of unequal size and alike labels: sizes in Dirichlet(alpha) proportions."""
    clients, count = _sizes(data, clients)
    rng = np.random.default_rng(seed)
    # one sample each, the others in proportion; monotone cuts cannot leave a client empty
    cuts = np.rint(np.cumsum(_proportions(rng, clients, alpha))[:-1] * (count - clients))
    cuts = cuts.astype(int) + np.arange(1, clients)
    return Partition(data, np.split(rng.permutation(count), cuts), labels)


def synthetic(
    alpha: float = 1.0,
    beta: float = 1.0,
    clients: int = 30,
    samples_per_client: int | str = 100,
    features: int = 60,
    classes: int = 10,
    seed: int = 0,
    *,
    shared_means: bool = True,
    normalize: bool = False,
) -> Partition:
    """synthetic(alpha, beta) of FedProx, each client with its own distribution.

    The options are those of `compositefl.data.synthetic.generate`.
    """
    return from_lists(
        synthetic_data.generate(
            alpha,
            beta,
            _whole("clients", clients),
            samples_per_client,
            features,
            classes,
            seed,
            shared_means=shared_means,
            normalize=normalize,
        )
    )


def from_indices(
    data: Batch, indices: Iterable[ArrayLike], *, labels: ArrayLike | None = None
) -> Partition:
    """Your own assignment: row numbers per client. Samples may be left out, not shared."""
    return Partition(data, indices, labels)


def from_lists(batches: Sequence[Batch], *, labels: ArrayLike | None = None) -> Partition:
    """Data that comes grouped: one batch a client, all with the same structure and shapes."""
    if not len(batches):
        raise CompositeFLError("a partition needs at least one client")
    structures: list[jax.tree_util.PyTreeDef] = [jax.tree.structure(batch) for batch in batches]
    for client, structure in enumerate(structures):
        if structure != structures[0]:
            raise CompositeFLError(
                f"client {client} has structure {structure}, client 0 has {structures[0]}"
            )
    sizes = [sample_count(batch) for batch in batches]
    columns: Columns = {}
    named = [same_columns(batch, f"client {i}", columns) for i, batch in enumerate(batches)]
    arrays = [as_arrays(batch, f"client {i}", text=True) for i, batch in enumerate(named)]
    first = _sample_shapes(arrays[0])
    for client, batch in enumerate(arrays):
        for i, shape in enumerate(_sample_shapes(batch)):
            if shape != first[i]:
                name = named_leaves(batch)[i][0]
                raise CompositeFLError(
                    f"client {client} has samples {f'{name} ' if name else ''}of shape {shape}, "
                    f"client 0 has {first[i]}; all must have the same"
                )
    data = jax.tree.map(lambda *leaves: np.concatenate(leaves), *arrays)
    parts = Partition(data, np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]), labels)
    parts.columns = columns
    return parts


PARTITIONS: dict[str, tuple[Callable[..., Partition], str]] = {
    "iid": (iid, "shuffled and cut into equal parts"),
    "label": (by_label, "sorted by label and cut into equal parts"),
    "dirichlet": (dirichlet, "each class spread in Dirichlet(alpha) proportions"),
    "mixed": (mixed, "half spread evenly, half by label: class l to client l"),
    "quantity": (quantity, "Dirichlet(alpha) sizes, labels alike"),
    "synthetic": (synthetic, "synthetic(alpha, beta), each client with its own distribution"),
}


def _whole(name: str, given: object) -> int:
    value = given.item() if isinstance(given, np.generic) else given
    if not isinstance(value, (int, float)):
        raise CompositeFLError(f"{name}={given!r} must be a whole number >= 1")
    require_integer(1, **{name: value})
    return int(value)


def _sizes(data: Batch, clients: int) -> tuple[int, int]:
    number, count = _whole("clients", clients), sample_count(data)
    if number > count:
        raise CompositeFLError(f"{number} clients cannot share {count} samples")
    return number, count


def _sample_shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [np.shape(leaf)[1:] for leaf in jax.tree.leaves(batch)]


def _labels(data: Batch, labels: ArrayLike | None) -> np.ndarray | None:
    """The labels, or None where the data has none that make classes."""
    given = labels is not None
    if not given:
        if hasattr(data, "y"):
            labels = data.y
        elif isinstance(data, Mapping):
            labels = data.get("y")
        elif isinstance(data, (tuple, list)) and len(data) > 1:
            labels = data[-1]
    if labels is None:
        return None
    found = np.asarray(labels)
    fits = found.shape == (sample_count(data),)
    if fits and found.dtype.kind == "f":
        fits = bool(np.all(np.isfinite(found) & (found == np.rint(found))))
    if given and not fits:
        raise CompositeFLError(
            f"labels must be one whole number or name a sample: {sample_count(data)} of them, "
            f"got shape {found.shape} of {found.dtype}"
        )
    return found if fits else None


def _require_labels(data: Batch, labels: ArrayLike | None) -> np.ndarray:
    found = _labels(data, labels)
    if found is None:
        raise CompositeFLError(
            "this partition needs class labels: data.y, data['y'] or the last element of a tuple, "
            "one whole number a sample; or pass labels="
        )
    return found


def _proportions(rng: np.random.Generator, clients: int, alpha: object) -> np.ndarray:
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float, np.number)):
        raise wrong_value("alpha", alpha, "a finite number > 0", shown=repr(alpha))
    require_positive(alpha=float(alpha))
    # beyond 1e12 the shares are equal to rounding, and their sum would overflow at last
    return rng.dirichlet(np.full(clients, min(float(alpha), 1e12)))


def _group(rng: np.random.Generator, owner: np.ndarray, clients: int) -> list[np.ndarray]:
    """The rows of each owner, in random order."""
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(owner, minlength=clients))[:-1])


def _top_up(parts: list[np.ndarray], minimum: int) -> list[np.ndarray]:
    """Move single samples from the largest part to those below `minimum`.

    Needs at least minimum * len(parts) samples: then the largest part always has one to spare.
    """
    sizes = [len(part) for part in parts]
    largest = [(-size, client) for client, size in enumerate(sizes)]
    heapq.heapify(largest)
    received: dict[int, list[int]] = {}
    for client, size in enumerate(sizes):
        for _ in range(minimum - size):
            negative, donor = largest[0]
            sizes[donor] -= 1
            heapq.heapreplace(largest, (negative + 1, donor))
            received.setdefault(client, []).append(parts[donor][sizes[donor]])
    return [
        np.concatenate([part[: sizes[client]], np.array(received.get(client, []), int)])
        for client, part in enumerate(parts)
    ]
