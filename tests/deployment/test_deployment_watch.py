"""Watching a run: what its events add up to, over jobs that end and servers that come back."""

import io
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from compositefl.core.errors import CompositeFLError
from compositefl.deployment import Federation, supervise
from compositefl.deployment.health import metrics
from compositefl.deployment.progress import Progress
from tests.deployment.deployment_cases import FAST, SITES, Local, text

TEXT = text(rounds=8, minimum_sites=3)


class Engine:
    """Jobs as a script says: each is a list of events and how it ends.

    Ends: "result" leaves an outcome, "aborted" none, "forgotten" is a job whose server came back
    without it, "away" one whose server cannot be reached for three questions.
    """

    def __init__(self, script):
        self.script, self.job, self.asked = script, -1, 0
        self.log, self.end = b"", ""

    def submit(self, job):
        self.job, self.asked = self.job + 1, 0
        events, self.end = self.script[self.job]
        self.log += b"".join(json.dumps(event).encode() + b"\n" for event in events)
        return f"job-{self.job}"

    def system(self):
        return set(SITES), self.end != "forgotten"

    def progress(self, job, start):
        self.asked += 1
        if self.end == "away" and self.asked < 4:
            raise ConnectionError("nobody listens")
        return (
            ("", start) if self.end == "forgotten" else (self.log[start:].decode(), len(self.log))
        )

    def state(self, job):
        return "RUNNING" if self.end == "forgotten" else "FINISHED:COMPLETED"

    def abort(self, job):
        raise CompositeFLError("it does not run")

    def download(self, job, folder):
        if self.end == "forgotten":
            raise ConnectionError("no such job")
        left = folder / job
        left.mkdir(parents=True)
        (left / "progress.jsonl").write_bytes(self.log)
        if self.end in ("result", "away"):
            last = json.loads(self.log.splitlines()[-1])
            (left / "config.json").write_text(json.dumps({"stopped": last["reason"]}))
        return left


def start(round_=0):
    return {"event": "start", "round": round_, "rounds": 8, "time": 1.0}


def advance(round_, sites=SITES):
    return {"event": "round", "round": round_, "sites": list(sites), "time": 2.0 + round_}


def stop(reason, round_=8):
    return {"event": "stop", "reason": reason, "round": round_}


def failure(site, reason, call="hello", round_=0, lost=False):
    about = {"site": site, "reason": reason, "call": call, "round": round_, "lost": lost}
    return {"event": "failure", **about}


ROW = {"psi": 1.0, "natural_residual_sq": 1.0, "sites": 4}
EVENTS = [
    start(),
    {"event": "joined", "round": 0, "site": "north", "time": 1.5},
    failure("east", "x"),
    advance(1),
    {"event": "evaluation", "round": 1, **ROW},
    stop("rounds"),
]


def test_every_flipped_bit_of_the_progress_leaves_the_run_alive(tmp_path):
    """A bit made a line no text, or an evaluation one without psi: the server's next job died."""
    from compositefl.cli.watching import Watching, headline, picture

    path = tmp_path / "progress.jsonl"
    data = b"".join(json.dumps(event).encode() + b"\n" for event in EVENTS)
    view = Watching("run", live=False)
    view.console = Console(file=io.StringIO())
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        progress = Progress.of(SITES)
        events = progress.read(damaged.decode(errors="replace"))
        assert metrics("run", progress) and headline("run", progress)
        if bit % 101 == 0:  # it takes longer
            assert picture("run", progress)
            view.show(progress, events)
    path.write_bytes(data.replace(b"north", b"\xeeorth", 1))  # no text any more
    assert Progress.kept(path, SITES).round == 8


