"""federation.toml, site.toml and messages: what is wrong is named in one line."""

import dataclasses
import hashlib
import math

import numpy as np
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.deployment import Federation, Site
from compositefl.deployment.entries import Privacy
from compositefl.deployment.messages import decode, encode, pack, unpack
from compositefl.deployment.privacy import Gaussian
from compositefl.deployment.store import Entry, Store
from compositefl.models import Model
from tests.deployment.deployment_cases import FEATURES, Local, declare, lasso_model, text


def test_the_hash_is_that_of_the_file(tmp_path):
    path = tmp_path / "federation.toml"
    path.write_text(text())
    assert Federation.read(path).hash == hashlib.sha256(path.read_bytes()).hexdigest()


WRONG = {
    "rounds = 0": "rounds=0 must be a whole number >= 1",
    "rounds = 1.5": "rounds=1.5 must be a whole number",
    'rounds = "six"': "rounds='six' must be a whole number",
    "roundz = 3": "unknown entry 'roundz'; did you mean 'rounds'?",
    'dtype = "float16"': "dtype='float16' must be 'float32' or 'float64'",
    'weights = "big"': "weights='big' must be 'uniform' or 'size'",
    "minimum_sites = 5": "minimum_sites=5 is more than the 4 sites",
    "eval_gamma = -1.0": "eval_gamma=-1.0 must be",
    'regularizer = "l9:1"': "unknown regularizer 'l9'",
    'unpenalized = ["*intercept"]': "pattern '*intercept' matches no parameter; there are",
    'sites = ["a", "a"]': "must be different names",
    'sites = ["../a"]': "must be a name",
    "sites = 4": "must be a list of names",
    "seed = -1": "seed=-1 must be",
    "regularizer = 3": "regularizer=3 must be a name with numbers",
    f"more = {'[' * 3000}{']' * 3000}": "its lists or tables are too deep",
}
TABLE = """name = "t"
sites = ["a"]
rounds = 3
[data]
features = ["a", "b"]
target = "y"
labels = ["no", "yes"]
[model]
name = "logistic"
[algorithm]
name = "fednmap"
"""


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_entry(line):
    name = line.partition(" =")[0]
    lines = [x for x in text().splitlines() if not x.startswith(name + " =")]
    with pytest.raises(CompositeFLError) as error:
        declare("\n".join([line, *lines])).check()
    assert WRONG[line] in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "fednmap"', 'name = "fedmap"', "did you mean 'fednmap'"),
        ("1.0\ngamma", "1.0\ngama", "unknown [algorithm fednmap] entry 'gama'"),
        ("local_lr = 0.05", "local_lr = -1.0", "local_lr=-1.0 must be"),
        ("local_lr = 0.05", 'local_lr = "theory"', 'local_lr="theory": the theorem\'s constants'),
        ("lasso_model", "no_model", "unknown name in"),
        ("retries = 3", "retrys = 3", "unknown [network] entry 'retrys'"),
        ("retries = 3", "retries = -1", "[network] retries=-1"),
        ("round_timeout = 20.0", "round_timeout = [20.0]", "must be a single number"),
        ("retry_wait = 0.0", "retry_wait = [0.0]", "[network] retry_wait has shape (1,)"),
        ("round_timeout = 20.0", "round_timeout = 1e300", "at most 604800 seconds, a week"),
        ("retry_wait = 0.0", "retry_wait = 604801", "[network] retry_wait=604801 must be at most"),
        ("retries = 3", "join_timeout = 1e7", "[network] join_timeout=10000000.0 must be at"),
        ("retries = 3", "probe_timeout = 1e7", "[network] probe_timeout=10000000.0 must be at"),
        ("[network]", "[limits]\nlargest_number = [1e9]\n[network]", "[limits] largest_number"),
        ("[network]", "[privacy]\nclip = [1.0]\nnoise = 4.0\n[network]", "[privacy] clip has"),
        ("[network]", "[privacy]\nclip = 1.0\nnoise = [4.0]\n[network]", "[privacy] noise has"),
        ("seed = 5", "seed = 5\npath = [[0.1]]", "path has shape (1,); it must be a list of"),
        ("[algorithm]", "[algorithm", "not TOML"),
        ("seed = 5", "seed = " + 5000 * "5", "not TOML"),
    ],
)
def test_a_wrong_table(old, new, message):
    with pytest.raises(CompositeFLError) as error:
        declare(text().replace(old, new)).check()
    assert message in str(error.value)


def never(*_):
    raise AssertionError("the model was made")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hidden = [5]", "hidden = [100000000000]", "its 800,000,000,003 parameters take 6,"),
        ("hidden = [5]", "hidden = [4611686018427387904]", "its 36,893,488,147,419,103,235 param"),
        ("input_shape = [4]", "input_shape = [1000000000000]", "its 5,000,000,000,023 parameters"),
        ("retries = 3", "largest_message_mb = 1", "largest_message_mb=1 of [network]"),
    ],
)
def test_a_model_that_no_message_holds_is_refused_before_it_is_made(monkeypatch, old, new, said):
    """The attack: one line of a federation kept every machine that read it busy for ever."""
    monkeypatch.setattr(Federation, "start", never)
    entries = text(model="mlp").replace(old, new)
    if old == "retries = 3":
        entries = entries.replace("hidden = [5]", "hidden = [20000]")  # 1.2 MB
    with pytest.raises(CompositeFLError) as error:
        declare(entries).check()
    assert said in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).startswith("[model] mlp: its ")


