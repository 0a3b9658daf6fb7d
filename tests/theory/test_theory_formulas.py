"""The rules and bounds against numbers computed by hand from the papers, and their guards."""

import math

import numpy as np
import pytest

import compositefl as cfl
from compositefl.theory import Constants, note_outside, stepsizes
from compositefl.theory.fednmap import c_0, eq_15, eq_19

# L = delta = sigma = 1, rho = 0, n = 20: gamma = 1/5, sqrt(L^2 + 1/gamma^2) = sqrt(26) = 5.0990.
UNIT = Constants(L=1.0, clients=20, sigma=1.0, delta=1.0)
START = dict(normal_map_sq=2.0, prox_gap_sq=0.5, gradients_sq=3.0)


def constants(**changes):
    return Constants(**{**dict(L=1.0, clients=20, sigma=1.0, delta=1.0), **START, **changes})


def test_fednmap_eq_15_as_printed():
    raw = eq_15(UNIT, rounds=10, local_steps=10)
    assert raw.gamma == 0.2
    assert raw.m == 1
    assert raw.eta_hat == pytest.approx(0.0140, abs=5e-5)  # 1 / (320 sqrt(10/200))
    assert raw.local_lr == pytest.approx(2.383e-4, rel=1e-3)  # 1 / (380 500^(1/4) + 240 * 10)


def test_fednmap_theorem_5_guards_eq_15_for_few_rounds():
    steps = stepsizes("fednmap", UNIT, rounds=10, local_steps=10)
    assert steps.m == 1
    assert steps.eta_hat == pytest.approx(0.00196116, rel=1e-5)  # 1 / (100 sqrt(26))
    assert steps.local_lr == pytest.approx(1.96116e-4, rel=1e-5)
    assert steps.server_lr == pytest.approx(1.0)
    assert steps.admissible() == []
    # eq 15 itself is outside
    raw = eq_15(UNIT, 10, 10)
    outside = steps.admissible(raw.local_lr, raw.eta_hat / (10 * raw.local_lr), raw.gamma)
    assert [text.split("=")[0] for text in outside] == ["eta_hat", "local_lr"]


def test_fednmap_theorem_5_is_eq_15_for_many_rounds():
    steps = stepsizes(cfl.FedNMap, UNIT, rounds=10**6, local_steps=10)
    raw = eq_15(UNIT, 10**6, 10)
    # m = ceil(sqrt(10^6 / 1800)) = ceil(23.57), eta_hat = 1 / (320 sqrt(5000))
    assert (raw.m, steps.m) == (24, 24)
    assert steps.eta_hat == pytest.approx(4.41942e-5, rel=1e-5)
    # 380 (5*10^7)^(1/4) + 240 sqrt(10^7) = 31953.9 + 758946.6
    assert steps.local_lr == pytest.approx(1 / 790900.5, rel=1e-6)


def test_fednmap_theorem_5_terms_by_hand():
    steps = stepsizes("fednmap", constants(), rounds=10, local_steps=10)
    terms = steps.terms()
    # C_0 = 3 / (2 (3 + 4/25)) = 0.474684
    assert c_0(UNIT, 0.2) == pytest.approx(0.474684, rel=1e-5)
    expected = {
        "delta": 27 / 0.0196116,
        "normal_map": 27 * 0.2 * 0.474684 * 2 / (2 * 0.0196116),
        "noise": 330 / 200,
        "local_noise": 110000 * 1.96116e-4**2 * 10,
        "start_prox": 2 * 0.5 / 10,
        "start_gradients": 2 * 3 / 10,
    }
    assert terms == pytest.approx(expected, rel=1e-4)
    assert steps.bound() == pytest.approx(sum(expected.values()), rel=1e-4)
    assert "F_nor" in steps.measures


def test_fednmap_theorem_5_with_weakly_convex_phi():
    c = constants(rho=1.0)  # gamma = 1/10, 1 - gamma rho = 0.9, sqrt(1 + 100) = 10.0499
    steps = stepsizes("fednmap", c, rounds=10, local_steps=10)
    assert steps.gamma == pytest.approx(0.1)
    assert steps.eta_hat == pytest.approx(0.9 / 1004.988, rel=1e-5)
    assert steps.terms()["start_gradients"] == pytest.approx(0.6 / 0.81)
    assert c_0(c, 0.1) == pytest.approx(2.6 / (2 * 2.64))


