"""A run whose numbers do not suit says so, in its events, its result and its exit code."""

from tests.deployment.deployment_cases import Local, text


def show(folder):
    from compositefl.cli.deploy import _show

    return _show(folder)


def test_a_psi_above_its_start_is_told_loudly(tmp_path, capsys):
    """It was "stopped: rounds" and exit code 0, with psi 388 after 0.69."""
    declared = text(rounds=3).replace("local_lr = 0.05", "local_lr = 2.0")
    local = Local(tmp_path, declared)
    result = local.coordinator.run()
    assert result.stopped == "rounds" and result.history.psi.iloc[-1] > result.history.psi.iloc[0]
    stop = local.events[-1]
    assert stop["event"] == "stop" and stop["bad"] and "above its start" in stop["ended"]
    result.save(tmp_path / "out")
    code = show(tmp_path / "out")
    told = capsys.readouterr()
    assert code != 0
    assert told.err.startswith("WARNING: this model is no solution. ended with psi ")
    assert "Smaller steps" in told.err


def test_a_good_run_is_told_quietly(tmp_path, capsys):
    local = Local(tmp_path, text(rounds=3))
    result = local.coordinator.run()
    assert not local.events[-1]["bad"]
    result.save(tmp_path / "out")
    assert show(tmp_path / "out") == 0 and not capsys.readouterr().err