@pytest.mark.parametrize(
    ("kind", "entry", "value"),
    [
        ("start", "round", "x"),
        ("joined", "site", [1]),
        ("failure", "reason", 3),
        ("failure", "round", None),
        ("round", "sites", "north"),
        ("round", "sites", [{}]),
        ("round", "time", "x"),
        ("evaluation", "psi", "x"),
        ("evaluation", "natural_residual_sq", -1.0),
        ("evaluation", "accuracy", "x"),
        ("stop", "reason", {}),
    ],
)
def test_events_that_a_server_made_up_are_passed_over(kind, entry, value):
    progress = Progress.of(SITES)
    (event,) = (event for event in EVENTS if event["event"] == kind)
    assert progress.read(json.dumps(event | {entry: value})) == [] == progress.read("[" * 10**5)
    assert progress == Progress.of(SITES)
    assert progress.read(json.dumps(event)) == [event]


def test_a_job_beside_one_at_work_is_told_and_not_tried_again(tmp_path):
    """Two administrators: the run's file had grown beyond the line that says why the second job
    was refused, and so a new one was handed in each minute."""
    run = supervise.RunFolder.create(tmp_path, "run", Federation.parse(TEXT))
    feed = supervise.Feed(Engine([]), run)
    lines = [json.dumps(event) + "\n" for event in (start(), advance(1), advance(2), advance(3))]
    (tmp_path / "live").write_text("".join(lines))
    feed.take(tmp_path / "live")
    why = {"event": "refused", "reason": "the run run is at work already, as process 3"}
    (tmp_path / "left").write_text(lines[0] + json.dumps(why) + "\n")
    feed.take(tmp_path / "left")
    assert feed.progress.refusal == why["reason"] and feed.progress.round == 3
    assert supervise.refusal(feed.progress).startswith("the server refuses: the run run is at work")


def test_two_at_once_hand_in_their_jobs_in_turn(tmp_path):
    """One of them ended with "Directory not empty", and a list of jobs could lose one."""
    federation, at_work, most = Federation.parse(TEXT), [], []

    def write_job(*_given):
        at_work.append(1)
        most.append(len(at_work))
        time.sleep(0.2)
        at_work.pop()
        return tmp_path

    def hand_in(_number):
        run = supervise.RunFolder.create(tmp_path, "run", federation)
        supervise.submit(Engine([([], "")]), run, federation, write_job)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(hand_in, range(3)))
    assert most == [1, 1, 1] and len(supervise.RunFolder(tmp_path, "run").jobs()) == 3


def follow(tmp_path, script):
    """(what was said, the events shown, the run): a run followed to its end."""
    said, shown = [], []
    engine, federation = Engine(script), Federation.parse(TEXT)
    run = supervise.RunFolder.create(tmp_path, "first", federation)
    write = lambda federation, run, folder: folder  # noqa: E731
    supervise.submit(engine, run, federation, write)
    show = lambda progress, events: shown.extend(events)  # noqa: E731
    supervise.follow(engine, run, write, said.append, poll=0.0, show=show)
    return said, shown, run


def test_any_number_of_server_restarts(tmp_path, monkeypatch):
    """A server that comes back without the job ten times in a row, and the round is told right."""
    monkeypatch.setattr(supervise, "IDLE", 0.0)
    script = [
        ([start(), advance(1), advance(2)], "aborted"),
        *([([start(2)], "forgotten")] * 10),
        ([start(2), advance(8), stop("rounds")], "result"),
    ]
    said, shown, run = follow(tmp_path, script)
    assert len(run.jobs()) == 12
    assert sum("the server was restarted" in line for line in said) == 10
    assert all("after round 2" in line for line in said)
    kinds = [event["event"] for event in shown]
    assert kinds.count("start") == 12 and kinds.count("round") == 3  # each told once
    assert json.loads((run.outcome / "config.json").read_text())["stopped"] == "rounds"


def test_a_server_that_is_away_for_a_while(tmp_path):
    said, _, _ = follow(tmp_path, [([start(), advance(8), stop("rounds")], "away")])
    assert said == ["the server cannot be reached: nobody listens", "the server is back"]


def test_jobs_that_bring_nothing_are_given_up(tmp_path):
    script = [([start(), advance(1)], "aborted")] + [([start(1)], "aborted")] * 3
    with pytest.raises(CompositeFLError, match="3 jobs brought no new round"):
        follow(tmp_path, script)


