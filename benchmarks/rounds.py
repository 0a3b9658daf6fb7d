"""Speed of a round, as ratios measured in one run. Usage: python benchmarks/rounds.py [--case CASE]

Every figure is the median over interleaved repetitions, so that a busy machine disturbs both sides
of a ratio alike. Each measurement of a number of devices or of a start is a process of its own.
Next to a round stands its floor (floor.py), measured in the same process. Processor time, the least
of the repetitions, is for a machine that others use.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from floor import floor_ms, memory_rate, product_rate

REPEATS = 9
CASES = {
    "network": "784-32-10 sigmoid network, 100 clients, Q = 10, minibatch 32",
    "cnn": "CNN with 112,394 parameters, 10 clients, Q = 10, minibatch 10",
    "mobilenet": "MobileNetV3-Small, 4 clients, Q = 2, minibatch 32, images of 32 x 32",
    "logistic": "logistic regression, 30 clients, d = 20, Q = 10, minibatch 20",
    "logistic-20": "logistic regression, 30 clients, d = 20, Q = 20, minibatch 20",
}
BATCH = {"network": 32, "cnn": 10, "mobilenet": 32, "logistic": 20, "logistic-20": 20}
ROUNDS = {"network": 10, "cnn": 3, "mobilenet": 1, "logistic": 1000, "logistic-20": 1000}
STATES = {"local SGD": 1, "FedNMap": 2, "FedCanon": 2, "ZA1": 2}  # vectors of a client: model, own


def build(case):
    """The problem and (name, algorithm, regulariser) of each method to time."""
    import compositefl as cfl

    rng = np.random.default_rng(0)
    if case == "network":
        clients = [
            cfl.data.Samples(
                rng.random((600, 784), dtype=np.float32), rng.integers(0, 10, 600).astype(np.int32)
            )
            for _ in range(100)
        ]
        problem = cfl.models.mlp((784, 32, 10), activation="sigmoid").problem(clients)
    elif case == "cnn":
        clients = [
            cfl.data.Samples(
                rng.random((100, 28, 28, 1), dtype=np.float32),
                rng.integers(0, 10, 100).astype(np.int32),
            )
            for _ in range(10)
        ]
        problem = cfl.models.cnn_zhang().problem(clients)
    elif case == "mobilenet":
        clients = [
            cfl.data.Samples(
                rng.random((64, 32, 32, 3), dtype=np.float32),
                rng.integers(0, 10, 64).astype(np.int32),
            )
            for _ in range(4)
        ]
        problem = cfl.models.mobilenet_v3_small().problem(clients, coupled_batch=32)
    else:
        clients = [
            cfl.data.Samples(
                rng.normal(size=(2000, 20)).astype(np.float32),
                rng.integers(0, 2, 2000).astype(np.int32),
            )
            for _ in range(30)
        ]
        problem = cfl.models.logistic_regression(20).problem(clients)
    count = {"logistic-20": 20, "mobilenet": 2}.get(case, 10)
    steps = dict(local_steps=count, local_lr=0.05)
    phi = cfl.ElasticNet(1e-3, 1e-2)
    methods = {
        "local SGD": (cfl.FedAvg(**steps), cfl.Zero()),
        "FedNMap": (cfl.FedNMap(gamma=4.0, **steps), phi),
        "FedCanon": (cfl.FedCanon(**steps), phi),
        "ZA1": (cfl.ZA1(**steps), phi),
    }
    return problem, methods


def time_rounds(case, rounds):
    """Milliseconds a round of each method (median; least of processor), and the least possible."""
    from compositefl.core.component import replace
    from compositefl.simulation.simulation import Simulation

    problem, methods = build(case)
    simulations = {}
    for name, (algorithm, phi) in methods.items():
        simulations[name] = Simulation(
            problem,
            [replace(algorithm, regularizer=phi)],
            [0],
            seed=0,
            batch_size=BATCH[case],
            count=len(problem.sizes),
            weights=np.ones(len(problem.sizes)),
            dtype="float32",
        )
        simulations[name].advance(2)
        simulations[name].block_until_ready()
    times = {name: [] for name in simulations}
    used = {name: [] for name in simulations}
    for _ in range(REPEATS):
        for name, simulation in simulations.items():
            began, before = time.perf_counter(), time.process_time()
            simulation.advance(simulation.round + rounds)
            simulation.block_until_ready()
            times[name].append((time.perf_counter() - began) / rounds * 1e3)
            used[name].append((time.process_time() - before) / rounds * 1e3)
    steps = methods["local SGD"][0].local_steps
    # a run that has left the finite numbers stops working: it has no time
    went = [name for name, simulation in simulations.items() if np.all(simulation.diverged < 0)]
    found = {
        "ms": {name: float(np.median(times[name])) for name in went},
        "processor": {name: min(used[name]) for name in went},
        "diverged": [name for name in simulations if name not in went],
    }
    for key, clock in (("floor", time.perf_counter), ("processor floor", time.process_time)):
        rates = product_rate(clock), memory_rate(clock)
        found[key] = {
            name: floor_ms(problem, BATCH[case], steps, STATES[name], rates) for name in simulations
        }
        found[f"{key} rates"] = rates
    return found


def first_result(case):
    """Seconds from the call of minimize to its result, three rounds; and its peak of memory.

    The peak is what minimize adds to the process, evaluation included, over the bytes of the data
    and of the clients' states. The first start adds what the compiler takes.
    """
    import jax

    import compositefl as cfl

    problem, methods = build(case)
    algorithm, phi = methods["FedNMap"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    result = cfl.minimize(problem, phi, algorithm, rounds=3, batch_size=20, progress=False)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    needed = sum(a.nbytes for a in jax.tree.leaves((list(problem.clients), result.clients)))
    return {"seconds": seconds, "memory": (peak - before) * 1024 / needed}


def time_exchange(times):
    """Microseconds of a sum of 21 numbers over the cores and nothing else, as ends every round."""
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec

    from compositefl.simulation import device_sum
    from compositefl.simulation.placement import AXIS, device_mesh

    def sums(x, rank):
        return lax.fori_loop(0, times, lambda i, x: device_sum.total(x, rank) / 2 + 1, x)

    mesh, here = device_mesh(), PartitionSpec()
    specs = dict(in_specs=(here, PartitionSpec(AXIS)), out_specs=here)
    run = jax.jit(jax.shard_map(sums, mesh=mesh, check_vma=False, **specs))
    x = np.zeros(21, np.float32)
    spent = []
    with device_sum.shared_buffer(mesh) as ranks:
        run(x, ranks).block_until_ready()
        for _ in range(REPEATS):
            began = time.perf_counter()
            run(x, ranks).block_until_ready()
            spent.append((time.perf_counter() - began) / times * 1e6)
    return float(np.median(spent))


def child(case, rounds=0, cores=None, **environment):
    """Run one measurement in a process of its own, on these cores or on all."""
    command = [sys.executable, __file__, "--child", "--case", case, "--rounds", str(rounds)]
    if cores:
        command += ["--cores", ",".join(map(str, cores))]
    out = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if out.returncode:
        sys.exit(out.stderr)
    return json.loads(out.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--case", default="", help=f"one of {', '.join(CASES)}; all by default")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--cores", default="")
    args = parser.parse_args()
    if args.child:
        if args.cores:  # before JAX starts: it makes as many threads as there are cores
            os.sched_setaffinity(0, {int(core) for core in args.cores.split(",")})
        if args.case == "exchange":
            found = time_exchange(args.rounds)
        elif args.rounds:
            found = time_rounds(args.case, args.rounds)
        else:
            found = first_result(args.case)
        print(json.dumps(found))
        return

    cores = os.sched_getaffinity(0)
    native = {"COMPOSITEFL_EXCHANGE": "native"}
    ours, theirs = child("exchange", 3000, **native), child("exchange", 3000)
    print(f"a sum over {len(cores)} cores: XLA's {theirs:.1f} microseconds, native {ours:.1f}")
    for case, title in CASES.items():
        if args.case not in ("", case):
            continue
        rounds = ROUNDS[case]
        measured = child(case, rounds)
        ms = measured["ms"]
        ms_native = child(case, rounds, **native)["ms"]
        one = child(case, rounds, cores=[min(cores)])["ms"]
        with tempfile.TemporaryDirectory() as cache:
            first = child(case, JAX_COMPILATION_CACHE_DIR=cache)
            second = child(case, JAX_COMPILATION_CACHE_DIR=cache)
        cold, warm = first["seconds"], second["seconds"]
        print(f"{title}; {len(cores)} cores")
        for label, key, least in (
            ("", "ms", "floor"),
            ("processor ", "processor", "processor floor"),
        ):
            here, floor = measured[key], measured[least]
            shown = [f"{k} {v:.3g}" for k, v in here.items()]
            shown += [f"{k} diverged" for k in measured["diverged"]]
            print(f"  {label}ms a round: " + ", ".join(shown))
            products, states = measured[f"{least} rates"]
            print(
                f"  {label}floor: {sum(floor['local SGD']):.3g} ms for local SGD, "
                f"{sum(floor['FedNMap']):.3g} for FedNMap (products at {products / 1e9:.0f} "
                f"GFLOP/s, states at {states / 1e9:.1f} GB/s)"
            )
            for name in ("local SGD", "FedNMap"):
                print(f"  {label + name + ' / its floor':32}{here[name] / sum(floor[name]):.2f}")
        used = measured["processor"]
        for label, ratio, limit in (
            ("processor FedNMap / local SGD", used["FedNMap"] / used["local SGD"], ""),
            ("FedNMap / local SGD", ms["FedNMap"] / ms["local SGD"], "at most 1.3"),
            ("FedNMap / FedCanon", ms["FedNMap"] / ms["FedCanon"], "at most 1.2"),
            (f"one core / {len(cores)} cores", one["FedNMap"] / ms["FedNMap"], "at least 1.6"),
            ("  the same, exchange='native'", one["FedNMap"] / ms_native["FedNMap"], ""),
            ("second / first start", warm / cold, f"{warm:.1f} s / {cold:.1f} s"),
        ):
            print(f"  {label:30}{ratio:.2f}" + f"  ({limit})" * bool(limit))
        if case == "network":  # for the small case the compiler alone is larger than the data
            compiling = f"at most 2; {first['memory']:.2f} in a start that compiles"
            print(f"  {'added memory / (data + state)':30}{second['memory']:.2f}  ({compiling})")


if __name__ == "__main__":
    main()
