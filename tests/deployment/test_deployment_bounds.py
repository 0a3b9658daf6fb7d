"""Answers that cannot be, or belong to another call, are refused; the run goes on."""

import json

import numpy as np
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.deployment import calls as calls_module
from compositefl.deployment.messages import (
    NotFinite,
    answer_digest,
    call_digest,
    decode,
    encode,
    unpack,
)
from compositefl.deployment.privacy import epsilon
from tests.deployment.deployment_cases import AUTO, SITES, Local, gap, simulate, text
from tests.deployment.test_deployment_faults import Once, changed

ROUNDS = 6


def nested(depth):
    """A message whose plain values are lists within lists."""
    values = '{"round": ' + "[" * depth + "]" * depth + "}"
    header = json.dumps({"__metadata__": {"values": values}}).encode()
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize("depth", [7, 400, 900, 20_000])
def test_nested_values_are_refused(depth):
    """The attack: RecursionError in decode ended the coordinator."""
    with pytest.raises(CompositeFLError, match="not a message"):
        decode(nested(depth), 2**20)


def resealed(values=None, change=lambda a: a):
    """A dishonest site: other content, with a digest that fits it."""

    def act(call):
        answer = decode(call(), 2**20)
        arrays = {n: change(a.copy()) for n, a in answer.arrays.items()}
        new = answer.values | (values or {})
        return encode(new | {"digest": answer_digest(act.call, new, arrays)}, arrays)

    return act


def huge(a):
    a.flat[0] = 1e300
    return a


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_least_whole_number_is_a_large_one(dtype):
    """The attack: its absolute value is negative, and so passed every bound."""
    like, numbers = {"n": np.zeros(2, dtype)}, np.iinfo(dtype)
    for number in (numbers.min, numbers.max, -1001, 1001):
        arrays = {"upload/n": np.array([7, number], dtype)}
        with pytest.raises(NotFinite, match="upload/n contains numbers beyond 1000"):
            unpack("upload", arrays, like, finite=True, largest=1000)
    good = {"upload/n": np.array([-1000, 1000], dtype)}
    assert unpack("upload", good, like, finite=True, largest=1000)["n"].tolist() == [-1000, 1000]


