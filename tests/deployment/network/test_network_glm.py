"""A generalised linear model over real processes: the coefficients of the simulation."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")

from compositefl import linear_model
from compositefl.deployment import Federation, supervise
from compositefl.deployment.flare import SERVER_FILE
from tests.deployment.test_deployment_glm import declare, frame

SITES = ("north", "east", "south", "west")


@pytest.mark.full
def test_a_path_with_ten_folds_equals_the_simulation(net):
    net.heal()
    features = list(load_breast_cancer().feature_names)
    table = frame(features)
    table["site"] = np.array(SITES)[np.arange(len(table)) % 4]
    glm = 'family = "binomial"\ncv = 10\nalphas = 100'
    text = declare(glm, rounds=1000, features=features).replace(
        '["north", "south", "west"]', json.dumps(SITES)
    )
    federation = Federation.parse(text).check()
    (net.nodes["localhost"] / "local" / SERVER_FILE).write_text(
        f'accept = ["{federation.hash}"]\nmodules = []\n'
    )
    for site in SITES:
        local = net.nodes[site] / "local"
        (local / "fault.json").unlink(missing_ok=True)
        table[table["site"] == site].to_csv(local / "data.csv", index=False)
        (local / "site.toml").write_text(
            f'name = "{site}"\naccept = ["{federation.hash}"]\n[train]\nfile = "data.csv"\n'
        )
    record = supervise.RunFolder.create(net.root, "glm", federation)
    supervise.submit(net.admin, record, federation, net.flare.write_job, net.say)
    outcome = supervise.follow(net.admin, record, net.flare.write_job, net.say, poll=0.3)
    there = linear_model.load_model(outcome / "model.json")
    here = linear_model.LogisticRegressionCV(cv=10, alphas=100, random_state=3).fit(
        table[features], table["outcome"], sites=table["site"]
    )
    assert there.alpha_ == pytest.approx(here.alpha_, rel=1e-10)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-10, atol=1e-10)
    assert json.loads((outcome / "config.json").read_text())["stopped"] == "converged"
