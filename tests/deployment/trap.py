"""A module of the kind that an attacker would like to name. It notes what is called."""

import subprocess
from subprocess import run  # imported here, not defined here

from compositefl.models import Model
from tests.deployment.deployment_cases import lasso_model

SPRUNG = []


def spring(**given):
    """A function that was never meant to be named by others."""
    SPRUNG.append(given)


def not_a_model() -> Model:
    return {"a": subprocess.DEVNULL, "b": run}


def honest() -> Model:
    return lasso_model()
