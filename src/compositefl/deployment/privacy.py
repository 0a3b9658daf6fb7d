"""Optional noise on uploads, and what it is worth.

A site clips each upload to the norm C and adds Gaussian noise of standard deviation noise * C.
Whatever a site's data are, a clipped upload lies in a ball of radius C, so exchanging the whole
dataset of a site moves it by at most 2 C: the noise hides the dataset as a whole, from the server
too. The privacy loss adds up over the uploads that a site has made.
"""

import secrets
from collections.abc import Iterable

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Upload
from compositefl.deployment.entries import Privacy


class Gaussian:
    """Clips and adds noise from the operating system's randomness, never from the run's seed."""

    def __init__(self, privacy: Privacy):
        self.privacy = privacy
        self.random = np.random.default_rng(secrets.randbits(128))

    def __call__(self, upload: Upload) -> Upload:
        """A noisy upload of norm at most `clip` before the noise."""
        clip, noise = self.privacy.clip, self.privacy.noise

        def noisy(a: np.ndarray) -> np.ndarray:
            drawn = self.random.normal(0.0, noise * clip, a.shape)
            return np.asarray(a + drawn, a.dtype)

        return jax.tree.map(noisy, clipped(upload, clip))


def clipped(upload: Upload, clip: float) -> Upload:
    """The upload, scaled down to the norm `clip` where it is longer, in its own type.

    Never above `clip`, not by rounding either: the norm is computed in float64 and taken as large
    as its rounding allows, and numbers are rounded towards zero. Numbers are divided by the
    largest, whose square may be beyond all numbers.
    """
    leaves = [np.asarray(a, np.float64) for a in jax.tree.leaves(upload)]
    peak = float(np.max([np.abs(a).max(initial=0.0) for a in leaves], initial=0.0))
    if not np.isfinite(peak):
        raise CompositeFLError("the upload contains NaN or infinity")
    if not peak:
        return upload
    squares = sum(float(np.sum(np.square(a / peak))) for a in leaves)
    rounding = (sum(a.size for a in leaves) + 8) * float(np.finfo(np.float64).eps)
    longest = float(np.sqrt(squares)) * (1 + rounding)
    if peak * longest <= clip:
        return upload

    def scaled(a: np.ndarray) -> np.ndarray:
        exact = np.asarray(a, np.float64) / peak * (clip / longest)
        rounded = exact.astype(a.dtype)
        return np.where(abs(rounded) > abs(exact), np.nextafter(rounded, rounded * 0), rounded)

    return jax.tree.map(scaled, upload)


def epsilon(privacy: Privacy, uploads: int) -> float:
    """The epsilon of (epsilon, delta)-differential privacy of one site after its uploads.

    Neighbours: the site's dataset replaced by any other. From the Rényi accountant of Google's
    dp-accounting.
    """
    return epsilon_of([(privacy.noise, uploads)], privacy.delta)


def epsilon_of(given: Iterable[tuple[float, int]], delta: float) -> float:
    """The epsilon of several (noise, uploads) together."""
    given = [(noise, uploads) for noise, uploads in given if uploads]
    if not given:
        return 0.0
    try:
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise CompositeFLError(
            "the privacy loss needs pip install 'compositefl[privacy]'"
        ) from None
    accountant = RdpAccountant()
    for noise, uploads in given:
        event = dp_accounting.GaussianDpEvent(noise / 2)  # sensitivity 2 * clip
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, uploads))
    return float(accountant.get_epsilon(delta))