def test_fednmap_without_noise_has_finite_steps():
    c = constants(sigma=0.0)
    assert math.isinf(eq_15(c, 10, 10).eta_hat)
    steps = stepsizes("fednmap", c, rounds=10, local_steps=10)
    assert (steps.m, steps.eta_hat) == (1, pytest.approx(0.00196116, rel=1e-5))
    assert steps.terms()["noise"] == steps.terms()["local_noise"] == 0


def test_fednmap_m_never_exceeds_the_rounds():
    c = constants(delta=1e-6)  # eq 15 wants m = ceil(sqrt(50 / (9e-6 * 200))) = 167 rounds
    steps = stepsizes("fednmap", c, rounds=50, local_steps=10)
    assert (eq_15(c, 50, 10).m, steps.m) == (167, 50)
    assert steps.terms(10)["noise"] == pytest.approx(330 / (10 * 200))


def test_fednmap_start_at_the_solution_has_no_rule_but_a_bound():
    c = constants(delta=0.0)
    with pytest.raises(cfl.CompositeFLError, match="delta > 0"):
        stepsizes("fednmap", c, rounds=10, local_steps=10)
    given = dict(gamma=0.2, local_lr=1e-5, server_lr=2.0)
    steps = stepsizes("fednmap", c, rounds=1000, local_steps=10, **given)
    # the largest m with 2e-4 <= 0.00196116 / m is 9; eta_a would allow more
    assert steps.m == 9
    assert steps.terms()["noise"] == pytest.approx(330 / (9 * 200))


def test_given_steps_are_kept():
    free = stepsizes("fednmap", constants(), rounds=10, local_steps=10)
    steps = stepsizes("fednmap", constants(), rounds=10, local_steps=10, server_lr=4.0)
    assert steps.server_lr == 4.0
    assert steps.eta_hat == pytest.approx(free.eta_hat)
    steps = stepsizes("fednmap", constants(), rounds=10, local_steps=10, local_lr=1e-5, gamma=0.1)
    assert (steps.local_lr, steps.gamma) == (1e-5, 0.1)
    assert steps.admissible() == []


def test_a_kept_step_lowers_m():
    """A local step that m = 24 does not allow must not be used with m = 24 in the bound."""
    c = constants()
    steps = stepsizes("fednmap", c, rounds=10**6, local_steps=10, local_lr=1e-4)
    assert steps.m == 3  # (1.96116e-4 / 1e-4)^2 = 3.8
    assert stepsizes("fednmap", c, rounds=10**6, local_steps=10).m == 24


def test_the_papers_experiments_are_outside_and_have_no_bound():
    given = dict(gamma=4.0, local_lr=0.1, server_lr=1.0)
    steps = stepsizes("fednmap", constants(), rounds=100, local_steps=10, **given)
    outside = steps.admissible()
    assert [text.split("=")[0] for text in outside] == ["gamma", "eta_hat", "local_lr"]
    assert "1/(5 (rho + L)) = 0.2" in outside[0]
    with pytest.raises(cfl.CompositeFLError, match="does not hold: gamma=4"):
        steps.bound()


def test_fednmap_gamma_beyond_one_over_rho():
    c = constants(rho=1.0)
    steps = stepsizes("fednmap", c, rounds=10, local_steps=1)
    assert any("1/rho" in text for text in steps.admissible(1e-6, 1.0, 1.5))


def test_fednmap_eq_19_as_printed():
    c = constants(mu=0.5)
    raw = eq_19(c, rounds=100, local_steps=10)
    assert raw.gamma == pytest.approx(1 / 7.5)
    assert raw.m == 50
    # log(20000) / (120 * 10 * 1.5 * 100)
    assert raw.local_lr == pytest.approx(9.90349 / 180000, rel=1e-5)


def test_fednmap_theorem_8_terms_by_hand():
    c = constants(mu=0.5, sigma=0.0)
    steps = stepsizes("fednmap", c, rounds=100, local_steps=10, theorem=8)
    gamma, c0 = 1 / 7.5, 3 / (2 * (3 + 4 / 7.5**2))
    assert steps.m == 1
    assert steps.eta_hat == pytest.approx(1 / 180)  # 1 / (120 * 1.5)
    local = 9.90349 / 180000
    drift = local**2 * (2 * 100 * 0.5 / gamma**2 + 2 * 100 * 3)
    start = 1 + gamma * c0 / 2 * 2 + 25 / 180 * drift
    decay = math.exp(-2 * 0.5 * 100 / 180 / (9 * (1 + gamma * 0.5 * c0)))
    assert steps.terms() == pytest.approx(
        {"start": decay * start, "noise": 0.0, "local_noise": 0.0}, rel=1e-5
    )


