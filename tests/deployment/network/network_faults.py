"""Data for the sites' processes, and faults that strike inside them when a file says so."""

import json
import os
import signal
import time

import numpy as np
import psutil

from compositefl.deployment.messages import decode, encode
from compositefl.deployment.worker import Session
from tests.deployment.deployment_cases import SITES, lasso_data

honest = Session.round


def __getattr__(name):
    """`load_north` and so on: the data of one site."""
    if not name.startswith("load_"):
        raise AttributeError(name)
    Session.round = faulty
    return lambda: (lasso_data()[SITES.index(name.removeprefix("load_"))], None)


def faulty(session, message):
    """A round, with the fault that the kit's local/fault.json asks for; it strikes once."""
    kit = session.store.folder.parents[2]
    path = kit / "local" / "fault.json"
    fault = json.loads(path.read_text()) if path.exists() else {}
    if fault.get("round") != message.values["round"]:
        return honest(session, message)
    path.rename(path.with_suffix(".done"))
    return FAULTS[fault["kind"]](session, message)


def kill_worker(session, message):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_worker_after(session, message):
    honest(session, message)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_site(session, message):
    """The machine is lost: the node first, then the worker of the job."""
    node = psutil.Process().parent()
    node.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def slow(session, message):
    time.sleep(8.0)
    return honest(session, message)


def broken(session, message):
    raise RuntimeError("the data say 42")


def disk_full(session, message):
    (session.store.folder / "pending.part").symlink_to("/dev/full")
    return honest(session, message)


def changed(change=lambda a: a, **values):
    def act(session, message):
        answer = decode(honest(session, message), 2**20)
        arrays = {name: change(a.copy()) for name, a in answer.arrays.items()}
        return encode(answer.values | values, arrays)

    return act


FAULTS = {
    "kill worker": kill_worker,
    "kill worker after its upload": kill_worker_after,
    "kill site": kill_site,
    "slow": slow,
    "exception": broken,
    "disk full": disk_full,
    "nan": changed(lambda a: a * np.nan),
    "inf": changed(lambda a: a + np.inf),
    "shape": changed(lambda a: a[:-1]),
    "dtype": changed(lambda a: a.astype(np.float32)),
    "round": changed(round=0),
}
