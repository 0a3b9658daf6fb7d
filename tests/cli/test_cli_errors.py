"""A wrong value gets one line that names the option, the value and what is allowed."""

import pytest

CASES = [  # options, what the message must say
    ("--local-lr -1", ["--local-lr -1.0", "> 0"]),
    ("--local-lr nan", ["--local-lr nan", "> 0"]),
    ("--server-lr 0", ["--server-lr 0.0", "> 0"]),
    ("--local-steps 0", ["--local-steps 0", ">= 1"]),
    ("--local-steps 2.5", ["--local-steps", "'2.5' is not a whole number"]),
    ("--local-lr fast", ["--local-lr", "'fast' is not a number"]),
    ("--gamma 5 --regularizer mcp:0.1,5", ["--gamma 5.0", "(0, 5)"]),
    (
        "--algorithm fedcanon --regularizer mcp:0.1,0.2",
        ["--local-lr * --server-lr * --local-steps = 0.2", "(0, 0.2)"],
    ),
    ("--gamma -1", ["--gamma -1.0", "> 0"]),
    ("--eval-gamma 9 --regularizer mcp:0.1,5", ["--eval-gamma 9.0", "(0, 5)"]),
    ("--eval-gamma 0", ["--eval-gamma 0.0", "> 0"]),
    ("--lr 0.1", ["--lr 0.1", "fednmap has", "--gamma"]),
    ("--composite none", ["--composite none", "fednmap has", "--server-lr"]),
    ("--set momentum=0.9", ["--set momentum=0.9", "fednmap has"]),
    ("--set momentum", ["--set momentum", "name=value"]),
    ("--set gamma=4 --gamma 4", ["--set gamma=4", "twice"]),
    ("--set gamma=big", ["--gamma big", "number"]),
    ("--algorithm fedmid --set prox-at=nowhere", ["--set prox_at='nowhere'", "everywhere"]),
    ("--algorithm fedavg --regularizer l1:1", ["FedAvg", "--composite"]),
    ("--algorithm fedavg --composite both", ["--composite", "both", "server-prox"]),
    (
        "--algorithm fedcanon2 --participation 0.5",
        ["--participation 0.5", "FedCanonII", "all clients"],
    ),
    (
        "--algorithm fedcanon2 --dropout 0.1",
        ["error: --dropout 0.1: FedCanonII needs all clients"],
    ),
    (
        "--algorithm fedcanon2 --participation 0.5 --replacement",
        ["error: --participation 0.5 --replacement: FedCanonII needs all clients"],
    ),
    (
        "--algorithm scaffnew --composite server-prox",
        ["error: --composite server-prox: the prox", "; it needs --set random=false\n"],
    ),
    (
        "--algorithm za1 --regularizer mcp:0.1,0.15 --server-lr 0.1",
        ["error: --local-steps * --local-lr = 0.2 must be in"],
    ),
    (
        "--algorithm fednmap --local-steps auto --local-lr theory",
        ["error: --local-steps auto must be a number with --local-lr theory\n"],
    ),
    (
        "--algorithm fedmid --local-lr auto --set prox-at=nowhere",
        ["--set prox_at='nowhere'", "everywhere"],
    ),
    ("--regularizer group-lasso:0.1", ["leave it out with --unpenalized 'dense0/bias'\n"]),
    ("--data-folder /nowhere --dataset mnist", ["error: --data-folder /nowhere is not a folder"]),
    ("--data-folder /tmp", ["error: --data-folder /tmp does not go here: dataset 'digits' needs"]),
    ("--data-folder /tmp --dataset synthetic", ["does not go here: dataset 'synthetic' needs no"]),
    ("--algorithm fednmpa", ["--algorithm fednmpa", "did you mean 'fednmap'"]),
    ("--dataset digit", ["--dataset digit", "did you mean 'digits'"]),
    ("--model mpl", ["--model mpl", "did you mean 'mlp'"]),
    ("--partition labels", ["--partition labels", "did you mean 'label'"]),
    ("--activation sigmod", ["--activation sigmod", "did you mean 'sigmoid'"]),
    ("--regularizer elasticnet:1,1", ["--regularizer elasticnet:1,1", "elastic-net"]),
    ("--regularizer l1", ["--regularizer l1", "l1:weight"]),
    ("--regularizer l1:-1", ["--regularizer l1:-1", "weight=-1.0", ">= 0"]),
    ("--regularizer l1:much", ["--regularizer l1:much", "not a number"]),
    ("--regularizer l1:1 --unpenalized */bais", ["--unpenalized */bais", "dense0/bias"]),
    ("--regularizer zero --unpenalized */bias", ["--unpenalized", "--regularizer"]),
    ("--clients 5000", ["--clients 5000", "1437 samples"]),
    ("--clients 0", ["--clients 0", ">= 1"]),
    ("--clients few", ["--clients", "'few' is not a whole number"]),
    ("--hidden 4,x", ["--hidden 4,x", "64,32"]),
    ("--hidden 0", ["--hidden 0", ">= 1"]),
    ("--model cnn-zhang", ["--model cnn-zhang --hidden 4", "mlp"]),
    ("--partition dirichlet", ["--partition dirichlet", "--alpha"]),
    ("--partition dirichlet --alpha -1", ["--alpha -1", "> 0"]),
    ("--alpha 1", ["--alpha 1.0", "label has no alpha", "dirichlet"]),
    ("--beta 1", ["--beta 1.0", "synthetic"]),
    ("--partition synthetic", ["--partition synthetic", "--dataset digits"]),
    ("--data-option classes=3", ["--data-option classes=3", "digits"]),
    ("--dataset synthetic --data-option clases=3", ["clases=3", "classes"]),
    ("--dataset synthetic --beta -1", ["--dataset synthetic", "beta=-1.0", ">= 0"]),
    ("--rounds 0", ["--rounds 0", ">= 1"]),
    ("--rounds ten", ["--rounds", "'ten' is not a whole number"]),
    ("--batch-size 0", ["--batch-size 0", ">= 1"]),
    ("--trials 0", ["--trials 0", ">= 1"]),
    ("--seed -1", ["--seed", "-1", "0..4294967295"]),
    ("--eval-every -2", ["--eval-every -2", ">= 1"]),
    ("--participation 1.5", ["--participation 1.5", "(0, 1]"]),
    ("--participation 40", ["--participation 40", "1..4"]),
    ("--participation 1", ["--participation 1", "1.0"]),
    ("--participation most", ["--participation most", "share"]),
    ("--dropout 1.5", ["--dropout 1.5", "[0, 1)"]),
    ("--weights equal", ["--weights equal", "uniform"]),
    ("--dtype float16", ["--dtype float16", "float32"]),
    ("--tolerance -1", ["--tolerance -1.0", "> 0"]),
    ("--resume", ["--resume", "--checkpoint"]),
    ("--out /dev/null", ["--out /dev/null", "folder"]),
    ("--out /dev/null/sub", ["--out /dev/null/sub", "file"]),
    ("--checkpoint /dev/null/state", ["--checkpoint /dev/null/state", "file"]),
    ("--checkpoint /", ["--checkpoint /", "folder"]),
    ("--checkpoint {damaged} --resume", ["--checkpoint", "damaged"]),
    ("--round 5", ["--round", "--rounds"]),
    ("--out", ["--out", "argument"]),
    ("extra", ["extra"]),
]