def test_fednmap_theorem_8_noise_terms_by_hand():
    c = constants(mu=0.5)
    steps = stepsizes("fednmap", c, rounds=100, local_steps=10, theorem="8", m=2)
    terms = steps.terms()
    assert terms["noise"] == pytest.approx(36 / (2 * 20 * 0.5 * 10))
    assert terms["local_noise"] == pytest.approx(
        12100 * (9.90349 / 180000) ** 2 * 10 / 0.5, rel=1e-5
    )


def test_fednmap_theorem_8_with_the_printed_m_never_decays():
    """Why the rule does not use the m of eq 19: the bound would stay at its start for every T."""
    c = constants(mu=0.5)
    for rounds in (10**3, 10**6):
        printed = eq_19(c, rounds, 10).m
        with_m = stepsizes("fednmap", c, rounds=rounds, local_steps=10, theorem=8, m=printed)
        assert with_m.terms()["start"] > 0.99 * c.delta
    assert stepsizes("fednmap", c, rounds=10**6, local_steps=10, theorem=8).terms()["start"] < 1e-6


def test_fednmap_theorem_8_rate():
    """Eq 20: with the guarded rule the bound falls as log(T)/T."""
    c = constants(mu=0.5)
    bounds = [
        stepsizes("fednmap", c, rounds=t, local_steps=10, theorem=8).bound() for t in (10**6, 10**8)
    ]
    assert bounds[1] / bounds[0] == pytest.approx(1e-2 * math.log(2e10) / math.log(2e8), rel=0.1)


def test_za1_theorem_3_5_by_hand():
    c = constants(subgradient=0.0, zeta=1.0)
    steps = stepsizes("za1", c, rounds=100, local_steps=10)
    assert steps.eta_hat == pytest.approx(0.1)
    assert steps.server_lr == pytest.approx(math.sqrt(2.5))  # sqrt(20/8) > 1.5
    assert steps.local_lr == pytest.approx(0.1 / (10 * math.sqrt(2.5)))
    assert steps.terms() == pytest.approx(
        {
            "delta": 1 / (0.3 * 0.1 * 100),
            "start_gradients": 1 / (0.3 * 2.5 * 100),  # zeta^2 = 1 is below gradients_sq = 3
            "noise": 20 / 200,
            "subgradient": 0.0,
        }
    )
    assert steps.terms(1000)["delta"] == pytest.approx(1 / 30)
    given = dict(local_lr=0.002, server_lr=2.0)
    fixed = stepsizes("za1", constants(subgradient=0.5), rounds=100, local_steps=10, **given)
    assert fixed.terms()["subgradient"] == pytest.approx(187 * (0.04 * 0.5 / 2.0) ** 2)


def test_za1_step_makes_the_bound_smallest():
    c = constants(subgradient=3.0)
    steps = stepsizes("za1", c, rounds=1000, local_steps=10)
    # d/de [1/(0.3 e T) + 187 e^2 B^2 / es^2] = 0
    best = (2.5 / (0.3 * 1000 * 2 * 187 * 9)) ** (1 / 3)
    assert best < 0.1
    assert steps.eta_hat == pytest.approx(best, rel=0.05)


def test_za1_theorem_3_6_by_hand():
    c = constants(mu=0.3, subgradient=0.5)
    given = dict(local_lr=0.002, server_lr=2.0)  # eta_hat = 0.04
    steps = stepsizes("za1", c, rounds=50, local_steps=10, theorem="3.6", **given)
    contraction = (1 - 0.3 * 0.04 / 3) ** 50
    assert steps.terms() == pytest.approx(
        {
            "delta": contraction,
            "start_gradients": contraction * 0.04 / 4 * 3,
            "noise": 18 / (0.3 * 200),
            "subgradient": 168 * 0.04**2 * 0.25 / (0.3 * 4),
        }
    )


