"""A module of the kind that an attacker would like to name. It notes what is called."""

import subprocess
from subprocess import run  # imported here, not defined here

from compositefl.models import Model, build  # noqa: F401  (a library's factory, not ours)
from compositefl.regularizers import L1
from tests.deployment.deployment_cases import lasso_model

SPRUNG = []


def spring(**given):
    """A function that was never meant to be named by others."""
    SPRUNG.append(given)


def not_a_model() -> Model:
    return {"a": subprocess.DEVNULL, "b": run}


def honest() -> Model:
    return lasso_model()


def _private() -> Model:
    return lasso_model()


class Harsh(L1):
    """A regulariser that says when it is made."""

    def __init__(self, *numbers):
        SPRUNG.append(numbers)