def test_a_refusal_is_told_at_once_by_site_and_reason(tmp_path):
    reasons = {site: f"{site} has 29 columns" for site in SITES[:2]}
    events = [start(), *(failure(s, r) for s, r in reasons.items()), stop("refused", 0)]
    with pytest.raises(CompositeFLError) as error:
        follow(tmp_path, [(events, "result")])
    assert "2 of 4 sites refuse" in str(error.value)
    assert all(f"{site}: {reason}" in str(error.value) for site, reason in reasons.items())


def test_a_refusal_of_the_server(tmp_path):
    events = [{"event": "refused", "reason": "it has not been told to accept it"}]
    with pytest.raises(CompositeFLError, match="the server refuses: it has not been told"):
        follow(tmp_path, [(events, "aborted")])


def test_sites_that_refuse_end_a_run_without_waiting(tmp_path):
    """Not after `retries` waits: asking again gets the same answer."""
    slow = FAST.replace("retry_wait = 0.0", "retry_wait = 1000.0")
    local = Local(tmp_path, text(rounds=8, minimum_sites=3, network=slow))
    for name in SITES[:2]:
        file = tmp_path / name / "site.toml"
        file.write_text(file.read_text().replace(local.federation.hash, "0" * 64))
        local.sites[name] = type(local.sites[name]).read(file)
        local.restart(name)
    result = local.coordinator.run()
    assert result.stopped == "refused" and result.rounds == 0
    progress = Progress.of(SITES)
    for event in local.events:
        progress.take(event)
    assert progress.stopped == "refused"
    assert set(progress.missing()) == set(SITES[:2])
    assert all("has not been told to accept" in reason for reason in progress.missing().values())
    assert {s.state for s in progress.sites.values()} == {"refuses", "in"}


def test_one_site_that_refuses_is_asked_less_and_less_often(tmp_path):
    local = Local(tmp_path, text(rounds=20, eval_every=0, minimum_sites=3))
    file = tmp_path / "east" / "site.toml"
    file.write_text(file.read_text().replace(local.federation.hash, "0" * 64))
    local.sites["east"] = type(local.sites["east"]).read(file)
    local.restart("east")
    result = local.coordinator.run()
    assert result.rounds == 20
    assert len(local.failures()) == 5  # rounds 0, 2, 5, 10, 19: not twenty times
    assert result.config["rounds_of_sites"] == {"north": 20, "east": 0, "south": 20, "west": 20}


def test_the_history_says_who_took_part(tmp_path):
    result = Local(tmp_path, text(rounds=3)).coordinator.run()
    assert list(result.history["rounds_west"]) == [0, 1, 2, 3]
    assert result.config["rounds_of_sites"] == dict.fromkeys(SITES, 3)


def test_the_table_at_eighty_columns():
    from compositefl.cli.watching import picture

    progress = Progress.of(("a-hospital-with-a-rather-long-name", "b"))
    reason = "[train] file=/data/a/very/long/name/of/a/file/train.parquet has no column age, bmi"
    for event in (
        start(),
        failure("b", reason),
        advance(5, ["a-hospital-with-a-rather-long-name"]),
    ):
        progress.take(event)
    console = Console(width=80, record=True)
    console.print(picture("first", progress, now=10.0))
    lines = console.export_text().splitlines()
    assert lines[0] == "first: round 5 of 8"
    assert max(map(len, lines)) <= 80
    assert " ".join(lines[-2:]) == f"b: {reason}"


def test_a_failure_is_told_once(capsys):
    from compositefl.cli.watching import Watching

    view = Watching("first", live=False)
    progress = Progress.of(SITES)
    view.show(progress, [failure("east", "no", round_=t) for t in range(5)])
    view.show(progress, [{"event": "joined", "site": "east", "round": 6}, failure("east", "no")])
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[2] for line in told] == [
        "round 0: east: no",
        "round 6: east is back",
        "round 0: east: no",
    ]