def test_za1_theorem_3_8_by_hand():
    c = constants(mu=0.3, subgradient=0.5)
    root = math.sqrt(20)
    given = dict(local_lr=0.001 / (10 * root), server_lr=root)  # eta_hat = 0.001 <= 0.3/150
    steps = stepsizes("za1", c, rounds=50, local_steps=10, theorem=3.8, **given)
    contraction = (1 - 0.3 * 0.001 / 3) ** 50
    assert steps.terms() == pytest.approx(
        {
            "delta": contraction * 2 / 0.3,
            "start_gradients": contraction * 1e-6 / 20 * 3,
            "noise": 30 * 0.001 / (0.3 * 200),
            "subgradient": 21 * 0.001 * 0.25 / (0.3 * 20),
        }
    )
    free = stepsizes("za1", c, rounds=50, local_steps=10, theorem=3.8)
    assert free.eta_hat <= 0.3 / 150 * (1 + 1e-9)
    assert free.server_lr == pytest.approx(root)


def test_za1_conditions():
    steps = stepsizes("za1", constants(subgradient=0.5), rounds=50, local_steps=10)
    assert steps.admissible() == []
    outside = steps.admissible(local_lr=0.1, server_lr=1.0)
    assert "eta_hat=1 is above 1/(10 L) = 0.1" in outside
    assert any("server_lr=1 is below" in text for text in outside)
    weak = stepsizes("za1", constants(rho=0.1, subgradient=0.5), rounds=50, local_steps=10)
    assert any("convex" in text for text in weak.admissible())


def test_za1_unbounded_subgradients_give_no_bound():
    steps = stepsizes("za1", constants(subgradient=math.inf), rounds=50, local_steps=10)
    assert steps.eta_hat == pytest.approx(0.1)
    assert math.isinf(steps.bound())


def test_fedprox_theorem_1_by_hand():
    c = constants(lipschitz=2.0)
    few = stepsizes("fedprox", c, rounds=1000, participants=4)
    # min{1/10, sqrt(4/1000) = 0.0632} / 3
    assert few.eta == pytest.approx(0.0632456 / 3, rel=1e-5)
    eta = few.eta
    assert few.eps == pytest.approx(min(2 * 4 * eta**3 / 16, 4 * eta / 8) / (eta + 1))
    assert few.terms() == pytest.approx(
        {"delta": 1 / math.sqrt(4000), "lipschitz": 4 / math.sqrt(4000)}
    )
    assert not few.exact
    # Remark 2: with everyone the terms in I go
    everyone = stepsizes("fedprox", c, rounds=1000)
    assert everyone.eta == pytest.approx(0.1 / 3)
    assert everyone.bound() == pytest.approx(5 * 0.01)


def test_fedprox_theorem_2_by_hand():
    c = constants(lipschitz=2.0, nu=0.25)
    steps = stepsizes("fedprox", c, rounds=100, theorem=2)
    assert (steps.envelope, steps.eta, steps.eps) == (1.0, 0.1, 0.0)
    assert steps.terms() == pytest.approx({"delta": 0.1, "lipschitz": 0.4})
    assert stepsizes("fedprox", c, rounds=100, theorem=2, envelope=1.5).eta == pytest.approx(0.15)
    with pytest.raises(cfl.CompositeFLError, match=r"envelope=2 must be below 1/\(2 nu\) = 2"):
        stepsizes("fedprox", c, rounds=100, theorem=2, envelope=2.0)
    # convex losses: r = Delta / G^2; smooth losses: nu = L + rho
    assert (
        stepsizes("fedprox", constants(lipschitz=2.0, nu=0.0), rounds=100, theorem=2).envelope
        == 0.25
    )
    assert stepsizes("fedprox", constants(lipschitz=2.0), rounds=100, theorem=2).envelope == 0.25
    assert steps.admissible(eta=0.3) == ["eta sqrt(T)=3 is above 1/(2 nu) = 2"]


def test_fedmspp_theorems_by_hand():
    c = constants(lipschitz=2.0, nu=0.25)
    steps = stepsizes("fedmspp", c, rounds=10**6, batch_size=5, participants=4)
    # min{1/100, sqrt(20/10^6) = 0.00447} / 8
    assert steps.eta == pytest.approx(0.00447214 / 8, rel=1e-5)
    e = steps.eta
    expected = min(4 * e / (2 * (e + 1)), 4 * e / 200, 4 * e**3 / (40 * (e + 1)))
    assert steps.eps == pytest.approx(expected)
    assert steps.bound() == pytest.approx(5 / math.sqrt(2e7))
    assert stepsizes("fedmspp", c, rounds=100, theorem=4).terms() == pytest.approx(
        {"delta": 0.1, "lipschitz": 0.4}
    )
    with pytest.raises(cfl.CompositeFLError, match="needs batch_size"):
        stepsizes("fedmspp", c, rounds=100)


