"""Compiled programs take memory maps, of which a process has a limited number."""

import numpy as np

import compositefl as cfl
from compositefl.simulation import memory


def test_compiled_programs_are_dropped_in_time(lasso_problem, monkeypatch):
    """Too many of them would end the process with a segmentation fault."""

    def maps():
        with open("/proc/self/maps") as file:
            return len(file.readlines())

    options = dict(rounds=3, progress=False)
    steps = dict(local_steps=2, local_lr=0.01)
    first = cfl.minimize(lasso_problem, cfl.L1(0.1), cfl.FedNMap(gamma=0.5, **steps), **options)
    before = maps()
    memory.make_room()
    assert maps() > before - 100  # there was room
    monkeypatch.setattr(memory, "FULL", 0.0)
    memory.make_room()
    assert maps() < before - 100
    again = cfl.minimize(lasso_problem, cfl.L1(0.1), cfl.FedNMap(gamma=0.5, **steps), **options)
    np.testing.assert_array_equal(first.params, again.params)
