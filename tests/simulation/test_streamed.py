"""States in a file and clients on demand: the trajectory of memory, at the participants' cost."""

import gc

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.simulation.states import DiskStates, MemoryStates, kept_type
from compositefl.simulation.streamed import StreamedSimulation
from tests.problems import squared_loss
from tests.simulation.test_cost_by_participants import (
    DRAWN,
    FEATURES,
    SAMPLES,
    simulate,
    stacked_problem,
)

CLIENTS, ROUNDS = 50, 6
FLOAT = np.dtype(np.float32)
START = np.zeros(FEATURES, np.float32)


def on_demand(problem, asked=None, **options):
    def client(i):
        if asked is not None:
            asked.append(i)
        return problem.clients[i]

    return cfl.Problem(squared_loss, START, cfl.OnDemand(client, problem.sizes), **options)


def streamed(store, problem=None, **options):
    return simulate(CLIENTS, problem, kind=StreamedSimulation, store=store, **options)


def client_states(sim):
    """The clients' states as the simulation in memory has them."""
    if isinstance(getattr(sim, "store", None), DiskStates):
        return sim.store.read(0, np.arange(CLIENTS))
    return jax.tree.map(lambda a: a[0], sim.state().clients)


def assert_same(ours, theirs):
    jax.tree.map(np.testing.assert_array_equal, ours.state().server, theirs.state().server)
    jax.tree.map(np.testing.assert_array_equal, client_states(ours), client_states(theirs))
    assert ours.work.visits.tolist() == theirs.work.visits.tolist()


def test_states_in_a_file_follow_the_trajectory_bit_for_bit():
    asked = []
    in_memory = simulate(CLIENTS)
    on_disk = streamed(DiskStates(CLIENTS, FLOAT))
    called = streamed(MemoryStates(CLIENTS, FLOAT), on_demand(stacked_problem(CLIENTS), asked))
    asked.clear()
    for sim in (in_memory, on_disk, called):
        sim.advance(ROUNDS)
    assert_same(on_disk, in_memory)
    assert_same(called, in_memory)
    # A round asks for its participants, and reads and writes their rows alone.
    assert len(asked) <= ROUNDS * (DRAWN + len(jax.devices()) - 1)
    assert on_disk.store.end == len(np.unique(asked))


def test_an_evaluation_passes_over_the_clients_of_the_history():
    asked, plain = [], stacked_problem(CLIENTS)
    problem = on_demand(plain, asked, eval_clients=33)
    sim = streamed(MemoryStates(CLIENTS, FLOAT), problem)
    sim.pass_over.share, sim.pass_over.length = 8, 8 * SAMPLES  # several passes, the last not full
    other = simulate(CLIENTS, cfl.Problem(squared_loss, START, plain.clients, eval_clients=33))
    asked.clear()
    ours, theirs = sim.evaluate(1.0), other.evaluate(1.0)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-7)
    assert set(asked) == set(problem.evaluated_clients.tolist())
    assert sim.curvature() == pytest.approx(other.curvature(), rel=1e-5)


def test_a_crash_leaves_the_last_checkpoint_whole(tmp_path):
    """Rows written after it are elsewhere: whoever resumes meets the states of the checkpoint."""
    file = tmp_path / "run.states"
    whole = simulate(CLIENTS)
    whole.advance(ROUNDS)

    def store(fresh):
        return DiskStates(CLIENTS, FLOAT, file, fresh=fresh)

    first = streamed(store(fresh=True))
    seals = []
    for stop in (2, 4):
        first.advance(stop)
        saved, work = first.state(), first.work
        seals.append(first.seal())
        first.commit()
    first.advance(ROUNDS)  # and is lost: no checkpoint of it
    with pytest.raises(cfl.CompositeFLError, match="is in use"):
        store(fresh=False)
    first.store.file.close()

    second = streamed(store(fresh=False))
    second.restore(saved, work, 4)
    second.resume(seals[1])
    second.advance(ROUNDS)
    assert_same(second, whole)
    # A row in the last checkpoint is written at most once more: room is bounded.
    assert second.store.end <= CLIENTS + (ROUNDS - 2) * DRAWN
    with pytest.raises(cfl.CompositeFLError, match="has gone on since"):
        second.resume(seals[0])
    with pytest.raises(cfl.CompositeFLError, match="does not belong"):
        second.resume(seals[1] | {"id": "other"})


def test_minimize_keeps_states_on_disk_and_resumes(tmp_path):
    problem = stacked_problem(CLIENTS)
    arguments = problem, cfl.L1(0.01), cfl.FedNMap(gamma=1.0, local_steps=3)
    options = dict(participation=DRAWN, batch_size=2, eval_every=3, progress=False)
    expected = cfl.minimize(*arguments, rounds=6, **options)  # local_lr sets itself
    options |= dict(states="disk", checkpoint=tmp_path / "run")
    cfl.minimize(*arguments, rounds=3, **options)
    result = cfl.minimize(*arguments, rounds=6, resume=True, **options)
    np.testing.assert_array_equal(result.params, expected.params)
    assert len(result.clients) == CLIENTS
    for i in (0, CLIENTS - 1):
        jax.tree.map(
            np.testing.assert_array_equal,
            result.clients[i],
            jax.tree.map(lambda a, i=i: a[i], expected.clients),
        )
    assert {file.name for file in tmp_path.iterdir()} == {"run", "run.states"}


def test_states_in_bfloat16_take_half_the_room_and_stay_close():
    exact = simulate(CLIENTS)
    kept = kept_type("bfloat16", np.float32)
    stores = DiskStates(CLIENTS, kept), MemoryStates(CLIENTS, kept)
    short = [streamed(store) for store in stores]
    for sim in (exact, *short):
        sim.advance(ROUNDS)
    assert_same(*short)
    assert stores[0].row.bytes == 2 * FEATURES
    x, y = (jax.tree.leaves(sim.models())[0] for sim in (short[0], exact))
    assert 0 < np.abs(x - y).max() < 0.01 * np.abs(y).max()


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (lambda x, y: (x[:2], y[:2]), "client 1 has 2 samples, and sizes says 3"),
        (lambda x, y: (x, y.astype(np.float64)), "client 1 has data of type float64"),
        (lambda x, y: (x[:, 1:], y), "client 1 has samples of shape"),
        (lambda x, y: (x * np.nan, y), "client 1 has NaN"),
    ],
)
def test_clients_on_demand_are_checked_when_they_come(batch, said):
    plain = stacked_problem(CLIENTS).clients
    made = cfl.OnDemand(lambda i: plain[i] if i != 1 else batch(*plain[i]), plain.sizes)
    sim = streamed(MemoryStates(CLIENTS, FLOAT), cfl.Problem(squared_loss, START, made))
    with pytest.raises(cfl.CompositeFLError, match=said):
        sim.advance(ROUNDS)  # it takes part in one of them


@pytest.mark.parametrize("name", [None, "run.states"])
def test_a_file_of_states_is_closed_with_its_last_user(tmp_path, name):
    store = DiskStates(CLIENTS, FLOAT, name and tmp_path / name)
    store.itself, file = store, store.file  # a cycle, as those of a simulation
    del store
    gc.collect()
    assert file.closed
