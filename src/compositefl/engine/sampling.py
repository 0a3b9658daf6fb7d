"""Every random draw of a run, each from a key folded from (seed, trial, round, client, step).

A draw depends on nothing else, so results do not change with the number of devices, the block
size, the evaluation schedule or the floating-point type, and a site on a network can repeat its
own draws.
"""

import math
from enum import IntEnum

import jax
import jax.numpy as jnp
from jax import lax

from compositefl.core.types import Array, Number

FEISTEL_ROUNDS = 4  # pairs of rounds; two make a strong pseudo-random permutation of large sets
FEW = 64  # clients that are permuted as a whole: halves of a few numbers do not mix well


class Stream(IntEnum):
    """What a draw is for; streams are independent of each other."""

    MINIBATCH = 0
    PARTICIPANTS = 1
    LOST = 2  # uploads that do not arrive
    STRAGGLERS = 3
    CLIENT = 4  # draws of an algorithm on a client
    SHARED = 5  # draws of an algorithm that all clients share


def trial_key(seed: Array, trial: Array) -> jax.Array:
    """The key that all draws of one trial start from."""
    return jax.random.fold_in(jax.random.key(seed), trial)


def round_key(key: jax.Array, stream: Stream, round_: Array) -> jax.Array:
    """The key of one stream in one round."""
    return jax.random.fold_in(jax.random.fold_in(key, int(stream)), round_)


@jax.jit  # traced once, not at every call (docs/decisions.md)
def threefry(
    k0: jax.Array, k1: jax.Array, x0: jax.Array, x1: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The Threefry-2x32 block cipher (Salmon et al. 2011) on uint32 words, 20 rounds.

    Written out without a loop so that XLA fuses it into one kernel (docs/decisions.md).
    """
    keys = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for block in range(5):
        for bits in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x0 = x0 + x1
            x1 = ((x1 << bits) | (x1 >> (32 - bits))) ^ x0
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return x0, x1


def minibatch(
    key: jax.Array, client: Number, step: Number, batch_size: int, size: Number
) -> jax.Array:
    """`batch_size` sample numbers of a client with `size` samples, uniform with replacement.

    `key` is the round's MINIBATCH key; the cipher's counter is (client, step * batch_size + j).
    Independent draws make the gradient unbiased with variance sigma^2 / batch_size, as the papers
    assume, whatever the client's size. Taking a 32-bit word modulo `size` favours some samples by
    less than size / 2^32.
    """
    k0, k1 = jax.random.key_data(key)
    counter = jnp.uint32(step) * jnp.uint32(batch_size) + jnp.arange(batch_size, dtype=jnp.uint32)
    words, _ = threefry(k0, k1, jnp.uint32(client), counter)
    return (words % jnp.uint32(size)).astype(jnp.int32)


def permuted(key: jax.Array, size: int, at: jax.Array) -> jax.Array:
    """Places `at` of a random permutation of 0, ..., size - 1, without making the others.

    A Feistel network on pairs (left, right) with left < a and right < b, a b >= size, whose round
    function is the cipher: each round adds to one half a random function of the other, modulo its
    range. A place that leads outside walks on along its cycle until it is inside.
    """
    k0, k1 = jax.random.key_data(key)
    a = math.isqrt(size - 1) + 1
    b = -(-size // a)

    def pair(number: Number, halves: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        left, right = halves
        shift, _ = threefry(k0, k1, right, jnp.uint32(2 * number))
        left = (left + shift % a) % a
        shift, _ = threefry(k0, k1, left, jnp.uint32(2 * number + 1))
        return left, (right + shift % b) % b

    def once(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, outside = state
        # A loop: written out, eight ciphers take longer to compile than all else in a round.
        left, right = lax.fori_loop(0, FEISTEL_ROUNDS, pair, (x // b, x % b))
        x = jnp.where(outside, left * b + right, x)
        return x, x >= size

    start = at.astype(jnp.uint32)
    everywhere = jnp.ones(start.shape, bool)
    inside, _ = lax.while_loop(lambda state: jnp.any(state[1]), once, (start, everywhere))
    return inside.astype(jnp.int32)


def participants(
    key: jax.Array, clients: int, count: int, replacement: bool
) -> tuple[jax.Array, jax.Array]:
    """(who, times): `count` draws of clients, uniform, and how often each was drawn.

    `key` is the round's PARTICIPANTS key. The cost grows with `count`, not with `clients`. A client
    that was drawn again with replacement stands at its first place with its number of times; its
    other places have times 0.
    """
    if not replacement:
        if clients <= FEW:
            who = jax.random.permutation(key, clients)[:count].astype(jnp.int32)
        else:
            who = permuted(key, clients, jnp.arange(count, dtype=jnp.uint32))
        return who, jnp.ones(count, jnp.int32)
    who = jnp.sort(jax.random.randint(key, (count,), 0, clients, jnp.int32))
    first = jnp.concatenate([jnp.ones(1, bool), who[1:] != who[:-1]])
    times = jnp.searchsorted(who, who, side="right") - jnp.searchsorted(who, who, side="left")
    return who, jnp.where(first, times, 0).astype(jnp.int32)


def lost(key: jax.Array, client: Number, probability: Number) -> jax.Array:
    """Whether a client's upload of this round is lost. `key` is the round's LOST key."""
    return jax.random.uniform(jax.random.fold_in(key, client), dtype=jnp.float32) < probability


def straggler_steps(
    key: jax.Array, client: Number, probability: Number, steps: Number
) -> jax.Array:
    """Local steps that a client finishes: all, or as a straggler 1, ..., steps - 1 (uniform).

    `key` is the round's STRAGGLERS key.
    """
    late, early = jax.random.split(jax.random.fold_in(key, client))
    some = jax.random.randint(early, (), 1, jnp.maximum(steps, 2), jnp.int32)
    slow = jax.random.uniform(late, dtype=jnp.float32) < probability
    return jnp.where(slow, some, steps)