def untraceable_model() -> Model:
    """A start that NumPy draws from the key."""
    import jax

    def init(key):
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
        return {"w": rng.normal(size=FEATURES)}

    return dataclasses.replace(lasso_model(), init=init)


def test_a_start_that_cannot_be_traced():
    named = "tests.deployment.deployment_cases:lasso_model"
    own = text().replace(named, f"{__name__}:untraceable_model")
    assert Federation.parse(own).trusting([__name__]).check().hash


def test_whole_numbers_may_be_written_with_a_point():
    """retries = 3.0 was accepted, and the server's job died of it."""
    network = "[network]\nretries = 3.0\nregroup_after = 2.0\nlargest_message_mb = 9.0\n"
    given = declare(text(rounds=6.0, seed=5.0, minimum_sites=3.0, network=network)).check()
    numbers = given.rounds, given.seed, given.minimum_sites
    numbers += given.network.retries, given.network.regroup_after, given.network.limit
    assert all(type(number) is int for number in numbers)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["a", "b"]', "3", "[data] features=3 must be a list of names"),
        ('["a", "b"]', '"ab"', "[data] features='ab' must be a list of names"),
        ('["a", "b"]', '["a", ""]', "must not be empty words"),
        ('target = "y"', "target = 3", "[data] target=3 must be a column"),
        ('target = "y"', "target = [1]", "[data] target=[1] must be a column"),
        ('["no", "yes"]', '["no", "no"]', "must be different words"),
        ('labels = ["no", "yes"]\n', "", "[model] logistic: classes is missing"),
        ('"logistic"', '"logit"', "unknown model 'logit'; did you mean 'logistic'"),
    ],
)
def test_a_wrong_table_of_data(old, new, message):
    assert Federation.parse(TABLE).check()
    with pytest.raises(CompositeFLError) as error:
        Federation.parse(TABLE.replace(old, new)).check()
    assert message in str(error.value)


def test_a_model_of_numbers_needs_no_classes():
    text = TABLE.replace('labels = ["no", "yes"]\n', "").replace("logistic", "linear")
    assert Federation.parse(text).check().make_model().classes is None


@pytest.mark.parametrize("extra", ["", "[privacy]\nclip = 1.0\nnoise = 2.0\n"])
def test_numbers_cannot_set_themselves_without_the_objective(extra):
    with pytest.raises(CompositeFLError) as error:
        declare(text("auto", eval_every=0, extra=extra)).check()
    told = str(error.value)
    assert "[algorithm fednmap] lacks local_steps, local_lr, gamma under " in told
    assert ("[privacy]" in told) == bool(extra) and "\n" not in told


def test_a_method_that_needs_everyone_refuses_a_lower_minimum():
    with pytest.raises(CompositeFLError, match="za1 needs all 4 sites in every round, because"):
        declare(text("za1", minimum_sites=3)).check()
    assert Federation.parse(text("za1")).minimum == 4
    assert Federation.parse(text()).minimum == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('name = "n"', "either [train] or function"),
        ('nam = "n"', "did you mean 'name'"),
        ('name = "n"\naccept = ["x"]\nfunction = "a:b"', "accept must be a list of sha256"),
        ('name = "n"\n[train]\nfile = "no.csv"\nx = ["a"]\ny = "b"', "does not exist"),
        ('name = "n"\n[train]\nfile = "a.npz"\ny = "b"', "[train] lacks x"),
        ('name = "n"\n[train]\nfile = "a.npz"\nx = "z"\ny = "b"', "has no array 'z'"),
        ('name = "n"\n[train]\nfile = "a.npz"\nx = "w"\ny = "b"', "it must hold numbers"),
        ('name = "n"\nfunction = "a:b"\n[columns]\na = 1', "name in the federation = name here"),
    ],
)
def test_a_wrong_site(tmp_path, content, message):
    np.savez(tmp_path / "a.npz", a=np.ones((1, 1)), b=np.zeros(1), w=np.array([["x"]]))
    (tmp_path / "site.toml").write_text(content)
    with pytest.raises(CompositeFLError) as error:
        Site.read(tmp_path / "site.toml").load()
    assert message in str(error.value)


def test_messages_keep_arrays_and_values():
    tree = {"a": np.arange(6.0).reshape(2, 3), "b": {"c": np.float32(2)}, "n": np.int32(7)}
    data = encode({"round": 3, "accepted": {"x": -1}}, pack("upload", tree))
    message = decode(data, len(data))
    back = unpack("upload", message.arrays, _shaped(tree))
    assert message.values == {"round": 3, "accepted": {"x": -1}}
    for one, other in zip(_leaves(tree), _leaves(back), strict=True):
        assert one.dtype == other.dtype and np.array_equal(one, other)
    with pytest.raises(CompositeFLError, match="above the limit"):
        decode(data, len(data) - 1)