BAD = {
    "nested": (lambda call: nested(20_000), "not a message"),
    "1e300": (resealed(change=huge), "contains numbers beyond 1e+12"),
    "negative steps": (resealed({"steps": -(10**9)}), "steps=-1000000000, outside 3 to 3"),
    "too many steps": (resealed({"steps": 4}), "steps=4, outside 3 to 3"),
    "no uploads": (resealed({"uploads": 0}), "uploads=0, outside 1"),
    "endless uploads": (resealed({"uploads": 2**60}), "outside 1 to 16"),
    "more uploads than agreed": (resealed({"uploads": 17}), "uploads=17, outside 1 to 16"),
    "a digest that does not fit": (changed({"digest": "0" * 64}), "does not belong to this"),
    "no digest": (changed({"digest": None}), "does not belong to this"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_round_that_cannot_be(tmp_path, name):
    act, reason = BAD[name]

    class Named(Once):
        def __call__(self, site, method, payload, call):
            message = decode(payload, len(payload))
            if method == "round":
                fed, run = message.values["federation"], message.values["run"]
                act.call = call_digest(fed, run, method, message.values["round"], message.arrays)
            return super().__call__(site, method, payload, call)

    local = Local(tmp_path, text(rounds=ROUNDS), fault=Named(act))
    result = local.coordinator.run()
    assert result.rounds == ROUNDS and local.drift() < 1e-12
    assert [f for f in local.failures() if f.startswith("east round 2: ") and reason in f]
    assert all(len(f) < 500 for f in local.failures())


def forged(method, forger="north", **values):
    """A dishonest site: other plain values in its answers to `method`, with a digest that fits."""

    def fault(site, called, payload, call):
        if site != forger or called != method:
            return call()
        asked, answer = decode(payload, len(payload)), decode(call(), 2**20)
        new = answer.values | values
        if new.pop("digest", None):
            about = new["federation"], new["run"], method, new["round"]
            made = call_digest(*about, asked.arrays, asked.values.get("numbers"))
            new["digest"] = answer_digest(made, new, answer.arrays)
        return encode(new, answer.arrays)

    return fault


@pytest.mark.parametrize("number", [2**70, 10**400], ids=["2**70", "10**400"])
@pytest.mark.parametrize(
    ("method", "name"),
    [("hello", "samples"), ("hello", "tests"), ("round", "steps"), ("round", "uploads")],
)
def test_a_whole_number_beyond_every_type(tmp_path, method, name, number):
    """The attack: TypeError in the check ended the coordinator."""
    local = Local(tmp_path, text(rounds=2), fault=forged(method, **{name: number}))
    result = local.coordinator.run()
    assert result.rounds == 2 and result.history.sites.iloc[-1] == (3 if method == "hello" else 4)
    told = local.failures()
    assert told and all(f"refused: its answer has {name}={str(number)[:9]}" in f for f in told)
    assert all(f.startswith("north ") for f in told)
    assert local.coordinator.roster.took_part()["north"] == 0


@pytest.mark.parametrize("check", ["decode", "value", "unpack"])
def test_an_error_in_a_check_is_the_sites_failure(tmp_path, monkeypatch, check):
    """Whatever a site sends that no check has thought of: it is named, and the run goes on."""
    true, calls = getattr(calls_module, check), []

    def breaks(*given, **more):
        calls.append(given)
        if len(calls) == 2:  # the second site
            raise ZeroDivisionError("nobody has thought of this")
        return true(*given, **more)

    monkeypatch.setattr(calls_module, check, breaks)
    local = Local(tmp_path, text(rounds=2))
    assert local.coordinator.run().rounds == 2
    (told,) = local.failures()
    assert told.endswith(": refused: ZeroDivisionError in the check of its answer")


@pytest.mark.parametrize(("claimed", "rounds"), [(10**6, 0), (4, 0), (3, 1)])
def test_a_site_cannot_inflate_the_epsilon_of_the_result(tmp_path, claimed, rounds):
    """The attack: uploads = 1,000,000 made an epsilon of 4 one of 137,000."""
    noise = "[privacy]\nclip = 1.0\nnoise = 4.0\n"
    declared = text(rounds=3, eval_every=0, eval_gamma=None, extra=noise)
    local = Local(tmp_path, declared, fault=forged("round", uploads=claimed))
    result = local.coordinator.run()
    assert result.rounds == 3
    assert result.config["epsilon"] == epsilon(local.federation.privacy, 3)
    assert local.coordinator.roster.took_part() == dict.fromkeys(SITES, 3) | {"north": rounds}
    assert len(local.failures()) == 3 - rounds
    wanted = "refused: it has counted 3 uploads in this run" if rounds else "outside 1 to 3"
    assert all(f.startswith("north round") and wanted in f for f in local.failures())


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (float("nan"), "curvature is NaN or infinite"),
        (float("inf"), "curvature is NaN or infinite"),
        (-5.0, "its answer has curvature=-5.0, outside 0 to"),
        (1e300, "its answer has curvature=1e+300, outside 0 to"),
        (2**70, "curvature=1180591620717411303424; it must be a float"),
        ("x", "curvature='x'; it must be a float"),
        (None, "curvature=None; it must be a float"),
    ],
)
def test_a_curvature_that_cannot_be(tmp_path, number, reason):
    """The attack: the step sizes of all sites followed it, or the server died without a name."""
    local = Local(tmp_path, AUTO, fault=forged("curvature", curvature=number))
    server = local.coordinator
    with server.alone():
        assert server._begin() == ""
    (told,) = local.failures()
    assert told.startswith("north curvature 0: refused: ") and reason in told
    honest = [engine_of(local, site).curvature() for site in ("east", "south", "west")]
    assert server.steered.curvature() == max(honest)


@pytest.mark.parametrize("number", [0.0, float("nan"), float("inf")])
def test_a_site_that_cannot_tell_its_curvature_takes_part(tmp_path, monkeypatch, number):
    """A flat loss, or a kink at the start: honest, and the others' curvatures count."""
    local = Local(tmp_path, AUTO)
    local.coordinator.calls.join(0, list(local.sites))
    monkeypatch.setattr(engine_of(local, "north"), "curvature", lambda: number)
    with local.coordinator.alone():
        assert local.coordinator._begin() == "" and not local.failures()
    honest = [engine_of(local, site).curvature() for site in ("east", "south", "west")]
    assert local.coordinator.steered.curvature() == max(honest)


def engine_of(local, site):
    return local.workers[site]._session.engine


def test_an_old_upload_under_a_new_tag_is_refused(tmp_path):
    """The attack: the upload of round 0 was taken for that of round 2."""
    kept = []

    def fault(site, method, payload, call):
        if method != "round" or site != "east":
            return call()
        t = decode(payload, len(payload)).values["round"]
        answer = call()
        if t == 0:
            kept.append(answer)
        if t != 2:
            return answer
        old = decode(kept[0], 2**20)
        return encode(old.values | {"round": 2}, old.arrays)

    local = Local(tmp_path, text(rounds=ROUNDS), fault=fault)
    local.coordinator.run()
    reason = "refused: its answer does not belong to this round's message"
    assert local.failures() == [f"east round 2: {reason}"]
    assert local.drift() < 1e-12


