"""synthetic(alpha, beta), the heterogeneous data of FedProx (Li et al. 2020), without a download.

Client k draws u_k ~ N(0, alpha) and B_k ~ N(0, beta), then W_k ~ N(u_k, 1), b_k ~ N(u_k, 1) and
v_k ~ N(B_k, 1) entry by entry. Its samples are x ~ N(v_k, Sigma) with Sigma_jj = j^-1.2 and
y = argmax(W_k x + b_k). As in the authors' code alpha and beta are standard deviations.
"""

from typing import Any

import numpy as np

from compositefl.core.errors import (
    require_integer,
    require_nonnegative,
    wrong_value,
)
from compositefl.data.samples import Dataset, Samples


def generate(
    alpha: float = 1.0,
    beta: float = 1.0,
    clients: int = 30,
    samples: int | str = 100,
    features: int = 60,
    classes: int = 10,
    seed: int = 0,
    *,
    shared_means: bool = True,
    normalize: bool = False,
) -> list[Samples]:
    """One `Samples` a client.

    samples: of each client, or "lognormal" for the paper's sizes, 50 + floor(lognormal(4, 2)).
    classes: with 2, y is 1 where the second logit is the larger one: the sign of the difference
        of the logits is the label that binary logistic regression needs.
    shared_means: the paper's u_k and B_k are one number a client. Adding u_k to all of W_k and b_k
        shifts every logit alike, so alpha then leaves the labels as they are, and with a large beta
        all clients' inputs lie along one line. False draws u_k and B_k for every entry: alpha
        matters, and clients differ in direction.
    normalize: divide each x by its norm, after labelling. Off by default: the paper's data. Turn it
        on for large beta, where the smoothness constant of the loss grows as beta^2; with it the
        logistic loss is 1/4-smooth, so that a local step of 4 is stable.

    The sparse logistic regression of Zhang, Hu and Johansson, (50, 50) with local step 4 and server
    step 15, converges to machine precision with shared_means=False and normalize=True, and diverges
    with shared means.
    """
    require_nonnegative(alpha=alpha, beta=beta)
    require_integer(clients=clients, features=features)
    require_integer(2, classes=classes)
    if isinstance(samples, str) and samples != "lognormal":
        raise wrong_value(
            "samples", samples, "a whole number >= 1 or 'lognormal'", shown=repr(samples)
        )
    if samples != "lognormal":
        require_integer(samples=samples)
    rng = np.random.default_rng(seed)
    if samples == "lognormal":
        sizes = 50 + rng.lognormal(4, 2, int(clients)).astype(int)
    else:
        sizes = np.full(int(clients), int(samples))
    return [
        _client(rng, alpha, beta, size, int(features), int(classes), shared_means, normalize)
        for size in sizes
    ]


def _client(
    rng: np.random.Generator,
    alpha: float,
    beta: float,
    size: int,
    features: int,
    classes: int,
    shared_means: bool,
    normalize: bool,
) -> Samples:
    # one row more than features: the last is the bias b_k
    entries = () if shared_means else (features + 1, classes)
    weights = rng.normal(rng.normal(0, alpha, entries), 1, (features + 1, classes))
    means = rng.normal(rng.normal(0, beta, () if shared_means else features), 1, features)
    scales = np.arange(1, features + 1) ** -0.6  # the square root of Sigma_jj
    x = means + scales * rng.normal(size=(size, features))
    y = np.argmax(x @ weights[:-1] + weights[-1], axis=1)
    if normalize:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    return Samples(x.astype(np.float32), y.astype(np.int32))


def load(**options: Any) -> Dataset:
    """All clients' samples, one client after the other. `partition.synthetic` keeps them apart."""
    parts = generate(**options)
    train = Samples(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))
    return Dataset("synthetic", train, None, options.get("classes", 10))