@pytest.mark.parametrize(("options", "parts"), CASES, ids=[options for options, _ in CASES])
def test_run(options, parts, run, tmp_path):
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    before = sorted(tmp_path.iterdir())
    words = options.format(damaged=tmp_path / "damaged.npz").split()
    answer = run("--out", tmp_path / "out", *words)
    assert answer.code == 2
    assert answer.err.startswith("error: ") and answer.err.count("\n") == 1, answer.err
    for part in parts:
        assert part in answer.err
    assert answer.out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_commands(cli):
    assert cli("rum").err == "error: No such command 'rum'. Did you mean 'run'?\n"
    missing = cli("compare")
    assert missing.code == 2
    assert missing.err == "error: Missing option '--algorithms'.\n"
    nothing = cli()
    assert (nothing.code, nothing.err) == (2, "")
    assert "compare" in nothing.out  # the help


def test_no_data_file(cli, tmp_path, monkeypatch):
    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("compositefl.data.files._download", offline)
    monkeypatch.setattr("compositefl.data.files.SYSTEM_FOLDERS", ())
    monkeypatch.setenv("COMPOSITEFL_DATA", str(tmp_path))
    monkeypatch.setattr("compositefl.data.files._cache", lambda: tmp_path)
    answer = cli(
        *["run", "--algorithm", "pgd", "--lr", "1", "--dataset", "a9a", "--data-folder"], tmp_path
    )
    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1
    assert "--data-folder" in answer.err