def test_an_answer_of_another_run_does_not_fit():
    """The digest depends on federation, run, method, round and every bit of the message."""
    arrays = {"message/w": np.arange(3.0)}
    first = call_digest("f", "r", "round", 1, arrays)
    others = [
        call_digest("g", "r", "round", 1, arrays),
        call_digest("f", "s", "round", 1, arrays),
        call_digest("f", "r", "open", 1, arrays),
        call_digest("f", "r", "round", 2, arrays),
        call_digest("f", "r", "round", 1, {"message/w": np.nextafter(np.arange(3.0), 9)}),
        call_digest("f", "r", "round", 1, {"message/w": np.arange(3.0)[:, None]}),
        call_digest("f", "r", "round", 1, {"message/v": np.arange(3.0)}),
    ]
    assert len({first, *others}) == 8


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"right": 21.0}, "right=21.0, outside 0 to 20"),
        ({"right": -1.0}, "right=-1.0, outside 0"),
        ({"right": float("nan")}, "right is NaN"),
        ({"tests": 10**6, "right": 10.0**6}, "tests=1000000, it joined with another"),
        ({"loss": 1e300}, "loss=1e+300, outside"),
    ],
)
def test_an_evaluation_that_cannot_be(tmp_path, values, reason):
    """The attack: more right answers than tests."""

    def fault(site, method, payload, call):
        if method != "evaluate" or site != "east":
            return call()
        answer = decode(call(), 2**20)
        return encode(answer.values | values, answer.arrays)

    rng = np.random.default_rng(1)
    test = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, 20).astype(np.int32)
    declared = text(model="mlp", rounds=2, dtype="float32")
    local = Local(tmp_path, declared, "mlp", fault=fault, test=test)
    result = local.coordinator.run()
    assert result.rounds == 2
    assert any(f.startswith("east evaluate") and reason in f for f in local.failures())
    assert (result.history.accuracy <= 1).all() and (result.history.sites == 3).all()


def test_data_that_change_within_a_run_are_told(tmp_path):
    def fault(site, method, payload, call):
        answer = call()
        if method == "hello" and site == "east" and local.coordinator.round:
            message = decode(answer, 2**20)
            return encode(message.values | {"samples": 10**6}, {})
        if method == "round" and site == "east" and local.coordinator.round == 2:
            raise ConnectionError("gone")
        return answer

    local = Local(tmp_path, text(rounds=ROUNDS, weights="size"), fault=fault)
    local.coordinator.run()
    assert any("had 7 when this run began" in f for f in local.failures())
    assert local.coordinator.roster.members["east"].samples == 7


def test_random_numbers_of_steps_are_known_to_the_server(tmp_path):
    algorithm = (
        'name = "compositefl.algorithms.scaffnew:Scaffnew"\nlocal_steps = 3\nlocal_lr = 0.05'
    )
    declared = text(rounds=4, regularizer="zero")
    start, end = declared.index('name = "fednmap"'), declared.index("[network]")
    local = Local(tmp_path, declared[:start] + algorithm + "\n" + declared[end:])
    result = local.coordinator.run()
    assert not local.failures()
    assert len({local.coordinator.plan.steps_in(t) for t in range(8)}) > 1
    assert gap(result.params, simulate(local.federation, local.data).params) < 1e-10


def test_what_a_site_says_went_wrong_is_short_and_printable(tmp_path):
    from compositefl.core.errors import CompositeFLError as Ours

    def shout(call):
        raise Ours("\x1b[2J" + "x" * 10**6)

    local = Local(tmp_path, text(rounds=3), fault=Once(shout))
    local.coordinator.run()
    (told,) = local.failures()
    assert len(told) < 500 and told.isprintable()


def test_a_site_takes_only_numbers_that_a_pilot_sets(tmp_path):
    """A server cannot make a site work for hours or keep many states."""
    local = Local(tmp_path, AUTO)
    server = local.coordinator
    server.calls.join(0, list(local.sites))
    server.steer(server.curvatures(list(local.sites)))
    about = server.steered.about()

    def asked(**changes):
        server.calls.steered = lambda: about | changes
        before = len(local.events)
        server._collect(0, ["north"])
        server.calls.join(0, ["north"])
        return [e["reason"] for e in local.events[before:] if e["event"] == "failure"]

    assert asked() == []
    (told,) = asked(numbers=[0.1, 10**6, 1.0, 1.0])
    assert "local_steps=1000000: numbers that set themselves are at most 100" in told
    assert "local_lr=-1.0 must be" in asked(numbers=[-1.0, 1, 1.0, 1.0])[0]
    assert "must be at most 2 rounds of north" in asked(keep={"north": [1, 2, 3]})[0]
    fixed = Local(tmp_path / "fixed", text())
    fixed.coordinator.calls.join(0, ["north"])
    assert not fixed.coordinator.curvatures(["north"])
    assert "there is no method 'curvature'" in fixed.failures()[0]
