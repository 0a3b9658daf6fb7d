"""The tutorial of docs/deployment.md, typed on three machines: network namespaces of this one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from sklearn.datasets import load_breast_cancer

import compositefl as cfl
from compositefl.deployment import Federation
from compositefl.solve.result import named_arrays
from tests.deployment.deployment_cases import simulate

pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")
pytest.importorskip("pyarrow", reason="reads Parquet")

MACHINES = {"coordinator": "10.77.0.1", "hospital-a": "10.77.0.2", "hospital-b": "10.77.0.3"}
HOST = "coordinator.example.org"
FEDERATION = """name = "tumours"
sites = ["hospital-a", "hospital-b"]
rounds = 15
batch_size = 32
seed = 0
regularizer = "l1:0.01"
unpenalized = ["*bias"]
eval_every = 5
minimum_sites = 2

[data]
features = {features}
target = "benign"

[model]
name = "mlp"
classes = 2
hidden = [8]

[algorithm]
name = "fednmap"
gamma = 1.0
local_steps = 5
local_lr = 0.1

[network]
round_timeout = 60.0
"""
SITE = """name = "{name}"
accept = ["{accept}"]
[train]
file = "{train}"
[test]
file = "{test}"
"""


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def machines(tmp_path):
    """Three namespaces on a bridge, each with a folder; a function that types a command there."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2 to make network namespaces")
    names = {m: f"cfl-{i}" for i, m in enumerate(MACHINES)}
    resolver = Path("/etc/netns")
    try:
        ip("link", "add", "cfl-br", "type", "bridge")
        ip("link", "set", "cfl-br", "up")
        for machine, space in names.items():
            ip("netns", "add", space)
            ip(
                "link",
                "add",
                f"{space}-out",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                space,
            )
            ip("link", "set", f"{space}-out", "master", "cfl-br", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "addr", "add", f"{MACHINES[machine]}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            (resolver / space).mkdir(parents=True)
            hosts = f"127.0.0.1 localhost\n{MACHINES['coordinator']} {HOST}\n"
            (resolver / space / "hosts").write_text(hosts)
            (tmp_path / machine).mkdir()
    except (subprocess.CalledProcessError, OSError) as error:
        remove(names, resolver)
        pytest.skip(f"no network namespaces here: {error}")

    def typed(machine, *arguments):
        program = Path(sys.executable).parent / "compositefl"
        out = subprocess.run(
            ["ip", "netns", "exec", names[machine], program, *arguments],
            cwd=tmp_path / machine,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert out.returncode == 0, out.stdout + out.stderr
        return out.stdout

    yield typed
    remove(names, resolver)


def remove(names, resolver):
    for space in names.values():
        subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        shutil.rmtree(resolver / space, ignore_errors=True)
    subprocess.run(["ip", "link", "del", "cfl-br"], check=False, capture_output=True)


def tables():
    """(columns, {hospital: (train, test)}): 400 and 169 patients, features of deviation 1."""
    bunch = load_breast_cancer()
    x = (bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0)
    columns = [name.replace(" ", "_") for name in bunch.feature_names]
    frame = pd.DataFrame(x, columns=columns).assign(benign=bunch.target)
    parts = {"hospital-a": frame[:400], "hospital-b": frame[400:]}
    return columns, {name: (part[:-50], part[-50:]) for name, part in parts.items()}


@pytest.mark.full
def test_the_tutorial_on_three_machines(machines, tmp_path):
    centre = tmp_path / "coordinator"
    columns, data = tables()
    listed = str(columns).replace("'", '"')
    (centre / "federation.toml").write_text(FEDERATION.replace("{features}", listed))
    said = machines("coordinator", "deploy", "provision", "federation.toml", "--host", HOST)
    digest = said.splitlines()[-1]
    kits = next((centre / "federation" / "tumours").glob("prod_*"))
    for hospital, (train, test) in data.items():  # one keeps Parquet files, the other CSV
        shutil.move(kits / hospital, tmp_path / hospital / hospital)
        write, ending = (
            (pd.DataFrame.to_parquet, "parquet")
            if hospital == "hospital-a"
            else (pd.DataFrame.to_csv, "csv")
        )
        files = {}
        for name, part in (("train", train), ("test", test)):
            files[name] = tmp_path / hospital / f"{name}.{ending}"
            order = part.columns if hospital == "hospital-a" else part.columns[::-1]
            write(part[order], files[name], index=False)  # each has its own order of columns
        declared = SITE.format(name=hospital, accept=digest, **files)
        (tmp_path / hospital / hospital / "local" / "site.toml").write_text(declared)

    nodes = {"coordinator": f"federation/tumours/{kits.name}/{HOST}"} | {h: h for h in data}
    try:
        for machine, kit in nodes.items():
            machines(machine, "deploy", "start", kit)
        machines("coordinator", "deploy", "submit", "federation.toml", "--run", "first")
        watched = machines("coordinator", "deploy", "watch", "--run", "first")
        assert "15 rounds, stopped: rounds" in watched
        told = machines("coordinator", "deploy", "result", "--run", "first")
        assert "accuracy" in told and "model.safetensors" in told
    finally:
        for machine, kit in nodes.items():
            machines(machine, "deploy", "stop", kit)

    outcome = centre / "federation" / "runs" / "first" / "result"
    history = pd.read_csv(outcome / "history.csv")
    assert history["accuracy"].iloc[-1] > 0.9 and list(history["round"])[-1] == 15
    samples = [
        cfl.data.Samples(part[columns].to_numpy(np.float32), part["benign"].to_numpy(np.int32))
        for part, _ in data.values()
    ]
    federation = Federation.read(centre / "federation.toml")
    expected = named_arrays(simulate(federation, samples).params)
    network = load_file(outcome / "model.safetensors")
    assert network.keys() == expected.keys()
    assert max(np.abs(network[name] - expected[name]).max() for name in expected) < 1e-5
