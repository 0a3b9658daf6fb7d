"""A round costs what its participants do: read off the compiled program, not off a clock."""

import re

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.component import replace
from compositefl.simulation import rounds, simulation
from compositefl.simulation.simulation import Simulation
from tests.problems import squared_loss

SAMPLES, FEATURES, DRAWN = 3, 4, 9


def stacked_problem(clients):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(clients * SAMPLES, FEATURES)).astype(np.float32)
    y = x @ np.array([1, 0, -2, 0.5], np.float32)
    batch = cfl.Stacked((x, y), sizes=np.full(clients, SAMPLES))
    return cfl.Problem(squared_loss, np.zeros(FEATURES, np.float32), batch)


def simulate(clients, problem=None, kind=Simulation, **options):
    algorithm = replace(
        cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=0.1), regularizer=cfl.L1(0.01)
    )
    options = dict(seed=0, batch_size=2, count=DRAWN, dtype="float32") | options
    problem = problem or stacked_problem(clients)
    return kind(problem, [algorithm], [0], weights=np.ones(clients), **options)


def compiled(clients):
    sim = simulate(clients)
    (group,) = sim.groups
    run = rounds._on_one_device if sim.program.mesh.size == 1 else rounds._on_several
    numbers = sim.placed, None, sim.conditions, group.algorithms, group.trials, np.uint32(0)
    return run.lower(sim.program, *numbers, group.state, np.int32(0), np.int32(5)).compile()


def test_operations_and_bytes_do_not_depend_on_who_exists():
    few, many = compiled(200), compiled(20_000)
    flops = [dict(program.cost_analysis())["flops"] for program in (few, many)]
    assert flops[0] == flops[1] > 0
    # Scratch memory: a copy of the clients' states, or a table of all clients, would show here.
    scratch = [program.memory_analysis().temp_size_in_bytes for program in (few, many)]
    assert scratch[0] == scratch[1]
    states = 20_000 * FEATURES * 4
    assert many.memory_analysis().alias_size_in_bytes * len(jax.devices()) >= states  # in place
    copied = re.findall(r"= \w+\[([\d,]+)\]\S* copy\(", many.as_text())
    assert all(np.prod([int(n) for n in shape.split(",")]) < 20_000 for shape in copied)


@pytest.mark.skipif(len(jax.devices()) < 2, reason="one device")
def test_participants_are_spread_evenly_whoever_keeps_their_states():
    sim = simulate(50)
    assert sim.program.share == -(-DRAWN // len(jax.devices()))
    assert sim.program.block == sim.program.share  # and no room for more
    sim.advance(1)
    assert sim.work.visits.tolist() == [DRAWN]
    moved = np.any(jax.tree.leaves(sim.state().clients)[0][0] != 0, axis=1)
    assert moved.sum() == DRAWN


@pytest.mark.skipif(len(jax.devices()) < 2, reason="one device")
def test_devices_hold_one_copy_of_the_samples_among_them():
    sim = simulate(50)
    for leaf in jax.tree.leaves(sim.placed.samples):
        assert len({shard.data.unsafe_buffer_pointer() for shard in leaf.addressable_shards}) == 1


def test_samples_of_a_file_are_read_where_they_are(tmp_path):
    clients = 50
    rng = np.random.default_rng(1)
    np.save(tmp_path / "x.npy", rng.normal(size=(clients * SAMPLES, FEATURES)).astype(np.float32))
    np.save(tmp_path / "y.npy", rng.normal(size=clients * SAMPLES).astype(np.float32))
    mapped = tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    batch = cfl.Stacked(mapped, sizes=np.full(clients, SAMPLES))
    sim = simulate(clients, cfl.Problem(squared_loss, np.zeros(FEATURES, np.float32), batch))
    for leaf, file in zip(sim.placed.samples, mapped, strict=True):
        for shard in leaf.addressable_shards:
            assert shard.data.unsafe_buffer_pointer() == file.ctypes.data
    in_memory = cfl.Stacked(tuple(map(np.array, mapped)), sizes=np.full(clients, SAMPLES))
    other = simulate(clients, cfl.Problem(squared_loss, np.zeros(FEATURES, np.float32), in_memory))
    for one in (sim, other):
        one.advance(3)
    jax.tree.map(np.testing.assert_array_equal, sim.state(), other.state())


@pytest.mark.parametrize("options", [{}, {"count": 5, "block": 1}], ids=str)
def test_devices_without_a_common_memory_follow_the_same_trajectory(monkeypatch, options):
    ours = simulate(50, **options)
    monkeypatch.setattr(simulation, "share_memory", lambda mesh: False)
    theirs = simulate(50, **options)
    assert ours.shared and not theirs.shared
    for sim in (ours, theirs):
        sim.advance(6)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)  # noqa: E731
    jax.tree.map(close, ours.state(), theirs.state())
    assert ours.work.steps.tolist() == theirs.work.steps.tolist()
    measured = [sim.evaluate(1.0) for sim in (ours, theirs)]
    jax.tree.map(close, *measured)
