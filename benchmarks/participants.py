"""100 of n clients a round, from n = 100 to a million. Usage: python benchmarks/participants.py

Logistic regression, 20 features, 10 samples a client, minibatches of 5, 10 local steps. Each n is
a process of its own; all processes stay and take turns, so that a busy machine disturbs all alike.
Figures: milliseconds a round (the least of the turns, wall clock and processor), seconds from the
arrays to the first round, and what was added to the process over the bytes of data and states.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

FEATURES, SAMPLES, DRAWN, TURNS = 20, 10, 100, 9


def simulation(method, clients):
    import compositefl as cfl
    from compositefl.simulation.simulation import Simulation

    rng = np.random.default_rng(0)
    x = rng.random((clients * SAMPLES, FEATURES), dtype=np.float32)
    y = (x[:, 0] < 0.5).astype(np.int32)
    needed = x.nbytes + y.nbytes + (clients * FEATURES * 4 if method == "FedNMap" else 0)
    before, began = peak(), time.perf_counter()
    data = cfl.Stacked((x, y), sizes=np.full(clients, SAMPLES))
    problem = cfl.models.logistic_regression(FEATURES).problem(data)
    steps = dict(local_steps=10, local_lr=0.1)
    algorithm = cfl.FedAvg(**steps) if method == "FedAvg" else cfl.FedNMap(gamma=1.0, **steps)
    options = dict(seed=0, batch_size=5, count=min(DRAWN, clients), dtype="float32")
    sim = Simulation(problem, [algorithm], [0], weights=np.ones(clients), **options)
    sim.advance(1)
    start = time.perf_counter() - began
    return sim, {"start": start, "memory": (peak() - before) * 1024 / needed}


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def child(method, clients, rounds):
    sim, found = simulation(method, clients)
    print(json.dumps(found), flush=True)
    for _ in sys.stdin:  # a line for each turn
        began, used = time.perf_counter(), time.process_time()
        sim.advance(sim.round + rounds)
        sim.block_until_ready()
        wall, used = time.perf_counter() - began, time.process_time() - used
        print(json.dumps([wall / rounds * 1e3, used / rounds * 1e3]), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", default="100,1000,10000,100000,1000000")
    parser.add_argument("--methods", default="FedAvg,FedNMap")
    parser.add_argument("--rounds", type=int, default=200, help="of a turn")
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "CLIENTS"))
    args = parser.parse_args()
    if args.child:
        child(args.child[0], int(args.child[1]), args.rounds)
        return
    for method in args.methods.split(","):
        processes, about = {}, {}
        for n in map(int, args.clients.split(",")):
            command = [sys.executable, __file__, "--rounds", str(args.rounds)]
            processes[n] = subprocess.Popen(
                [*command, "--child", method, str(n)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            about[n] = json.loads(processes[n].stdout.readline())
        times = {n: [] for n in processes}
        for _ in range(TURNS):
            for n, process in processes.items():
                process.stdin.write("\n")
                process.stdin.flush()
                times[n].append(json.loads(process.stdout.readline()))
        least = {n: np.min(t, axis=0) for n, t in times.items()}
        first = least[min(least)]
        print(f"{method}: 100 of n clients a round")
        print(f"{'n':>9} {'ms':>7} {'ratio':>6} {'CPU ms':>7} {'ratio':>6} {'start s':>8} memory")
        for n, (wall, used) in least.items():
            ratios = f"{wall:7.3f} {wall / first[0]:6.2f} {used:7.3f} {used / first[1]:6.2f}"
            print(f"{n:9} {ratios} {about[n]['start']:8.1f} {about[n]['memory']:6.2f}", flush=True)
        for process in processes.values():
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    main()
