"""Features are matched by name; what does not fit is told in full here and by kind there."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.deployment import Federation, Site, Worker
from compositefl.deployment.transport import PrivateError
from tests.deployment.deployment_cases import Local, gap, simulate

SITES = ("north", "east", "south", "west")
NAMES = ["age", "bmi", "dose", "smoker"]
FEDERATION = """name = "test"
sites = ["north", "east", "south", "west"]
rounds = 5
seed = 5
dtype = "float64"
eval_every = 5
{top}
[data]
features = ["age", "bmi", "dose", "smoker"]
target = "ill"
{data}
[model]
name = "logistic"
classes = 2
{model}
[algorithm]
name = "fednmap"
local_steps = 3
local_lr = 0.05
gamma = 0.5
[network]
retry_wait = 0.0
retries = 1
"""


def declared(top="", data="", model=""):
    return FEDERATION.format(top=top, data=data, model=model)


def frames(seed=0):
    """A table for each site; the columns of different scale, so that their order matters."""
    rng = np.random.default_rng(seed)
    made = []
    for size in (12, 9, 10, 14):
        x = rng.normal(size=(size, 4)) * [1.0, 2.0, 0.5, 0.0]
        x[:, 3] = rng.random(size) < 0.5
        ill = (x @ [1.0, -1.0, 2.0, 1.0] > 0).astype(int)
        made.append(pd.DataFrame(x, columns=NAMES).assign(ill=ill, ward="A7"))
    return made


class Tables(Local):
    """A federation whose sites have files with columns."""

    def __init__(self, folder, text, tables, lines=None, kind="csv"):
        self.folder, self.federation = folder, Federation.parse(text)
        self.sites, self.workers, self.events, self.fault = {}, {}, [], None
        for name, frame in zip(SITES, tables, strict=True):
            here = folder / name
            here.mkdir(parents=True)
            getattr(frame, f"to_{kind}")(here / f"d.{kind}", index=False)
            top, train = (lines or {}).get(name, ("", ""))
            (here / "site.toml").write_text(
                f'name = "{name}"\naccept = ["{self.federation.hash}"]\n{top}\n'
                f'[train]\nfile = "d.{kind}"\n{train}\n'
            )
            self.sites[name] = Site.read(here / "site.toml")
            self.workers[name] = Worker(self.sites[name], here / "state")
        self.coordinator = self.new_coordinator()


def expected(federation, tables):
    data = [(t[NAMES].to_numpy(float), t.ill.to_numpy(np.int32)) for t in tables]
    return simulate(federation, data).params


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_in_another_order_give_the_same_model(tmp_path, kind):
    """The attack, or the accident: another order of columns gave a wrong model silently."""
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    tables = frames()
    mixed = [t[list(np.random.default_rng(i).permutation(t.columns))] for i, t in enumerate(tables)]
    lines = {"east": ("", 'x = ["smoker", "dose", "bmi", "age"]\ny = "ill"')}
    local = Tables(tmp_path, declared(), mixed, lines, kind)
    result = local.coordinator.run()
    assert not local.failures()
    assert gap(result.params, expected(local.federation, tables)) < 1e-10


def test_a_site_may_call_its_columns_otherwise(tmp_path):
    tables = frames()
    own = [tables[0].rename(columns={"age": "AGE_Y", "ill": "outcome"}), *tables[1:]]
    lines = {"north": ("", '[columns]\nage = "AGE_Y"\nill = "outcome"')}
    local = Tables(tmp_path, declared(), own, lines)
    result = local.coordinator.run()
    assert not local.failures()
    assert gap(result.params, expected(local.federation, tables)) < 1e-10


def in_words(frame):
    return frame.assign(smoker=np.where(frame.smoker, "yes", "no"))


CATEGORIES = 'categories = {smoker = ["no", "yes"]}'


def test_categories_are_coded_at_the_sites(tmp_path):
    tables = frames()
    own = [in_words(t) for t in tables]
    own[0] = own[0].rename(columns={"smoker": "smokes"}).assign(smoker=7)  # something else
    lines = {
        "north": ("", '[columns]\nsmoker = "smokes"'),
        "east": ("", 'x = ["smoker", "dose", "bmi", "age"]'),
    }
    local = Tables(tmp_path, declared(data=CATEGORIES), own, lines)
    assert local.federation.data.features == ("age", "bmi", "dose", "smoker=yes")
    result = local.coordinator.run()
    assert not local.failures()
    assert gap(result.params, expected(local.federation, tables)) < 1e-10


def test_other_values_of_categories_are_told_at_the_site_alone(tmp_path):
    tables = [in_words(t) for t in frames()]
    tables[1].loc[2, "smoker"] = "formerly"
    local = Tables(tmp_path, declared(data=CATEGORIES), tables)
    with pytest.raises(PrivateError, match="'smoker' holds 'formerly', which is none of no, yes"):
        local.sites["east"].load(local.federation.data, 2)
    local.coordinator.run()
    assert all("values that the federation does not name" in f for f in local.failures())
    assert local.failures() and "formerly" not in str(local.failures())
    tables[1] = tables[1].drop(columns="smoker")
    local = Tables(tmp_path / "again", declared(data=CATEGORIES), tables)
    with pytest.raises(PrivateError, match="lacks 'smoker'"):
        local.sites["east"].load(local.federation.data, 2)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('categories = {ward = ["a", "b"]}', "unknown feature in categories 'ward'"),
        ('categories = {smoker = ["yes"]}', "smoker must be a list of two or more words"),
        (f'kinds = {{smoker = "binary"}}\n{CATEGORIES}', "smoker has categories; it has no kind"),
        ('categories = ["smoker"]', "must be lists of words by column"),
    ],
)
def test_wrong_categories_of_a_federation(data, text):
    with pytest.raises(CompositeFLError, match=text):
        Federation.parse(declared(data=data))


def without(frame):
    return frame.drop(columns="bmi")


def text_feature(frame):
    return frame.assign(smoker=["yes", "no"] * (len(frame) // 2) + ["yes"] * (len(frame) % 2))


def gap_in(frame):
    return frame.assign(bmi=frame.bmi.where(frame.index > 0))


def float_labels(frame):
    return frame.assign(ill=frame.ill.astype(float))


def text_labels(frame):
    return frame.assign(ill=np.where(frame.ill, "Smith", "Jones"))


WRONG = {
    "missing": (without, "", "lacks 'bmi'", "its data lack 1 of the 5 columns"),
    "named": (
        lambda f: f,
        'x = ["age", "bmi", "dose", "smoker", "ward"]',
        "names 'ward', which the federation does not",
        "names 1 columns that the federation does not and lacks 0",
    ),
    "fewer": (lambda f: f, 'x = ["age", "bmi", "dose"]', "leaves out 'smoker'", "and lacks 1"),
    "type": (text_feature, "", "'smoker' (such as 'yes')", "1 of its columns hold text"),
    "gap": (gap_in, "", "'bmi' (1 row)", "missing or infinite values"),
    "float labels": (float_labels, "", "holds floats, such as", "its labels are floats, whole"),
    "text labels": (text_labels, "", "holds text, such as", "its labels are text, whole numbers"),
    "no file": (lambda f: f, 'file = "secret.csv"', "secret.csv", "its data cannot be read"),
    "binary": (
        lambda f: f.assign(smoker=f.smoker + 1),
        "",
        "smoker must be binary, it has 1 to 2",
        "a column that the federation declares as binary is not",
    ),
}
SECRETS = ("Smith", "secret", "ward", "'bmi'", "AGE")


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_told(tmp_path, name):
    change, train, here, there = WRONG[name]
    tables = frames()
    tables[1] = change(tables[1])
    lines = {"east": ("", train)}
    if train.startswith("file"):
        lines = {}
    local = Tables(tmp_path, declared(data='kinds = {smoker = "binary"}'), tables, lines)
    if train.startswith("file"):
        broken = dataclasses.replace(local.sites["east"], train={"file": "secret.csv"})
        local.sites["east"] = broken
        local.restart("east")
    with pytest.raises(PrivateError) as error:
        local.sites["east"].load(local.federation.data, 2)
    assert here in str(error.value) and "\n" not in str(error.value)
    result = local.coordinator.run()
    assert result.rounds == 5  # the others go on
    (told,) = {f.partition(": ")[2] for f in local.failures()}
    assert there in told and "its log says more" in told
    assert not [secret for secret in SECRETS if secret in told]
    assert all(f.startswith("east hello") for f in local.failures())


def test_labels_in_words_are_matched_by_name(tmp_path):
    tables = frames()
    words = [t.assign(ill=np.where(t.ill, "yes", "no")) for t in tables]
    local = Tables(tmp_path, declared(data='labels = ["no", "yes"]'), words)
    result = local.coordinator.run()
    assert not local.failures()
    assert gap(result.params, expected(local.federation, tables)) < 1e-10


def test_a_table_needs_names_in_the_federation(tmp_path):
    start = declared().partition("[data]")[0]
    text = start + 'batch_size = 4\n[model]\ninput_shape = [4]\nname = "logistic"\nclasses = 2'
    text += declared().partition("classes = 2")[2]
    local = Tables(tmp_path, text, frames(), dict.fromkeys(SITES, ("", 'x = ["age"]\ny = "ill"')))
    local.coordinator.run()
    assert all("the federation names no features in [data]" in f for f in local.failures())
    assert len(local.failures()) >= 4


def test_arrays_and_functions_need_names_too(tmp_path):
    (frame, *_), data = frames(), Federation.parse(declared()).data
    site = Site("n", (), tmp_path, train={"file": "d.npz", "x": "x", "y": "y", "names": "names"})
    order = ["smoker", "age", "dose", "bmi"]
    arrays = {"x": frame[order].to_numpy(float), "y": frame.ill.to_numpy()}
    np.savez(tmp_path / "d.npz", names=np.array(order), **arrays)
    x, y = site.load(data, 2)[0]
    np.testing.assert_array_equal(x, frame[NAMES].to_numpy(float))
    assert y.dtype == np.int32
    nameless = dataclasses.replace(site, train={"file": "d.npz", "x": "x", "y": "y"})
    with pytest.raises(PrivateError, match="x, y and names"):
        nameless.load(data, 2)
    here = "tests.deployment.test_deployment_columns"
    returned = Site("n", (), tmp_path, function=f"{here}:mixed_up")
    np.testing.assert_array_equal(returned.load(data, 2)[0].x, frame[NAMES].to_numpy(float))
    with pytest.raises(PrivateError, match="must return tables"):
        Site("n", (), tmp_path, function=f"{here}:bare").load(data, 2)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("what", ["zlib", "npy", "text", "short"])
def test_a_damaged_file_is_told_as_data_that_cannot_be_read(tmp_path, what, named):
    """And not as a fault of the site's code; what it is called stays here."""
    train = {"file": "d.npz", "x": "x", "y": "y"} | ({"names": "names"} if named else {})
    site = Site("n", (), tmp_path, train=train)
    x = frames()[0][NAMES].to_numpy(float)
    np.savez_compressed(tmp_path / "d.npz", x=x, y=np.arange(12) % 2, names=np.array(NAMES))
    whole = (tmp_path / "d.npz").read_bytes()
    if what == "zlib":
        (tmp_path / "d.npz").write_bytes(whole[:80] + bytes(40) + whole[120:])
    elif what == "npy":
        np.save(tmp_path / "d.npy", x)
        (tmp_path / "d.npy").replace(tmp_path / "d.npz")
    elif what == "text":
        (tmp_path / "d.npz").write_text("Smith")
    else:
        (tmp_path / "d.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PrivateError) as error:
        site.load(Federation.parse(declared()).data if named else None, 2)
    assert error.value.public == "its data cannot be read" and "d.npz" in str(error.value)


def test_targets_of_another_length_are_data_that_cannot_be_read(tmp_path):
    train = {"file": "d.npz", "x": "x", "y": "y", "names": "names"}
    arrays = {"x": frames()[0][NAMES].to_numpy(float), "names": np.array(NAMES)}
    np.savez(tmp_path / "d.npz", y=np.zeros(3, int), **arrays)
    with pytest.raises(PrivateError, match=r"y of shape \(3,\) for x of shape \(12, 4\)") as error:
        Site("n", (), tmp_path, train=train).load(Federation.parse(declared()).data, 2)
    assert error.value.public == "its data cannot be read"


def mixed_up():
    return frames()[0][["ill", "smoker", "age", "dose", "bmi"]], None


def bare():
    return (frames()[0][NAMES].to_numpy(float), frames()[0].ill.to_numpy()), None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"age", "bmi"', '"age", "age"', "must be different names"),
        ('target = "ill"', 'target = "age"', "must be different names"),
        ('target = "ill"', 'targt = "ill"', "did you mean 'target'"),
        ('target = "ill"', 'target = "ill"\nkinds = {aeg = "whole"}', "did you mean 'age'"),
        ('target = "ill"', 'target = "ill"\nkinds = {age = "odd"}', "must be one of"),
        ('target = "ill"', 'target = "ill"\nlabels = ["a", "b", "c"]', "3 labels"),
        ("classes = 2", "classes = 2\ninput_shape = [5]", "names 4 features"),
    ],
)
def test_a_wrong_data_table(old, new, reason):
    with pytest.raises(CompositeFLError) as error:
        Federation.parse(declared().replace(old, new)).check()
    assert reason in str(error.value)
