"""What several processes cost, and a model of many. Usage: python benchmarks/processes.py

Rounds of the same problem with one process and with two (one core each, over loopback), and the sum
over the processes alone, for arrays of several sizes. From the sum follow the two numbers of its
model: gloo adds up in a ring, 2 (P - 1) messages of 1/P of the array one after the other, so

    seconds(P, bytes) = 2 (P - 1) latency + 2 (P - 1) / P * bytes / bandwidth

and with two processes 2 latency + bytes / bandwidth.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

import numpy as np

SIZES = (10, 1_000, 100_000, 1_500_000)  # float32 numbers
MODELS = {"784-32-10": (784, 32, 10), "784-256-64-10": (784, 256, 64, 10)}
CLIENTS, SAMPLES, STEPS = 8, 40, 10


def least(function, repeat, turns):
    """Seconds of a call that does something `repeat` times, over that: the least of the turns.

    Short turns, and many: on a machine that others use, some find it quiet.
    """
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        function()
        times.append((time.perf_counter() - began) / repeat)
    return min(times)


def exchange(mesh, size, repeat):
    """Seconds of one sum of `size` numbers over all devices, in a compiled loop."""
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec as P

    from compositefl.simulation.placement import AXIS, replicated

    def many(x):
        half = lambda i, x: lax.psum(x, AXIS) / mesh.size  # noqa: E731
        return lax.fori_loop(0, repeat, half, x)

    program = jax.jit(jax.shard_map(many, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False))
    x = replicated(mesh, np.ones(size, np.float32))
    run = lambda: jax.block_until_ready(program(x))  # noqa: E731
    run()
    return least(run, repeat, 60)


def rounds_of(widths, count):
    """Seconds of a round of FedAvg in which all clients take part."""
    import compositefl as cfl
    from compositefl.simulation.simulation import Simulation

    rng = np.random.default_rng(0)
    x = rng.random((CLIENTS * SAMPLES, widths[0]), dtype=np.float32)
    y = rng.integers(0, 10, len(x)).astype(np.int32)
    clients = cfl.Stacked((x, y), sizes=np.full(CLIENTS, SAMPLES))
    problem = cfl.models.mlp(widths).problem(clients)
    method = cfl.FedAvg(local_steps=STEPS, local_lr=0.05)
    options = dict(seed=0, batch_size=32, count=CLIENTS, dtype="float32")
    sim = Simulation(problem, [method], [0], weights=np.ones(CLIENTS), **options)

    def some():
        sim.advance(sim.round + count)
        sim.block_until_ready()

    some()
    return least(some, count, 12), problem.parameter_count


def child(number, processes, port):
    import compositefl as cfl

    if processes > 1:
        cfl.configure(coordinator=f"127.0.0.1:{port}", processes=processes, process=number)
    from compositefl.simulation.placement import device_mesh

    found = {"exchange": [], "rounds": {}}
    for size in SIZES:
        repeat = 10 if size < 10_000 else 2
        found["exchange"].append(exchange(device_mesh(), size, repeat))
    for name, widths in MODELS.items():
        found["rounds"][name] = rounds_of(widths, 2)
    if number == 0:
        print(json.dumps(found), flush=True)


def measured(processes, devices):
    """What the first of so many processes, each with so many devices, finds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--child", str(number), str(processes), str(port)],
            env=os.environ | {"COMPOSITEFL_DEVICES": str(devices)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    said = [process.communicate(timeout=400)[0] for process in started]
    return json.loads(said[0].strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", nargs=3, type=int, metavar=("NUMBER", "PROCESSES", "PORT"))
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    one, cores, two = measured(1, 1), measured(1, 2), measured(2, 1)
    print("sum over two, microseconds")
    print(f"{'numbers':>9} {'processes':>10} {'cores of one':>13}")
    for size, a, b in zip(SIZES, two["exchange"], cores["exchange"], strict=True):
        print(f"{size:9,} {a * 1e6:10.0f} {b * 1e6:13.0f}")
    small = min(two["exchange"][:2])  # both are all latency: the one that found a quiet moment
    latency, bandwidth = small / 2, 4 * SIZES[-1] / (two["exchange"][-1] - small)
    print(f"model: latency {latency * 1e6:.0f} us, bandwidth {bandwidth / 1e9:.2f} GB/s")
    print("ms of a round: one process, two cores of one, two processes, and the model of 64")
    for name, (alone, parameters) in one["rounds"].items():
        side, pair = cores["rounds"][name][0], two["rounds"][name][0]
        many = 64
        ring = 2 * (many - 1) * (latency + 4 * parameters / many / bandwidth)
        # As much work on each process as one of the two has: 4 clients each, 256 in all.
        sum_of_two = 2 * latency + 4 * parameters / bandwidth
        model = pair - sum_of_two + ring
        figures = " ".join(f"{t * 1e3:9.2f}" for t in (alone, side, pair, model))
        print(f"{name:16} {figures}   the sum of 64: {ring * 1e3:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
