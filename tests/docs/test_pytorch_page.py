"""The model that the page on PyTorch declares for a network is one that a node accepts."""

import sys
from types import ModuleType

import pytest

import compositefl as cfl
from compositefl.deployment.trust import own_factory
from tests.docs.test_code_blocks import ROOT, blocks


def test_the_declared_model_is_accepted(monkeypatch):
    torch = pytest.importorskip("torch", reason="needs pip install 'compositefl[torch]'")
    (code,) = [b for b in blocks(ROOT / "docs" / "pytorch.md", "python") if "def model(" in b]
    module = ModuleType("hospital_models")
    module.__dict__.update(cfl=cfl, torch=torch, nn=torch.nn)
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "hospital_models", module)
    made = own_factory("hospital_models:model", cfl.models.Model, ["hospital_models"])
    assert isinstance(made(), cfl.models.Model)
