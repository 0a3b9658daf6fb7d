"""Every method with its reference implementation, grouped by how the two are compared."""

from functools import partial

import compositefl as cfl
from compositefl.algorithms import (
    STEM,
    VRLSGD,
    EControlDA,
    FastFedDA,
    FedADMM,
    FedAvgM,
    FedDC,
    FedDR,
    FedDyn,
    FedMSPP,
    FedPD,
    FedProx,
    FedSplit,
    Mime,
    MimeLite,
    ProxSkip,
    Scaffnew,
    ScaffoldI,
    ScaffoldM,
    TopK,
)
from compositefl.engine.sampling import Stream, round_key, trial_key
from tests.algorithms.helpers import (
    LOCAL,
    SEED,
    STEPS,
    WEIGHT,
)
from tests.reference import (
    averaging,
    gradient_corrected,
    momentum,
    one_step,
    proximal_point,
    splitting,
)

PLAIN_LOCAL = dict(Q=4, ea=0.03)
PLAIN = dict(es=1.5, **PLAIN_LOCAL)
# With L1(WEIGHT), all clients.
COMPOSITE = {
    "fednmap": (
        cfl.FedNMap(gamma=0.7, **STEPS),
        lambda f, x, T: gradient_corrected.fednmap(f, x, WEIGHT, gamma=0.7, rounds=T, **PLAIN),
    ),
    "za1": (
        cfl.ZA1(**STEPS),
        lambda f, x, T: gradient_corrected.za1(f, x, WEIGHT, rounds=T, **PLAIN),
    ),
    "fedcanon": (
        cfl.FedCanon(**STEPS),
        lambda f, x, T: gradient_corrected.fedcanon(f, x, WEIGHT, rounds=T, **PLAIN),
    ),
    "fedcanon2": (
        cfl.FedCanonII(**STEPS),
        lambda f, x, T: gradient_corrected.fedcanon(f, x, WEIGHT, rounds=T, **PLAIN),
    ),
    "fedmid": (
        cfl.FedMiD(**STEPS),
        lambda f, x, T: averaging.fedmid(f, x, WEIGHT, rounds=T, **PLAIN),
    ),
    "fedda": (cfl.FedDA(**STEPS), lambda f, x, T: averaging.fedda(f, x, WEIGHT, rounds=T, **PLAIN)),
    "prox-sgd": (
        cfl.ProxSGD(lr=0.2),
        lambda f, x, T: one_step.prox_sgd(f, x, WEIGHT, step=0.2, rounds=T),
    ),
    "norm-sgd": (
        cfl.NormSGD(lr=0.2, gamma=0.7),
        lambda f, x, T: one_step.norm_sgd(f, x, WEIGHT, step=0.2, gamma=0.7, rounds=T),
    ),
}
MU = dict(strong_convexity=0.4, proximity=8.0)
# With L1(WEIGHT), three of six clients per round.
SAMPLED = {
    "fast-fedda": (
        FastFedDA(local_steps=4, **MU),
        lambda f, x, T: averaging.fast_fedda(f, x, WEIGHT, mu=0.4, gam=8.0, Q=4, rounds=T),
    ),
    "fast-fedda as in code": (
        FastFedDA(local_steps=4, as_in_code=True, **MU),
        lambda f, x, T: averaging.fast_fedda_program(f, x, WEIGHT, mu=0.4, gam=8.0, Q=4, rounds=T),
    ),
    "feddr": (
        FedDR(local_steps=4, local_lr=0.1, eta=0.8, relaxation=1.7),
        lambda f, x, T: splitting.feddr(f, x, WEIGHT, eta=0.8, a=1.7, ea=0.1, Q=4, rounds=T),
    ),
    "fedadmm": (
        FedADMM(local_steps=4, local_lr=0.1, eta=0.8),
        lambda f, x, T: splitting.fedadmm(f, x, WEIGHT, eta=0.8, ea=0.1, Q=4, rounds=T),
    ),
}
# With L1(WEIGHT), one gradient per client and round, all clients.
ONE_GRADIENT = {
    "econtrolda top-k": (
        EControlDA(lr=0.1, compressor=TopK(3), control_gain=0.3),
        lambda f, x, T: one_step.econtrolda(
            f, x, WEIGHT, lam=lambda t: 10.0, kappa=0.3, k=3, rounds=T
        ),
    ),
    "econtrolda random-k": (  # a quarter of 8 entries, and the gain that goes with it
        EControlDA(lr=0.1, compressor="random-k:0.25", schedule="sqrt"),
        lambda f, x, T: one_step.econtrolda(
            f, x, WEIGHT, lam=lambda t: 10.0 * t**0.5, kappa=0.25, k=2, rounds=T, draw="random"
        ),
    ),
    "proxskip": (
        ProxSkip(lr=0.2, prox_probability=0.4),
        lambda f, x, T: (
            last for _, last in one_step.proxskip(f, x, WEIGHT, step=0.2, p=0.4, rounds=T)
        ),
    ),
}
# Without a regulariser, three of six clients per round.
SMOOTH = {
    "fedavg-m": (
        FedAvgM(gradient_weight=0.3, **STEPS),
        lambda f, x, T: momentum.fedavg_m(f, x, b=0.3, rounds=T, **PLAIN),
    ),
    "scaffold-m": (
        ScaffoldM(gradient_weight=0.3, **STEPS),
        lambda f, x, T: momentum.scaffold_m(f, x, b=0.3, rounds=T, **PLAIN),
    ),
    "scaffold-1": (
        ScaffoldI(**STEPS),
        lambda f, x, T: gradient_corrected.scaffold_1(f, x, rounds=T, **PLAIN),
    ),
}


