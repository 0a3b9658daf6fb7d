"""Every way in which a run can end has its own sentence."""

import re

import numpy as np
import pandas as pd
import pytest

from compositefl.solve.ending import how_it_ended, rose, summary_of

ROUNDS = np.arange(0, 501, 10)
FALLING_PSI = 0.2 + 0.5 * np.exp(-ROUNDS / 50)


def history(residual, psi=FALLING_PSI, trial=0, zeros=0.4, last=500, **more):
    residual = np.broadcast_to(residual, ROUNDS.shape)
    psi = np.broadcast_to(psi, ROUNDS.shape)
    rounds = ROUNDS * last // 500
    table = {"round": rounds, "trial": trial, "psi": psi, "natural_residual_sq": residual**2}
    return pd.DataFrame(table | {"zeros": zeros} | more)


GEOMETRIC = 10.0 ** (-ROUNDS / 100)  # a decade per 100 rounds, 1e-5 at the end
FLAT = np.maximum(GEOMETRIC, 1.4e-2)
SETTLED = np.maximum(FALLING_PSI, 0.25)
NOISY = FLAT * np.exp(0.3 * np.random.default_rng(0).normal(size=ROUNDS.size))
BOUNCING = SETTLED * (1 + 1e-3 * np.random.default_rng(1).normal(size=ROUNDS.size))
SCALES = dict(scales="Columns 0 and 1 of x differ in scale")
SWINGING = np.where(ROUNDS % 20, 1e-2, 5e-2) + GEOMETRIC

CASES = {
    "tolerance met": (dict(residual=GEOMETRIC), dict(tolerance=1.1e-5), "converged", "1e-05"),
    "no tolerance": (dict(residual=GEOMETRIC), {}, "converged", r"converged in 500 rounds.*\)$"),
    "to nothing": (dict(residual=GEOMETRIC, zeros=1.0), {}, "converged", "All parameters are zero"),
    "falling": (
        dict(residual=GEOMETRIC),
        dict(tolerance=1e-7),
        "falling",
        "about 200 more rounds at this pace",
    ),
    "slow": (
        dict(residual=GEOMETRIC**0.2),
        {},
        "falling",
        r"still falling after 500 rounds.* about 1,000 more rounds to 0.001 at this pace",
    ),
    "psi alone falls": (dict(residual=0.3, psi=1 - ROUNDS / 1000), {}, "falling", "still falling"),
    "stalled": (dict(residual=FLAT, psi=SETTLED), {}, "stalled", r"stalled .* residual 0.014"),
    "oscillating": (
        dict(residual=SWINGING, psi=SETTLED),
        {},
        "stalled",
        "oscillates .* between 0.01 and 0.05.* Smaller steps usually help",
    ),
    "oscillating, steps that set themselves": (
        dict(residual=SWINGING, psi=SETTLED, local_lr=1.0),
        {},
        "stalled",
        "oscillates .* More rounds usually help",
    ),
    "noise": (
        dict(residual=NOISY, psi=BOUNCING),
        dict(noise=["minibatches"]),
        "noise floor",
        r"floor of the noise \(minibatches\).* falls with smaller steps or larger batches$",
    ),
    "noise, steps that set themselves": (
        dict(residual=NOISY, psi=BOUNCING, local_lr=1.0),
        dict(noise=["minibatches"]),
        "noise floor",
        "falls with more rounds or larger batches",
    ),
    "noise that psi no longer shows": (
        dict(residual=NOISY, psi=SETTLED),
        dict(noise=["minibatches"]),
        "noise floor",
        "psi is the same to six digits",
    ),
    "noise, a short run": (
        dict(residual=NOISY, psi=BOUNCING, last=20),
        dict(noise=["minibatches"]),
        "too short to tell",
        "ended after 20 rounds",
    ),
    "stalled, a short run": (
        dict(residual=FLAT, psi=SETTLED, last=20),
        {},
        "too short to tell",
        "ended after 20 rounds",
    ),
    "the model stands still, its z does not": (
        dict(residual=FLAT, psi=SETTLED, normal_map_sq=10.0 ** (-ROUNDS / 2000)),
        {},
        "falling",
        "the normal map still falls",
    ),
    "no lower bound": (
        dict(residual=np.where(ROUNDS < 300, 1.0, 0.0), psi=1 - 100.0 * ROUNDS),
        dict(tolerance=1e-3, stopped="tolerance"),
        "unbounded",
        "psi sank to -5e.04 from 1 and goes on",
    ),
    "far below zero, and on the way there": (
        dict(residual=1 - ROUNDS / 1000, psi=-1e5 * (1 - np.exp(-ROUNDS / 400))),
        {},
        "falling",
        "still falling",
    ),
    "far below zero, and there": (
        dict(residual=GEOMETRIC, psi=-1e5 * (1 - np.exp(-ROUNDS / 50))),
        {},
        "converged",
        "converged",
    ),
    "all samples fitted": (
        dict(residual=GEOMETRIC, psi=10.0 ** (-ROUNDS / 50)),
        {},
        "converged",
        "psi is zero to rounding",
    ),
    "features of different scale": (dict(residual=GEOMETRIC), SCALES, "falling", "differ in scale"),
    "the same, at zero": (dict(residual=GEOMETRIC**2), SCALES, "converged", r"\)$"),
    "above its start, residual 0": (
        dict(residual=np.where(ROUNDS, 0, 1), psi=np.where(ROUNDS, 1.6e9, 0.7)),
        dict(tolerance=1e-3, stopped="tolerance"),
        "above start",
        r"psi 1.6e\+09, above its start 0.7",
    ),
    "infinite": (
        dict(residual=1.0, psi=np.where(ROUNDS > 100, np.inf, 1)),
        {},
        "not finite",
        "not converged",
    ),
    "diverged": (dict(residual=1.0), dict(diverged=[13]), "diverged", "in round 13; .* round 12"),
    "infeasible start": (
        dict(residual=GEOMETRIC, psi=np.where(ROUNDS, FALLING_PSI, np.inf)),
        {},
        "converged",
        "converged",
    ),
    "interrupted": (
        dict(residual=FLAT),
        dict(stopped="interrupted", tolerance=1e-6),
        "stopped early",
        r"stopped early \(interrupted\)",
    ),
}