@pytest.mark.parametrize(
    "name, theorem", [("fednmap", 5), ("fednmap", 8), ("za1", 3.5), ("za1", 3.6), ("za1", 3.8)]
)
def test_bounds_are_monotone(name, theorem):
    """More noise, a worse start or fewer clients never make a bound smaller; more rounds do."""
    base = dict(mu=0.5, subgradient=0.1)

    def bound(rounds=10**5, local_steps=10, **changes):
        c = constants(**{**base, **changes})
        return stepsizes(name, c, rounds=rounds, local_steps=local_steps, theorem=theorem).bound()

    assert bound(sigma=2.0) > bound() > bound(sigma=0.0)
    assert bound(delta=2.0) >= bound()
    assert bound(clients=10) > bound() > bound(clients=40)
    assert bound(rounds=10**4) > bound() > bound(rounds=10**6)
    steps = stepsizes(name, constants(**base), rounds=10**5, local_steps=10, theorem=theorem)
    curve = [steps.bound(t) for t in (10, 10**3, 10**5)]
    assert curve[0] > curve[1] > curve[2]


def test_rate_of_theorem_5_in_rounds():
    c = constants()
    bounds = [stepsizes("fednmap", c, rounds=t, local_steps=10).bound() for t in (10**8, 10**10)]
    assert np.log(bounds[1] / bounds[0]) / np.log(100) == pytest.approx(-0.5, abs=0.01)


def test_partial_participation_is_noted():
    steps = stepsizes("fednmap", UNIT, rounds=10, local_steps=10, participants=5)
    assert steps.notes == ("5 of 20 clients take part, the theorem wants all",)
    assert stepsizes("fednmap", UNIT, rounds=10, local_steps=10, participants=20).notes == ()


def test_note_outside():
    far = cfl.FedNMap(gamma=4.0, local_lr=0.1, local_steps=10)
    note = note_outside(far, UNIT, 100)
    assert note.startswith("FedNMap Theorem 5 does not cover this run: gamma=4 is above")
    assert "\n" not in note
    steps = stepsizes("fednmap", UNIT, rounds=100, local_steps=10)
    near = cfl.FedNMap(
        gamma=steps.gamma, local_lr=steps.local_lr, server_lr=steps.server_lr, local_steps=10
    )
    assert note_outside(near, UNIT, 100) is None
    assert "5 of 20 clients" in note_outside(near, UNIT, 100, participants=5)
    assert "server_lr=1 is below" in note_outside(
        cfl.ZA1(local_lr=0.001, local_steps=10), UNIT, 100
    )
    assert note_outside(cfl.FedAvg(local_lr=0.1, local_steps=10), UNIT, 100) is None


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Constants(L=0.0, clients=2), "L=0.0 must be"),
        (lambda: Constants(L=1.0, clients=0), "clients=0 must be"),
        (lambda: Constants(L=1.0, clients=2, sigma=math.nan), "sigma=nan"),
        (lambda: Constants(L=1.0, clients=2, delta=-1.0), "delta=-1.0"),
        (lambda: Constants(L=1.0, clients=2, mu=0.0), "mu=0.0"),
        (lambda: Constants(L=1.0, clients=2, subgradient=-1.0), "subgradient=-1.0"),
        (lambda: stepsizes("fednmp", UNIT, rounds=10), "did you mean 'fednmap'"),
        (lambda: stepsizes("fednmap", UNIT, rounds=10, theorem=6), "one of 5, 8 for fednmap"),
        (lambda: stepsizes("fednmap", UNIT, rounds=0), "rounds=0"),
        (lambda: stepsizes("fednmap", UNIT, rounds=10, local_lr="theory"), "local_lr='theory'"),
        (lambda: stepsizes("fednmap", UNIT, rounds=10, theorem=8), "needs the constant mu"),
        (lambda: stepsizes("fednmap", UNIT, rounds=10).bound(), "needs the constant normal_map_sq"),
        (lambda: stepsizes("za1", UNIT, rounds=10).bound(), "needs the constant subgradient"),
        (
            lambda: stepsizes("fednmap", Constants(L=1.0, clients=2), rounds=10),
            "eq 15 needs the constant delta",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(cfl.CompositeFLError, match=message):
        call()