def lengths(algorithm, rounds):
    """The random numbers of local steps, which a twin cannot draw by itself."""
    keys = [round_key(trial_key(SEED, 0), Stream.SHARED, t) for t in range(rounds)]
    return [int(algorithm.draw_steps(key)) for key in keys]


def twin_of_fedpd(f, x, T):
    counts = lengths(SUBGRADIENT["fedpd"][0], T)
    assert {count % 4 for count in counts} == {0} and len(set(counts)) > 1
    return splitting.fedpd(f, x, eta=0.6, stages=[count // 4 for count in counts], **PLAIN_LOCAL)


def twin_of_scaffnew(f, x, T):
    counts = lengths(SUBGRADIENT["scaffnew"][0], T)
    assert len(set(counts)) > 2
    return gradient_corrected.scaffnew(f, x, gamma=0.03, p=1 / 4, lengths=counts)


def mime_twin(kind, lite=False):
    def twin(f, x, T):
        base = momentum.Adam(kind, 0.7, 0.9, 1e-2)
        return momentum.mime(f, x, es=1.5, rounds=T, base=base, lite=lite, **PLAIN_LOCAL)

    return twin


MIME = dict(beta1=0.7, beta2=0.9, epsilon=1e-2, server_lr=1.5, **LOCAL)
# Without a regulariser, or with a smooth one whose gradient the twin adds.
SUBGRADIENT = {
    "fedprox": (
        FedProx(eta=0.6, accuracy=0.8, **LOCAL),
        lambda f, x, T: proximal_point.fedprox(
            f, x, eta=0.6, accuracy=0.8, rounds=T, **PLAIN_LOCAL
        ),
    ),
    "fedmspp": (
        FedMSPP(eta=0.6, accuracy=0.8, **LOCAL),
        lambda f, x, T: proximal_point.fedprox(
            f, x, eta=0.6, accuracy=0.8, rounds=T, one_minibatch=True, **PLAIN_LOCAL
        ),
    ),
    "fedpd": (FedPD(eta=0.6, skip=0.5, **LOCAL), twin_of_fedpd),
    "feddyn": (FedDyn(mu=0.7, **LOCAL), partial(splitting.feddyn, mu=0.7, **PLAIN_LOCAL)),
    "feddc": (FedDC(mu=0.2, **LOCAL), partial(splitting.feddc, mu=0.2, **PLAIN_LOCAL)),
    "fedsplit": (FedSplit(eta=0.6, **LOCAL), partial(splitting.fedsplit, eta=0.6, **PLAIN_LOCAL)),
    "scaffnew": (Scaffnew(**LOCAL), twin_of_scaffnew),
    "vrl-sgd": (VRLSGD(**LOCAL), partial(gradient_corrected.vrl_sgd, **PLAIN_LOCAL)),
    "mime-sgd": (Mime(**MIME), mime_twin("sgd")),
    "mime-momentum": (Mime(optimizer="momentum", **MIME), mime_twin("momentum")),
    "mime-adam": (Mime(optimizer="adam", **MIME), mime_twin("adam")),
    "mimelite-adam": (MimeLite(optimizer="adam", **MIME), mime_twin("adam", lite=True)),
    "stem": (
        STEM(gradient_weight=0.3, step_decay=0.5, **LOCAL),
        partial(momentum.stem, a=0.3, decay=0.5, **PLAIN_LOCAL),
    ),
}
ALL = COMPOSITE | SAMPLED | ONE_GRADIENT | SMOOTH | SUBGRADIENT


def models(twin, f, x, rounds):
    """The twin's models after each round."""
    takes_rounds = isinstance(twin, partial)
    return list(twin(f, x, rounds=rounds) if takes_rounds else twin(f, x, rounds))
