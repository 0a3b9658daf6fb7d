"""How a run is, for a monitoring system: a small file in the text format of Prometheus.

The server keeps it beside its progress. node_exporter's textfile collector reads it, or anything
that can read `name{labels} value`.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from compositefl.deployment.progress import Event, Progress

FILE = "metrics.prom"
OFTEN = ("round", "joined", "failure")  # events after which it is written once a second at most
HELP = {
    "running": "1 while a job of the run is at work",
    "round": "rounds done",
    "rounds": "rounds declared",
    "sites": "sites of the federation",
    "sites_in": "sites that answer",
    "round_seconds": "seconds of a round, mean of the last ones",
    "last_event_timestamp_seconds": "time of the last event",
    "jobs_total": "jobs that the run has had",
    "psi": "objective at the last evaluation",
    "natural_residual": "natural residual at the last evaluation",
}


def metrics(run: str, progress: Progress) -> str:
    """The file for one run."""
    label = f'{{run="{run}"}}'
    sites, last = progress.sites, progress.last
    values: dict[str, float | None] = {
        "running": float(progress.stopped is None),
        "round": progress.round,
        "rounds": progress.rounds,
        "sites": len(sites),
        "sites_in": sum(site.state == "in" for site in sites.values()),
        "round_seconds": progress.seconds_a_round,
        "last_event_timestamp_seconds": progress.time,
        "jobs_total": progress.jobs,
        "psi": None if last is None else last["psi"],
        "natural_residual": None if last is None else last["natural_residual_sq"] ** 0.5,
    }
    lines = []
    for name, text in HELP.items():
        number = values[name]
        if number is not None:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP compositefl_{name} {text}", f"# TYPE compositefl_{name} {kind}"]
            lines.append(f"compositefl_{name}{label} {float(number)!r}")
    for name, text, kind in (
        ("site_in", "1 where the site answers", "gauge"),
        ("site_rounds_total", "rounds that the site took part in", "counter"),
        ("site_failures_total", "failed calls of the site", "counter"),
    ):
        lines += [f"# HELP compositefl_{name} {text}", f"# TYPE compositefl_{name} {kind}"]
        for site, about in sites.items():
            number = {
                "site_in": about.state == "in",
                "site_rounds_total": about.rounds,
                "site_failures_total": about.failures,
            }[name]
            lines.append(f'compositefl_{name}{{run="{run}",site="{site}"}} {float(number)!r}')
    return "\n".join(lines) + "\n"


def report_health(path: Path, run: str, progress: Progress) -> Callable[[Event], None]:
    """A report that keeps the file at `path` up to date; `progress` holds what came before."""

    written = 0.0

    def report(event: Event) -> None:
        nonlocal written
        progress.take(event)
        if event["event"] in OFTEN and time.monotonic() - written < 1.0:
            return
        written = time.monotonic()
        with suppress(OSError):  # a full disk must not end the run
            part = path.with_name(path.name + ".part")
            part.write_text(metrics(run, progress))
            part.replace(path)

    return report
