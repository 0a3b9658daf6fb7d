"""Messages: named arrays and plain values as bytes, never pickle, checked on arrival.

The arrays are in the safetensors format, the plain values in its text header as JSON. Both sides
know the structure of every message from the algorithm, so names, shapes and types are compared
before anything is computed.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import PlainValues, PyTree

SLACK = 2**16  # bytes that a message may have besides its arrays
DEEPEST = 5  # levels of plain values
TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "I64": np.int64,
    "I32": np.int32,
    "U32": np.uint32,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


T = TypeVar("T")


class Message(NamedTuple):
    """Plain values and named arrays."""

    values: PlainValues
    arrays: dict[str, np.ndarray]


def encode(values: PlainValues, arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """A message as bytes."""
    contiguous = {name: np.ascontiguousarray(a) for name, a in (arrays or {}).items()}
    shaped = {name: a.reshape(np.shape((arrays or {})[name])) for name, a in contiguous.items()}
    return save(shaped, {"values": json.dumps(dict(values))})


def decode(data: object, limit: int) -> Message:
    """The message in `data`, refused if it is longer than `limit` bytes or not one of ours."""
    if not isinstance(data, bytes):
        raise CompositeFLError(f"a message must be bytes, not {type(data).__name__}")
    if len(data) > limit:
        raise CompositeFLError(f"a message of {len(data):,} bytes is above the limit of {limit:,}")
    try:
        header = int.from_bytes(data[:8], "little")
        values = json.loads(json.loads(data[8 : 8 + header])["__metadata__"]["values"])
        arrays = {
            name: np.frombuffer(item["data"], TYPES[item["dtype"]]).reshape(item["shape"])
            for name, item in deserialize(data)
        }
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CompositeFLError(f"not a message: {type(error).__name__}") from error
    if not isinstance(values, dict):
        raise CompositeFLError("not a message: its values are not named")
    if not _shallow(values, DEEPEST):
        raise CompositeFLError("not a message: its values are nested too deeply")
    return Message(values, arrays)


def _shallow(found: object, levels: int) -> bool:
    if not isinstance(found, (dict, list)):
        return True
    inner = found.values() if isinstance(found, dict) else found
    return levels > 0 and all(_shallow(item, levels - 1) for item in inner)


def value(message: Message, name: str, kind: type[T]) -> T:
    """A plain value of the message; refused if it is missing or of another type."""
    found = message.values.get(name)
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise CompositeFLError(f"the message has {name}={found!r}; it must be a {kind.__name__}")
    return found


def pack(prefix: str, tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a pytree under stable names that start with `prefix`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(prefix, path): np.asarray(leaf) for path, leaf in leaves}


def unpack(
    prefix: str,
    arrays: Mapping[str, np.ndarray],
    like: PyTree,
    *,
    finite: bool = False,
    largest: float = math.inf,
) -> PyTree:
    """The pytree that `pack` named; anything else than the structure of `like` is refused.

    With `finite`, NaN and infinity are refused too, and numbers beyond `largest`.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {_name(prefix, path): leaf for path, leaf in leaves}
    given = {name for name in arrays if name.startswith(prefix + "/")}
    if given != expected.keys():
        missing, extra = sorted(expected.keys() - given), sorted(given - expected.keys())
        raise CompositeFLError(f"{prefix} lacks {missing} and has unknown {extra}")
    for name, leaf in expected.items():
        array = arrays[name]
        if array.shape != leaf.shape:
            raise CompositeFLError(f"{name} has shape {array.shape}, expected {leaf.shape}")
        if array.dtype != leaf.dtype:
            raise CompositeFLError(f"{name} has type {array.dtype}, expected {leaf.dtype}")
        if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NotFinite(f"{name} contains NaN or infinity")
        ranged = finite and array.dtype.kind in "fi" and array.size
        # Not by np.abs, which leaves the least of the whole numbers negative.
        if ranged and not -largest <= array.min() <= array.max() <= largest:
            raise NotFinite(f"{name} contains numbers beyond {largest:g}")
    return jax.tree.unflatten(structure, [arrays[name] for name in expected])


class NotFinite(CompositeFLError):
    """Numbers that are NaN, infinite or too large."""


def call_digest(
    federation: str,
    run: str,
    method: str,
    t: int,
    arrays: Mapping[str, np.ndarray],
    numbers: object = None,
) -> str:
    """Identifies a call by all that the answer depends on.

    numbers: of the method, where they set themselves.
    """
    more = [] if numbers is None else [numbers]
    return _digest([federation, run, method, t, *more], arrays)


def answer_digest(call: str, values: PlainValues, arrays: Mapping[str, np.ndarray]) -> str:
    """Binds an answer to the call with this digest, and so to its run, round and message."""
    return _digest([call, {k: v for k, v in values.items() if k != "digest"}], arrays)


def _digest(values: list[object], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _name(prefix: str, path: jax.tree_util.KeyPath) -> str:
    return f"{prefix}/{jax.tree_util.keystr(path, simple=True, separator='/')}"
