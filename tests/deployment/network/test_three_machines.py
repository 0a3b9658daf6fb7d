"""The tutorial of docs/deployment.md, typed on three machines: network namespaces of this one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import compositefl as cfl
from compositefl.deployment import Federation
from compositefl.solve.result import named_arrays
from tests.deployment.deployment_cases import simulate

pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")
pytest.importorskip("pyarrow", reason="reads Parquet")

MACHINES = {"coordinator": "10.77.0.1", "hospital-a": "10.77.0.2", "hospital-b": "10.77.0.3"}
HOST = "coordinator.example.org"
PAGE = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text()
TUTORIAL = PAGE.partition("## Three machines")[2].partition("## When something breaks")[0]
BLOCKS = re.findall(r"```toml\n(.*?)```", TUTORIAL, flags=re.S)
FEDERATION, SITE = (block for block in BLOCKS if block.startswith("name = "))  # whole files
COMMANDS = re.findall(r"^    compositefl (deploy .*?)(?: +# (.*))?$", TUTORIAL, flags=re.M)


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
    """{hospital: (train, test)}: 400 and 200 patients with a rule in them, columns by our names."""
    rng = np.random.default_rng(0)
    made = {}
    for hospital, size in (("hospital-a", 400), ("hospital-b", 200)):
        x = pd.DataFrame(rng.normal(size=(size, 2)), columns=["AGE_YEARS", "bmi"])
        x["smoker"] = rng.integers(0, 2, size)
        ill = x["AGE_YEARS"] + x["bmi"] + 2 * x["smoker"] > 1
        x["readmitted"] = np.where(ill, "yes", "no")
        made[hospital] = x[:-50], x[-50:]
    return made


@pytest.mark.full
def test_the_tutorial_on_three_machines(machines, tmp_path):
    """Every command of the page, in its order, on the page's own files."""
    centre, data, said = tmp_path / "coordinator", tables(), {}
    (centre / "federation.toml").write_text(FEDERATION)
    assert {where for _, where in COMMANDS} == {"", "coordinator", "each hospital"}
    started = False
    try:
        for command, where in COMMANDS:
            name = command.split()[1]
            if name == "stop":
                continue
            started = started or name == "start"
            for machine in data if where == "each hospital" else ["coordinator"]:
                words = command.replace("hospital-a", machine).split()
                said[name] = machines(machine, *words)
            if name == "provision":
                hand_out(centre, tmp_path, data, digest=said[name].splitlines()[-1])
    finally:
        for command, where in COMMANDS if started else ():
            if " stop " in command:
                for machine in data if where == "each hospital" else ["coordinator"]:
                    machines(machine, *command.replace("hospital-a", machine).split())
    assert "nothing was sent" in said["check"] and "AGE_YEARS" not in said["check"]
    assert "running as process" in said["status"]
    federation = Federation.read(centre / "federation.toml")
    assert f"{federation.rounds} rounds, stopped: rounds" in said["watch"]
    assert "accuracy" in said["result"] and "model.safetensors" in said["result"]

    outcome = centre / "federation" / "runs" / "first" / "result"
    history = pd.read_csv(outcome / "history.csv")
    assert history["accuracy"].iloc[-1] > 0.9
    assert history["rounds_hospital-b"].iloc[-1] == federation.rounds
    samples = [
        cfl.data.Samples(
            part[["AGE_YEARS", "bmi", "smoker"]].to_numpy(np.float32),
            (part["readmitted"] == "yes").to_numpy(np.int32),
        )
        for part, _ in data.values()
    ]
    expected = named_arrays(simulate(federation, samples).params)
    network = load_file(outcome / "model.safetensors")
    assert network.keys() == expected.keys()
    assert max(np.abs(network[name] - expected[name]).max() for name in expected) < 1e-5


def hand_out(centre, tmp_path, data, digest):
    """Each hospital gets its kit and writes the page's site.toml; one has Parquet, one CSV."""
    kits = next((centre / "federation" / "readmission").glob("prod_*"))
    for hospital, parts in data.items():
        home = tmp_path / hospital
        shutil.move(kits / hospital, home / hospital)
        declared = SITE.replace("hospital-a", hospital).replace("/data/readmission", str(home))
        declared = re.sub("<sha256sum .*?>", digest, declared)
        for name, part in zip(("train", "test"), parts, strict=True):
            if hospital == "hospital-a":
                part.to_parquet(home / f"{name}.parquet", index=False)
            else:  # and its own order of columns
                part[part.columns[::-1]].to_csv(home / f"{name}.csv", index=False)
                declared = declared.replace(f"{name}.parquet", f"{name}.csv")
        (home / hospital / "local" / "site.toml").write_text(declared)
