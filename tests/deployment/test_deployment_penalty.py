"""What a federation can say of phi: by name, in groups, with an intercept, along a path."""

import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.errors import CompositeFLError
from compositefl.deployment import Coordinator, Federation, InProcess
from compositefl.deployment.ledger import accounts
from tests.deployment.deployment_cases import Local, declare, gap, simulate, text

GROUPS = '[[regularizers]]\npattern = "w"\nname = "group-lasso"\nweight = 0.1\n'
GROUPS += "groups = [0, 0, 1, 1, 2, 2, 3, 3]\n"
INTERCEPT = """name = "a"
sites = ["x"]
rounds = 1
unpenalized = ["*bias"]
[[regularizers]]
pattern = "*kernel"
name = "elastic-net"
l1 = 0.1
l2 = 0.2
[model]
name = "logistic"
input_shape = [3]
classes = 2
intercept = true
[algorithm]
name = "fednmap"
gamma = 1.0
local_steps = 1
local_lr = 0.1
"""


def test_groups_are_listed(tmp_path):
    local = Local(tmp_path, text(regularizer=None, rounds=4, extra=GROUPS))
    assert repr(local.federation.make_regularizer().rules["w"]) == repr(
        cfl.GroupLasso(0.1, groups=(0, 0, 1, 1, 2, 2, 3, 3))
    )
    result = local.coordinator.run()
    assert not local.failures()
    assert gap(result.params, simulate(local.federation, local.data).params) < 1e-10


def test_an_intercept_and_regularisers_by_name():
    federation = Federation.parse(INTERCEPT).check()
    phi = federation.make_regularizer()
    assert list(phi.rules) == ["*bias", "*kernel"]
    assert repr(phi.rules["*kernel"]) == "ElasticNet(l1=0.1, l2=0.2)"
    assert sorted(federation.start()["dense0"]) == ["bias", "kernel"]


def test_a_path_of_weights_is_accepted_once(tmp_path):
    """One hash for all weights: the run's name says which."""
    local_text = "path = [0.2, 0.05]\n" + text(rounds=3)
    federation = declare(local_text)
    found = {}

    class OfPath(Local):
        def new_coordinator(self):
            transport = InProcess(self.handlers())
            folder = self.folder / "server"
            return Coordinator(self.federation, transport, folder, "a-w0", self.events.append)

    local = OfPath(tmp_path, local_text)
    for run in ("a-w0", "a-w1"):
        server = Coordinator(
            federation, InProcess(local.handlers()), tmp_path / run, run, local.events.append
        )
        result = found[run] = server.run()
        assert not local.failures()
        expected = simulate(federation.for_run(run), local.data)
        assert gap(result.params, expected.params) < 1e-10
    assert "weight=0.2" in found["a-w0"].config["regularizer"]
    assert "weight=0.05" in found["a-w1"].config["regularizer"]
    assert not np.array_equal(found["a-w0"].params["w"], found["a-w1"].params["w"])
    (account,) = accounts(tmp_path / "north" / "state")
    assert set(account["runs"]) == {"a-w0", "a-w1"}
    again = Coordinator(
        federation, InProcess(local.handlers()), tmp_path / "c", "b-w0", local.events.append
    )
    assert again.run().rounds == 0
    assert any("agreed to 2 runs" in f for f in local.failures())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda t: "path = []\n" + t, "must be a list of weights"),
        (lambda t: "path = [-1.0]\n" + t, "path=-1.0 must be"),
        (lambda t: "weight = 1.0\n" + t, "unknown entry 'weight'"),
        (lambda t: t + GROUPS, "give either regularizer or"),
        (lambda t: t.replace('"l1:0.05"', '"zero"') + GROUPS * 2, "the same pattern twice"),
        (
            lambda t: t.replace('"l1:0.05"', '"zero"') + GROUPS.replace("lasso", "lassoo"),
            "did you mean 'group-lasso'",
        ),
        (
            lambda t: t.replace('"l1:0.05"', '"zero"') + GROUPS.replace("groups", "grups"),
            "did you mean 'groups'",
        ),
        (
            lambda t: t.replace('"l1:0.05"', '"zero"') + GROUPS.replace("pattern", "patern"),
            "needs a pattern and a name",
        ),
        (
            lambda t: t.replace('"l1:0.05"', '"zero"') + GROUPS.replace("3, 3", "3"),
            "7",
        ),
        (lambda t: "path = [0.1]\n" + t.replace("l1:0.05", "elastic-net:1,1"), "path: "),
    ],
)
def test_a_wrong_penalty(changed, reason):
    with pytest.raises(CompositeFLError) as error:
        declare(changed(text())).check()
    assert reason in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("run", ["a", "a-w2", "a-w", "w1", "-w1"])
def test_a_run_of_a_path_says_its_weight(run):
    federation = declare("path = [0.2, 0.05]\n" + text())
    with pytest.raises(CompositeFLError, match="a path of 2 weights; name a run for each"):
        federation.for_run(run)
    assert federation.for_run("a-w1").weight == 0.05
    assert declare(text()).for_run(run).weight is None