@pytest.mark.parametrize(
    "data", [b"", b"x" * 100, b"\xff" * 8 + b"{}", b"\x02" + b"\0" * 7 + b"{}"]
)
def test_what_is_not_a_message_is_refused(data):
    with pytest.raises(CompositeFLError, match="not a message"):
        decode(data, 1000)


def test_the_store_commits_by_acknowledgement_only(tmp_path):
    h = np.zeros(2)
    store = Store(tmp_path / "s", {"h": h}, {"y": h})

    def keep(round_, number):
        with store.locked():
            store.keep(Entry(round_, "d", 1, 1, {"y": h}, {"h": h + number}))

    store.settle(-1, 0)
    keep(0, 1.0)
    store.settle(-1, 1)  # not acknowledged: the initial state counts
    assert store.committed.round == -1
    keep(1, 2.0)
    again = Store(tmp_path / "s", {"h": h}, {"y": h})  # a new process
    again.settle(1, 2)
    assert again.committed.round == 1 and again.committed.state["h"][0] == 2.0
    with pytest.raises(CompositeFLError, match="state of round 7, the site has 1"):
        again.settle(7, 8)
    with pytest.raises(CompositeFLError, match="came after"):
        again.settle(1, 1)


def test_noise_and_its_privacy_loss(tmp_path):
    """Uploads are noisy, evaluations are refused, and the loss is the accountant's."""
    pytest.importorskip("dp_accounting")
    extra = "[privacy]\nclip = 1.0\nnoise = 2.0\n"
    declared = text("fedda", rounds=4, eval_every=0, extra=extra)
    local = Local(tmp_path, declared)
    result = local.coordinator.run()
    assert not local.failures()
    # 4 Gaussian mechanisms of noise multiplier 1 are one of multiplier 1/2
    assert 9 < result.config["epsilon"] < 14
    again = Local(tmp_path / "b", declared).coordinator.run()
    assert not np.array_equal(result.params["w"], again.params["w"])  # not from the seed


class Silence:
    """Draws no noise: what is sent is what was clipped."""

    def normal(self, _mean, _deviation, shape):
        return np.zeros(shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [1.0, 0.1, 3e-5, 1e6])
@pytest.mark.parametrize("size", [1, 2, 3, 1000, 2**17 + 1])
def test_what_is_sent_is_never_longer_than_the_clip(dtype, clip, size):
    """The norm was rounded in the upload's type, and numbers up: 1.0000001 instead of 1."""
    gaussian = Gaussian(Privacy(clip=clip, noise=4.0))
    gaussian.random = Silence()
    rng = np.random.default_rng(size)
    last = {np.float32: 1e38, np.float64: 1e308}[dtype]
    for scale in (clip, 1.7 * clip / size**0.5, 1e3, 1e18, last, 1e-40):
        for drawn in (rng.normal(size=size).clip(-1, 1), np.full(size, 1.0), np.full(size, 0.7)):
            upload = {"a": (scale * drawn).astype(dtype), "b": np.full(3, scale, dtype)}
            sent = gaussian(upload)
            given, norm = (
                math.hypot(*np.concatenate([x[n] for n in "ab"]).tolist()) for x in (upload, sent)
            )
            assert norm <= clip and norm >= (1 - 1e-6) * min(clip, given)
            assert all(sent[n].dtype == dtype for n in sent)
            if given <= 0.999 * clip:
                assert all(np.array_equal(sent[n], upload[n]) for n in sent)


def test_noise_leaves_server_and_sites_in_agreement(tmp_path):
    """FedNMap's h_i follows the upload that was sent, so their mean stays cbar."""
    pytest.importorskip("dp_accounting")
    extra = "[privacy]\nclip = 1.0\nnoise = 0.5\n"
    states = []
    for name, more in (("noisy", extra), ("exact", "")):
        local = Local(tmp_path / name, text("fednmap", rounds=6, eval_every=0, extra=more))
        local.coordinator.run()
        assert not local.failures()
        assert local.drift() < 1e-12
        states.append(local.committed())
    for site, state in states[0].items():  # the noise is in them
        assert np.abs(state.h.tree["w"] - states[1][site].h.tree["w"]).max() > 0.05


@pytest.mark.parametrize(
    ("algorithm", "entries", "message"),
    [
        ("scaffold", {"eval_every": 0}, "does not allow noise"),  # a state at its sites
        ("mime", {"eval_every": 0}, "does not allow noise"),  # sends a full gradient too
        ("fedda", {}, "needs eval_every = 0"),
    ],
)
def test_noise_that_would_not_protect_is_refused(algorithm, entries, message):
    extra = "[privacy]\nclip = 1.0\nnoise = 2.0\n"
    with pytest.raises(CompositeFLError, match=message):
        declare(text(algorithm, extra=extra, **entries)).check()


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def _shaped(tree):
    import jax

    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a), a.dtype), tree)
