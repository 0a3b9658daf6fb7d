"""`compositefl fit` and `predict`: a new user's own tables, and what can go wrong with them."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression as PooledLogistic

from compositefl.cli.fit import progress_note
from compositefl.glm.path import Progress
from compositefl.linear_model import LogisticRegression, load_model, save_model

SITES = ("--site", "h1=h1.csv", "--site", "h2=h2.parquet", "--site", "h3=h3.csv")
FEATURES = ["age", "dose", "smokes"]
BINOMIAL = "--target readmitted --family binomial"
ONLY = f"--features {','.join(FEATURES)}"


def table(n, seed, **changes):
    rng = np.random.default_rng(seed)
    age, dose = rng.integers(20, 90, n), rng.normal(size=n)
    chance = 1 / (1 + np.exp(-0.05 * (age - 50) - dose))
    columns = {
        "age": age,
        "dose": dose,
        "smokes": rng.random(n) < 0.3,
        "visits": rng.poisson(np.exp(0.3 * dose)),
        "years": rng.uniform(0.5, 3, n),
        "days": rng.exponential(np.exp(-0.5 * dose)),
        "died": rng.integers(0, 2, n),
        "stage": np.array(["i", "ii", "iii"])[np.arange(n) % 3],
        "readmitted": np.where(rng.random(n) < chance, "yes", "no"),
    }
    return pd.DataFrame(columns | changes)


FRAMES = {"h1": table(60, 1), "h2": table(40, 2), "h3": table(50, 3)}
POOLED = pd.concat(FRAMES.values(), ignore_index=True)


@pytest.fixture
def fit(cli, tmp_path, monkeypatch):
    """`compositefl fit r`, in a folder that holds the three tables."""
    monkeypatch.chdir(tmp_path)
    FRAMES["h1"].to_csv("h1.csv", index=False)
    FRAMES["h2"].to_parquet("h2.parquet")
    FRAMES["h3"].iloc[:, ::-1].to_csv("h3.csv", index=False)  # columns are matched by name
    return lambda words, *more: cli("fit", "r", *SITES, *words.split(), *more)


def test_a_path_with_its_files(fit, tmp_path):
    answer = fit(f"{BINOMIAL} {ONLY} --penalty l1 --cv 3 --alphas 12 --out out")
    assert answer.code == 0, answer.err
    assert answer.err == (
        "r: 150 rows, 3 features, 2 classes (no, yes), 3 sites of 40 to 60 rows\n"
    )
    assert "binomial (for yes)" in answer.out and "odds ratio" in answer.out
    assert "alpha_1se" in answer.out and "standard error" in answer.out
    assert max(map(len, answer.out.splitlines()[:-1])) <= 80
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"coefficients.csv", "config.json", "model.json", "path.csv", "plot.png"}
    path = pd.read_csv("out/path.csv")
    assert list(path.columns[:4]) == ["alpha", "deviance", "standard error", "not zero"]
    assert path["not zero"].tolist() == (path[FEATURES] != 0).sum(axis=1).tolist()
    assert path["not zero"].iloc[0] == 0 and path["alpha"].is_monotonic_decreasing
    model = load_model("out/model.json")
    row = path[np.isclose(path["alpha"], model.alpha_)]
    np.testing.assert_allclose(row[FEATURES].to_numpy(), model.coef_, rtol=1e-9)
    words = json.loads((tmp_path / "out" / "config.json").read_text())["command"]
    assert words.startswith("compositefl fit r --site h1=h1.csv") and "--cv 3" in words


def test_one_alpha_equals_the_pooled_fit(fit):
    answer = fit(f"{BINOMIAL} {ONLY} --penalty l2 --alpha 0.01 --no-standardize --out out")
    assert answer.code == 0, answer.err
    x, y = POOLED[FEATURES].astype(float), POOLED["readmitted"]
    pooled = PooledLogistic(C=1 / (0.01 * len(y)), tol=1e-10, max_iter=10_000).fit(x, y)
    found = pd.read_csv("out/coefficients.csv").set_index("name")["coefficient"]
    np.testing.assert_allclose(found[FEATURES], pooled.coef_[0], atol=1e-6)
    np.testing.assert_allclose(found["(intercept)"], pooled.intercept_[0], atol=1e-6)


def test_without_a_penalty_there_are_intervals(fit):
    answer = fit(f"{BINOMIAL} {ONLY} --penalty none --out out")
    assert "std. error  p-value  odds ratio  95 % interval" in answer.out
    assert "odds ratio upper" in pd.read_csv("out/coefficients.csv").columns
    assert "std. error" in str(load_model("out/model.json").summary())


def test_one_file_with_a_column_of_sites_is_the_same(fit, cli):
    POOLED.assign(site=np.repeat(["h1", "h2", "h3"], [60, 40, 50])).to_csv("all.csv", index=False)
    words = f"{BINOMIAL} {ONLY} --cv 3 --alphas 5".split()
    one = cli("fit", "r", "--data", "all.csv", "--site-column", "site", *words)
    three = fit(" ".join(words))
    assert one.code == three.code == 0
    assert one.out == three.out


def test_weights_offsets_and_what_is_not_penalised(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for frame, name in zip(FRAMES.values(), ("w1.csv", "w2.csv"), strict=False):
        frame.assign(w=2.0, o=0.5).to_csv(name, index=False)
    words = "--site a=w1.csv --site b=w2.csv --target visits --family poisson --features age,dose"
    call = ["fit", "r", *words.split(), "--quiet", "--alpha", "0.5", "--unpenalized", "age"]
    assert cli(*call, "--out", "plain").code == 0
    assert cli(*call, "--weight", "w", "--offset", "o", "--out", "other").code == 0
    plain = pd.read_csv("plain/coefficients.csv").set_index("name")["coefficient"]
    other = pd.read_csv("other/coefficients.csv").set_index("name")["coefficient"]
    np.testing.assert_allclose(other[["age", "dose"]], plain[["age", "dose"]], atol=1e-8)
    np.testing.assert_allclose(other["(intercept)"], plain["(intercept)"] - 0.5, atol=1e-7)
    assert plain["age"] != 0 and plain["dose"] == 0
    assert cli(*call, "--penalty", "mcp", "--out", "mcp").code == 0
    mcp = pd.read_csv("mcp/coefficients.csv").set_index("name")["coefficient"]
    np.testing.assert_allclose(mcp, plain, atol=1e-6)  # dose is zero in both


@pytest.mark.parametrize(
    ("words", "heading"),
    [
        (f"--target visits --family poisson --exposure years {ONLY} --alpha 0.1", "rate ratio"),
        (f"--time days --event died {ONLY} --penalty none", "hazard ratio"),
        (f"--target years --family gamma {ONLY} --cv 2 --alphas 3", "ratio of means"),
        (f"--target years --family huber {ONLY} --alpha 0.1", "coefficient"),
        (f"--target stage --family multinomial {ONLY} --cv 2 --alphas 4 --scoring accuracy", "iii"),
    ],
)
def test_every_family_predicts(fit, cli, words, heading):
    answer = fit(words, "--out", "out")
    assert answer.code == 0, answer.err
    assert heading in answer.out
    done = cli("predict", "out/model.json", "h1.csv", "--out", "p.csv", "--keep", "age")
    assert done.code == 0 and "is known" in done.err
    made = pd.read_csv("p.csv")
    assert len(made) == 60 and made["age"].tolist() == FRAMES["h1"]["age"].tolist()
    assert made.notna().all().all()


def test_predictions_are_those_of_the_estimator(fit, cli):
    fit(f"{BINOMIAL} {ONLY} --alpha 0.02 --quiet --out out")
    sites = np.repeat(["h1", "h2", "h3"], [60, 40, 50])
    x = POOLED[FEATURES].astype(float)
    model = LogisticRegression(0.02).fit(x, POOLED["readmitted"], sites=sites)
    chance = model.predict_proba(x[:60])[:, 1]
    done = cli("predict", "out/model.json", "h1.csv")
    assert done.code == 0
    lines = [line.split(",") for line in done.out.splitlines()]
    assert lines[0] == ["predicted readmitted", "probability no", "probability yes"]
    np.testing.assert_allclose([float(line[2]) for line in lines[1:]], chance, rtol=1e-12)
    np.testing.assert_array_equal(load_model("out/model.json").predict(x), model.predict(x))


@pytest.mark.parametrize(
    ("target", "values", "said"),
    [
        (
            "years",
            ["inf", "unknown", ""],
            "on 57 rows; left out: 3 without a usable value",
        ),
        ("years", ["unknown"] * 60, "'years' is in the table, but no row can be compared"),
        ("readmitted", ["", ""], "on 58 rows; left out: 2 without a usable value"),
        ("readmitted", ["maybe"] * 3, "rows; 3 of them hold a class that the fit did not have, 'm"),
    ],
)
def test_only_usable_targets_are_compared(fit, cli, target, values, said):
    family = BINOMIAL if target == "readmitted" else f"--target {target} --family gamma"
    assert fit(f"{family} {ONLY} --alpha 0.02 --quiet --out out").code == 0
    table = FRAMES["h1"].astype({target: object})
    table.iloc[: len(values), table.columns.get_loc(target)] = values
    table.to_csv("t.csv", index=False)
    done = cli("predict", "out/model.json", "t.csv", "--out", "p.csv")
    assert done.code == 0 and said in done.err


def test_times_that_cannot_be_compared_keep_the_predictions(fit, cli, tmp_path):
    assert fit(f"--time days --event died {ONLY} --alpha 0.02 --quiet --out out").code == 0
    FRAMES["h1"].assign(died=0).to_csv("t.csv", index=False)
    done = cli("predict", "out/model.json", "t.csv", "--out", "p.csv")
    assert done.code == 0 and "'days' is not compared: y has no event" in done.err
    assert len(pd.read_csv(tmp_path / "p.csv")) == 60


def test_classes_written_as_decimals_are_those_of_the_fit(fit, cli):
    """A target of 1.0 and 0.0, as pandas writes whole numbers that once had gaps."""
    for name, frame in FRAMES.items():
        answers = (frame["readmitted"] == "yes").astype(float)
        made = frame.assign(readmitted=answers)
        if name == "h2":
            made.to_parquet("h2.parquet")
        else:
            made.to_csv(f"{name}.csv", index=False)
    assert fit(f"{BINOMIAL} {ONLY} --alpha 0.02 --quiet --out out").code == 0
    done = cli("predict", "out/model.json", "h1.csv", "--out", "p.csv")
    right = pd.read_csv("p.csv").iloc[:, 0] == (FRAMES["h1"]["readmitted"] == "yes")
    assert right.mean() > 0.5 and f"accuracy {right.mean():.4f} on 60 rows" in done.err


def test_missing_values_take_the_mean_in_fit_and_predict(fit, cli):
    frame = table(30, 4, age=[np.nan] * 3 + [40.0] * 27)
    frame.to_csv("h3.csv", index=False)
    refused = fit(f"{BINOMIAL} {ONLY} --alpha 0.01")
    assert refused.code == 2
    assert "column 'age' of site 'h3' (3 rows); --impute mean takes the mean" in refused.err
    assert fit(f"{BINOMIAL} {ONLY} --alpha 0.01 --impute mean --quiet --out out").code == 0
    done = cli("predict", "out/model.json", "h3.csv", "--out", "p.csv")
    assert done.code == 0, done.err
    ages = [*FRAMES["h1"]["age"], *FRAMES["h2"]["age"], *[40.0] * 27]
    filled = frame[FEATURES].astype(float).fillna({"age": np.mean(ages)})
    expected = load_model("out/model.json").predict_proba(filled)[:, 1]
    np.testing.assert_allclose(pd.read_csv("p.csv")["probability yes"], expected, rtol=1e-9)


def test_categories_are_columns_of_0_and_1(fit, cli, tmp_path):
    words = f"{BINOMIAL} --features age,stage --categories stage --penalty none --out out"
    answer = fit(words)
    assert answer.code == 0, answer.err
    assert "stage against 'i'" in answer.err and "stage=ii " in answer.out
    codes = [POOLED["stage"].eq(value) for value in ("ii", "iii")]
    x = np.column_stack([POOLED["age"], *codes]).astype(float)
    wanted = LogisticRegression(0.0).fit(x, POOLED["readmitted"])
    found = load_model(tmp_path / "out" / "model.json")
    assert list(found.feature_names_in_) == ["age", "stage=ii", "stage=iii"]
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=1e-8)

    POOLED.to_csv("new.csv", index=False)
    answer = cli("predict", "out/model.json", "new.csv", "--out", "p.csv")
    assert answer.code == 0, answer.err
    chance = pd.read_csv("p.csv")["probability yes"]
    np.testing.assert_allclose(chance, wanted.predict_proba(x)[:, 1], atol=1e-8)
    POOLED.assign(stage="iv").to_csv("new.csv", index=False)
    answer = cli("predict", "out/model.json", "new.csv")
    assert answer.code == 2 and "column 'stage' holds 'iv', which is none of i, ii" in answer.err
    content = json.loads((tmp_path / "out" / "model.json").read_text())
    content["about"]["categories"] = {"stage": "i"}
    (tmp_path / "m.json").write_text(json.dumps(content))
    answer = cli("predict", "m.json", "new.csv")
    assert answer.code == 2 and "m.json is a damaged model: categories: stage" in answer.err


def test_the_value_that_others_are_compared_with(fit, tmp_path):
    answer = fit(f"{BINOMIAL} --features stage --categories stage=ii --penalty none --out out")
    assert answer.code == 0 and "stage against 'ii'" in answer.err
    found = load_model(tmp_path / "out" / "model.json")
    assert list(found.feature_names_in_) == ["stage=i", "stage=iii"]
    share = POOLED["readmitted"].eq("yes").groupby(POOLED["stage"]).mean()
    np.testing.assert_allclose(found.intercept_, np.log(share["ii"] / (1 - share["ii"])), atol=1e-8)


def test_all_columns_of_a_category_can_be_unpenalised(fit, tmp_path):
    words = "--features age,stage --categories stage --unpenalized stage --alpha 10 --out out"
    assert fit(f"{BINOMIAL} {words}").code == 0
    age, *stages = load_model(tmp_path / "out" / "model.json").coef_[0]
    assert age == 0 and all(stages)


OTHER_TABLES = [  # of one more site, what the message must say
    (table(9, 5).drop(columns="dose"), "site 'x' (x.csv) lacks column 'dose', which other sites"),
    (table(9, 5).rename(columns={"age": "Age "}), "lacks column 'age', which other sites have; it"),
    (table(9, 5, ward=1), "has column 'ward', which other sites lack; name the features with --fe"),
    (table(9, 5, age=["?"] + [3] * 8), "column 'age' holds text, such as '?'; at other sites it"),
    (table(9, 5, readmitted=[0, 1, 1] * 3), "the target 'readmitted' holds text, such as 'yes'; a"),
    (table(9, 5, readmitted=[None] + ["no"] * 8), "'readmitted' has no value in 1 row"),
    (table(9, 5, readmitted="maybe"), "--family binomial is for two classes; 'readmitted' has 3"),
    (table(9, 5, age=np.inf), "infinite values in column 'age' of site 'x' (9 rows); only finite"),
    (table(9, 5, readmitted=[np.inf] + [0] * 8), "column 'readmitted' holds inf in 1 row; only f"),
]


@pytest.mark.parametrize(("frame", "text"), OTHER_TABLES, ids=[text for _, text in OTHER_TABLES])
def test_a_site_that_differs_is_told(fit, frame, text):
    frame.to_csv("x.csv", index=False)
    answer = fit(f"{BINOMIAL} --site x=x.csv --drop stage --alpha 0.1")
    assert answer.code == 2
    assert text in answer.err and "Traceback" not in answer.err


REFUSED = [  # options, what the one line must say
    ("--target readmitted", "--family is missing: one of gaussian, binomial"),
    ("--target readmitted --family logistic", "--family logistic is called binomial here"),
    ("--target readmitted --family poison", "did you mean 'poisson'"),
    ("--family binomial", "--family binomial needs --target COLUMN"),
    ("--target readmited --family binomial", "did you mean 'readmitted'"),
    ("--target readmitted --family gaussian", "the target, holds text, such as"),
    ("--target dose --family binomial", "the target 'dose' holds numbers such as"),
    (f"--target stage --family binomial {ONLY}", "'stage' has 3: i, ii, iii"),
    (f"--target readmitted --family multinomial {ONLY}", "has no, yes: --family binomial"),
    (BINOMIAL, "column 'stage' holds text or categories, such as 'i'; --categories codes it, --"),
    (f"{BINOMIAL} --categories stages", "--categories stages: site 'h1' (h1.csv): unknown col"),
    (f"{BINOMIAL} --categories readmitted", "--categories readmitted is named by --target alr"),
    (
        f"{BINOMIAL} --categories stage --drop stage",
        "--categories stage is named by --drop already",
    ),
    (f"{BINOMIAL} --categories stage=iv", "--categories stage=iv: unknown value of stage 'iv'; d"),
    (f"{BINOMIAL} --categories dose", "--categories dose: site 'h1' (h1.csv): column 'dose' hol"),
    (f"{BINOMIAL} --features age,doze", "--features doze: site 'h1' (h1.csv): unknown column"),
    (f"{BINOMIAL} --features age,readmitted", "--features readmitted is named by --target alre"),
    (f"{BINOMIAL} --drop stages", "--drop stages: site 'h1' (h1.csv): unknown column"),
    (f"{BINOMIAL} {ONLY} --unpenalized agee", "--unpenalized agee: unknown feature 'agee'; did"),
    (f"{BINOMIAL} {ONLY} --weight stage", "the weights, holds text, such as 'i'"),
    (f"{BINOMIAL} {ONLY} --weight wait", "--weight wait: site 'h1' (h1.csv): unknown column"),
    (f"{BINOMIAL} {ONLY} --exposure years", "it is of poisson and gamma, not of binomial"),
    (f"{BINOMIAL} {ONLY} --time days", "--time days does not go here: it is of --family cox"),
    ("--time days", "--family cox needs --event COLUMN"),
    ("--time days --event dose --features age --alpha 1", "has events other than 0 and 1"),
    (f"{BINOMIAL} {ONLY} --alpha -1", "--alpha -1.0 must be a finite number >= 0"),
    (f"{BINOMIAL} {ONLY} --alpha 0.1 --cv 5", "--alpha 0.1 does not go with --cv 5"),
    (f"{BINOMIAL} {ONLY} --cv 1", "--cv 1 must be at least 2 folds"),
    (f"{BINOMIAL} {ONLY} --cv 151", "--cv 151 folds are more than the 150 samples"),
    (f"{BINOMIAL} {ONLY} --cv 5 --penalty none", "--cv 5 chooses alpha; --penalty none has none"),
    (f"{BINOMIAL} {ONLY} --scoring r2", "--scoring r2 must be one of deviance, accuracy, auc"),
    (f"{BINOMIAL} {ONLY} --select worst", "--select worst must be 'best' or '1se'"),
    (f"{BINOMIAL} {ONLY} --alpha 1 --select 1se", "--select 1se goes with cross-validation"),
    (f"{BINOMIAL} {ONLY} --penalty lasso", "--penalty lasso is called l1 here"),
    (f"{BINOMIAL} {ONLY} --penalty l3", "--penalty l3 must be one of l1, l2, elasticnet, none"),
    (f"{BINOMIAL} {ONLY} --penalty l1 --l1-ratio 0.5", "--l1-ratio 0.5 does not go with --pen"),
    (f"{BINOMIAL} {ONLY} --l1-ratio 2", "--l1-ratio 2 must be in [0, 1]"),
    (f"{BINOMIAL} {ONLY} --l1-ratio much", "--l1-ratio much: 'much' is not a number"),
    (f"{BINOMIAL} {ONLY} --alpha 1 --l1-ratio 0.1,0.2", "--cv FOLDS, chooses among several"),
    (f"{BINOMIAL} {ONLY} --alpha 1 --penalty group-lasso:0.1", "has its own numbers"),
    (f"--target years --family huber {ONLY}", "--family huber needs --alpha FLOAT or --penalty"),
    (f"--target years --family huber {ONLY} --cv 3", "--family huber has no cross-validation"),
    (f"{BINOMIAL} {ONLY} --impute median", "--impute median must be mean"),
    (f"{BINOMIAL} {ONLY} --alphas 0", "--alphas 0 must be a whole number >= 1"),
    (f"{BINOMIAL} {ONLY} --site h1=h3.csv", "there is a site 'h1' already"),
    (f"{BINOMIAL} {ONLY} --site x=h1.csv", "h1.csv is given for two sites, 'h1' and 'x'"),
    (f"{BINOMIAL} {ONLY} --site x=nothere.csv", "--site nothere.csv is not a file"),
    (f"{BINOMIAL} {ONLY} --site-column x", "--site-column x does not go here: it goes with --da"),
    (f"{BINOMIAL} {ONLY} --data h1.csv", "--data h1.csv has the rows of all sites"),
    (f"{BINOMIAL} {ONLY} --alpha 1 --out h1.csv", "--out h1.csv is a file; it must be a folder"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED, ids=[words for words, _ in REFUSED])
def test_one_line_for_what_is_wrong(fit, words, text):
    answer = fit(words, "--quiet")
    assert answer.code == 2 and answer.out == ""
    assert answer.err.startswith("error: ") and answer.err.count("\n") == 1, answer.err
    assert text in answer.err


def test_separated_classes_name_the_options_that_help(fit, cli):
    frame = table(20, 6).assign(readmitted=lambda f: np.where(f["age"] > 50, "yes", "no"))
    frame.to_csv("x.csv", index=False)
    answer = cli("fit", "r", "--site", "x.csv", *f"{BINOMIAL} {ONLY} --penalty none".split())
    assert answer.code == 2 and "A ridge helps: --alpha 0.001 --penalty l2" in answer.err


def test_a_fit_that_does_not_converge_says_so(fit):
    answer = fit(f"{BINOMIAL} {ONLY} --alpha 0.001 --max-iter 1")
    assert answer.code == 1 and "warning: r: 1 of 1 alphas did not converge" in answer.err


def test_an_earlier_result_is_replaced_only_if_asked(fit, tmp_path):
    words = f"{BINOMIAL} {ONLY} --quiet --out out"
    assert fit(f"{words} --cv 2 --alphas 3").code == 0
    assert "--overwrite" in fit(f"{words} --alpha 0.1").err
    assert fit(f"{words} --alpha 0.1 --overwrite").code == 0
    assert not (tmp_path / "out" / "plot.png").exists()  # one alpha has no path


def test_models_that_are_none(cli, fit, tmp_path):
    fit(f"{BINOMIAL} {ONLY} --alpha 0.1 --quiet --out out")
    good = json.loads((tmp_path / "out" / "model.json").read_text())
    (tmp_path / "short.json").write_text(json.dumps(good | {"coefficients": [[1.0]]}))
    for words, text in {
        "nothere.json h1.csv": "nothere.json is not a file",
        "h1.csv h1.csv": "h1.csv is no model",
        "out/config.json h1.csv": "is no model: compositefl fit writes one, model.json",
        "short.json h1.csv": "is a damaged model",
        "out/model.json out/path.csv": "out/path.csv",
        "out/model.json h1.csv --keep agee": "--keep agee: h1.csv: unknown column",
        "out/model.json h1.csv --out h3.csv": "--out h3.csv exists; add --overwrite",
        "out/model.json h1.csv --out out": "--out out is a folder",
    }.items():
        answer = cli("predict", *words.split())
        assert answer.code == 2 and answer.err.count("\n") == 1, answer.err
        assert text in answer.err
    table(9, 5, age=np.inf).to_csv("x.csv", index=False)
    refused = cli("predict", "out/model.json", "x.csv").err
    assert "x.csv: infinite values in column 'age'; only finite numbers are allowed" in refused
    table(9, 5, age="old").to_csv("x.csv", index=False)
    assert "x.csv: column 'age' holds text" in cli("predict", "out/model.json", "x.csv").err


def test_a_model_without_names_comes_back(tmp_path):
    x = POOLED[FEATURES].to_numpy(float)
    model = LogisticRegression(0.0).fit(x, POOLED["readmitted"])
    save_model(model, tmp_path / "m.json", {"by": "me"})
    back = load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(back.predict_proba(x), model.predict_proba(x))
    pd.testing.assert_frame_equal(back.summary().frame, model.summary().frame)
    assert back.about_ == {"by": "me"} and back.get_params() == model.get_params()


def test_every_round_is_reported():
    seen = []
    model = LogisticRegression(0.01)
    model.on_round = seen.append
    model.fit(POOLED[FEATURES].astype(float), POOLED["readmitted"])
    assert [now.rounds for now in seen] == list(range(3, 3 + len(seen)))  # two for the scales
    assert seen[0].alphas == 0 and (seen[-1].solved, seen[-1].alphas) == (1, 1)
    assert seen[-1].alpha == 0.01 and seen[-1].rounds == model.n_iter_
    assert progress_note(seen[0]) == "the model without features"
    assert progress_note(Progress(30, 12, 100, 0.0625)) == "alpha 0.0625, 12 of 100 done"


def test_the_page_has_the_sections_and_can_be_made_again(fit, cli, tmp_path):
    pytest.importorskip("plotly")
    assert fit(f"{BINOMIAL} {ONLY} --cv 2 --alphas 4 --quiet --out out").code == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert cli("report", "out", "--out", "again.html").code == 0
    assert (tmp_path / "again.html").read_text() == text
    (tmp_path / "out" / "path.csv").unlink()
    assert "not the whole folder of a fit" in cli("report", "out").err
    for heading in ("The fit", "Coefficients", "Path", "Cross-validation", "What the clients hold"):
        assert f"<h2>{heading}</h2>" in text