@pytest.mark.parametrize("rows, options, kind, sentence", CASES.values(), ids=CASES)
def test_ways_to_end(rows, options, kind, sentence):
    ending = how_it_ended(history(**rows), **{"stopped": "rounds"} | options)
    assert ending.kind == kind
    assert re.search(sentence, ending.sentence)
    assert ending.converged == (kind == "converged")
    assert ending.bad == (kind in ("diverged", "not finite", "above start", "unbounded"))


def test_what_needs_a_warning():
    falling = history(GEOMETRIC)
    assert not how_it_ended(falling, "rounds").needs_warning
    assert how_it_ended(falling, "rounds", tolerance=1e-7).needs_warning
    stuck = history(FLAT, SETTLED)
    assert how_it_ended(stuck, "rounds").needs_warning
    assert not how_it_ended(stuck, "rounds", noise=["minibatches"]).needs_warning
    assert not how_it_ended(stuck, "interrupted", tolerance=1e-7).needs_warning


def test_few_evaluations_are_not_read_for_a_trend():
    few = history(GEOMETRIC).iloc[[0, 20]]
    assert how_it_ended(few, "rounds").kind == "too short to tell"
    assert how_it_ended(few, "rounds", tolerance=1e-9).needs_warning


def test_the_worst_trial_is_told():
    both = pd.concat([history(GEOMETRIC), history(GEOMETRIC, FALLING_PSI[::-1], trial=1)])
    ending = how_it_ended(both, "rounds")
    assert ending.kind == "above start"
    assert ending.sentence.startswith("1 of 2 trials, first trial 1")


def test_all_trials_of_an_interrupted_run_were_stopped():
    both = pd.concat([history(FLAT, trial=0), history(GEOMETRIC, trial=1)])
    ending = how_it_ended(both, "interrupted")
    assert ending.sentence.startswith("all 2 trials stopped early (interrupted) after round 500")


def test_rising():
    assert not rose([0.7, 0.9, 0.7]) and not rose([np.inf, 0.7, 0.6]) and not rose([0.7, 0.70001])
    assert rose([0.7, 0.75]) and rose([0.7, np.nan]) and rose([-1.0, -0.9])


def test_several_runs_in_one_sentence():
    good = how_it_ended(history(GEOMETRIC), "rounds")
    slow = how_it_ended(history(GEOMETRIC), "rounds", tolerance=1e-7)
    assert summary_of([good, good], "weights") is None
    told = summary_of([good, slow, slow], "weights")
    assert told.startswith("2 of 3 weights did not converge; number 2: still falling")


def test_rows_from_fewer_sites_are_left_out():
    table = history(GEOMETRIC)
    table["sites"] = 3
    table.loc[0, ["psi", "sites"]] = 0.01, 1  # one site with a small loss
    assert how_it_ended(table, "rounds").converged
    table["sites"], table["psi"] = 0, np.nan  # nobody ever answered
    assert how_it_ended(table, "rounds").kind == "too short to tell"
    assert how_it_ended(table.iloc[:0], "diverged", diverged=[7]).bad
