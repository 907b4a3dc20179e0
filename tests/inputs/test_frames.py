"""Frames that are not in memory: lazy in, lazy out, or a sentence."""

import numpy as np
import pytest

import monocal as mc

pandas = pytest.importorskip("pandas")

rng = np.random.default_rng(0)
Z = rng.normal(size=(400, 4)) * 3
Y = np.array([rng.choice(4, p=np.exp(z - np.logaddexp.reduce(z))) for z in Z / 2])
NAMES = list("abcd")


def test_a_dask_frame_stays_where_it_is(monkeypatch):
    dd = pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame(Z, columns=NAMES).assign(label=Y)
    lazy = dd.from_pandas(frame, npartitions=4)
    X, y = lazy[NAMES], lazy["label"]
    whole = mc.MCCT().fit(Z, Y)

    def no(*args, **rest):
        raise AssertionError("pulled into the client")

    for kind in (type(X), type(y)):
        monkeypatch.setattr(kind, "__array__", no)
    cal = mc.MCCT().fit(X, y)
    np.testing.assert_allclose(cal.weights_, whole.weights_, atol=1e-10)
    assert list(cal.feature_names_in_) == NAMES
    with monkeypatch.context() as lazily:
        lazily.setattr("dask.base.get_scheduler", no)  # nothing is computed, nor rows counted
        p, f, classes = cal.predict_proba(X), cal.transform(X), cal.predict(X)
    assert type(p) is type(f) is type(X)
    assert type(classes) is type(y)
    assert list(p.columns) == NAMES
    result = p.compute()
    pandas.testing.assert_index_equal(result.index, frame.index)
    np.testing.assert_allclose(result, whole.predict_proba(Z), atol=1e-10)
    np.testing.assert_array_equal(classes.compute(), whole.predict(Z))
    single = cal.predict_proba(X.astype(np.float32))
    assert (single.dtypes == np.float32).all()
    assert (single.compute().dtypes == np.float32).all()
    with pytest.raises(ValueError, match="same order"):
        cal.predict_proba(X[NAMES[::-1]])
    with pytest.raises(mc.InputError, match="needs all rows in one process"):
        mc.VectorScaling().fit(X, y)


def frame_of(library, name):
    return type(name, (), {"__module__": f"{library}.frame", "columns": NAMES})()


@pytest.mark.parametrize(
    ("frame", "advice"),
    [
        (frame_of("polars", "LazyFrame"), r"polars LazyFrame.*X\.collect\(\)"),
        (frame_of("pyspark.sql", "DataFrame"), r"Spark DataFrame.*toPandas\(\)"),
        (frame_of("duckdb._relation", "DuckDBPyRelation"), r"relation of DuckDB.*X\.df\(\)"),
        (
            pandas.DataFrame({"id": Z[:, 0], "logits": list(Z)}),
            r"column 'logits' holds lists.*np\.stack\(X\['logits'\]\)",
        ),
    ],
    ids=["polars", "spark", "duckdb", "lists and numbers"],
)
def test_what_cannot_be_read_is_said(frame, advice):
    with pytest.raises(mc.InputError, match=advice):
        mc.MCCT().fit(frame, Y)
    cal = mc.MCCT().fit(Z, Y)
    for method in (cal.predict_proba, cal.predict, cal.transform):
        with pytest.raises(mc.InputError, match=advice):
            method(frame)


@pytest.mark.parametrize("prefix", ["", "prob_"])
def test_labels_may_name_the_columns_of_a_frame(prefix):
    frame = pandas.DataFrame(Z, columns=[f"{prefix}{name}" for name in NAMES])
    words = np.array(NAMES)[Y]
    expected = mc.TemperatureScaling().fit(frame, Y)
    for labels in (words, words.tolist(), pandas.Series(words), pandas.Series(words, dtype="category")):
        cal = mc.TemperatureScaling().fit(frame, labels)
        assert cal.temperature_ == expected.temperature_
        assert cal.score(frame, labels) == expected.score(frame, Y)
    with pytest.raises(mc.InputError, match=r"label 'fish' in row .* is none of the columns"):
        mc.TemperatureScaling().fit(frame, ["fish", *words[1:]])
    for labels in (words, words.tolist()):
        with pytest.raises(
            mc.InputError, match=r"every entry must be a class number 0..3.*or the name of one"
        ):
            mc.TemperatureScaling().fit(Z, labels)
