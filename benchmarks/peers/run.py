"""compositefl beside other libraries: the same arrays, start and steps. Usage: run.py --help

Every library runs in a virtual environment of its own, made in a cache folder when first needed.
Results go to a JSON file; measurements that are asked for again replace the old ones there, so that
a long comparison can be made in parts. The table and the picture are made of the whole file.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from environments import PEERS, CannotInstall, python_of  # noqa: E402
from table import picture, tables  # noqa: E402
from workloads import WORKLOADS, loss, write_task  # noqa: E402

SECONDS = 420  # at most for one measurement


def measure(name, workload, method, args, full):
    """What the adapter says, with the loss of its model; or {"error": why not}."""
    try:
        python = python_of(name, args.cache)
    except CannotInstall as error:
        return {"error": f"cannot be installed: {error}"}
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder) / "task"
        rounds = args.full_rounds if full else args.rounds
        write_task(task, workload, method, args.device, rounds, full)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", ""))),
            "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "compiled"),  # the first round is cold
            "PFL_PYTORCH_DEVICE": args.device,
        }
        if args.threads:
            environment["OMP_NUM_THREADS"] = str(args.threads)
        if args.device == "cpu":
            environment["JAX_PLATFORMS"] = "cpu"
        command = [python, str(HERE / "adapters" / f"{PEERS[name].adapter}.py"), str(task)]
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {SECONDS} s"}
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"first_seconds')]
        if not lines:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no message"]
            return {"error": said[-1][:200]}
        with np.load(task / "model.npz") as model:
            return json.loads(lines[-1]) | {"loss": loss(workload, dict(model))}


def machine():
    """The processor and how many cores of it this process may use."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    add = parser.add_argument
    add("--peers", nargs="*", default=list(PEERS), choices=list(PEERS), metavar="PEER")
    add("--workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    add("--methods", nargs="*", default=["fedavg", "scaffold"], choices=["fedavg", "scaffold"])
    add("--device", default="cpu", help="cpu or cuda")
    add("--threads", type=int, help="of PyTorch; its own choice by default")
    add("--rounds", type=int, default=11, help="with minibatches; the first is timed apart")
    add("--full-rounds", type=int, default=3, help="on all samples, to compare final losses")
    add("--cache", type=Path, default=cache / "compositefl" / "peers", help="of environments")
    add("--out", type=Path, default=Path("peers"), help="folder of results")
    add("--missing", action="store_true", help="measure only what is not in the folder yet")
    add("--only-report", action="store_true", help="tables and picture of what is there")
    args = parser.parse_args()
    if min(args.rounds, args.full_rounds) < 2:
        parser.error("--rounds and --full-rounds must be at least 2: the first is timed apart")
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "results.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    for workload in [] if args.only_report else args.workloads:
        for method in args.methods:
            for name in args.peers:
                there = args.missing and f"{workload}/{method}/{name}" in found
                if there or method not in PEERS[name].methods:
                    continue
                got = measure(name, workload, method, args, full=False)
                if "error" not in got:
                    full = measure(name, workload, method, args, full=True)
                    got["full_loss"] = full.get("loss")
                    got |= {"full_error": full["error"]} if "error" in full else {}
                got["date"] = datetime.date.today().isoformat()
                got["machine"], got["device"] = machine(), args.device
                print(
                    f"{workload}, {method}, {name}: {json.dumps(got)}", file=sys.stderr, flush=True
                )
                found[f"{workload}/{method}/{name}"] = got
                file.write_text(json.dumps(found, indent=1) + "\n")
    (args.out / "tables.md").write_text(tables(found))
    picture(found, args.out / "peers.png")
    print(tables(found))


if __name__ == "__main__":
    main()
