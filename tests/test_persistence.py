"""A saved calibrator comes back whole to the last bit, or not at all with a sentence that says why."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import monocal as mc
from monocal import persistence
from monocal.data import synthetic
from monocal.errors import FileError, InputError, OrderWarning

STORED = Path(__file__).parent / "stored"
DATA = synthetic(300, 6, seed=3)


def fitted(make: Callable[..., mc.Calibrator], **parameters: object) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        calibrator = make().set_params(**parameters)
        if "max_epochs" in calibrator.get_params():  # a network need not be good to be saved
            calibrator.set_params(max_epochs=2)
        return calibrator.fit(DATA.values, DATA.labels)


@pytest.fixture(scope="module")
def mcct() -> mc.MCCT:
    return fitted(mc.MCCT)


@pytest.mark.parametrize("info", mc.all_calibrators(), ids=lambda info: info.name)
def test_round_trip_bit_for_bit(info: mc.registry.CalibratorInfo, tmp_path: Path) -> None:
    calibrator = fitted(info.make)
    path = calibrator.save(tmp_path / "cal.json", data=(DATA.values, DATA.labels))
    loaded = mc.load(path)
    assert type(loaded) is info.cls
    assert loaded.get_params() == calibrator.get_params()
    hostile = np.vstack([DATA.values, np.zeros((1, 6)), [[-np.inf, 0, 0, 5, -3, 5]]]).astype(np.float32)
    for X in (hostile, hostile.astype(np.float64)):
        after, before = loaded.predict_proba(X), calibrator.predict_proba(X)
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(after, before, strict=True)
        np.testing.assert_array_equal(loaded.transform(X), calibrator.transform(X), strict=True)
    again = tmp_path / "again.json"
    loaded.save(again, data=(DATA.values, DATA.labels))
    assert again.read_text() == path.read_text()


def test_parameters_come_back_with_their_types() -> None:
    parameters = {"top_k": 2, "shrinkage": np.float32(0.5), "tol": 1e-3, "max_iter": np.int64(7)}
    text = persistence.to_json(fitted(mc.MCCT, **parameters))
    loaded = persistence.from_json(text)
    for name, value in parameters.items():
        assert getattr(loaded, name) == value
        assert type(getattr(loaded, name)) is type(value)
    assert persistence.to_json(loaded) == text


def test_probabilities_as_input_and_column_names_survive(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"class {j}" for j in range(6)]
    frame = pandas.DataFrame(DATA.truth.astype(np.float64), columns=names)
    frame = frame.div(frame.sum(axis=1), axis=0)
    calibrator = mc.MCCT(input="probabilities").fit(frame, DATA.labels)
    loaded = mc.load(calibrator.save(tmp_path / "cal.json"))
    assert list(loaded.feature_names_in_) == names
    pandas.testing.assert_frame_equal(
        loaded.predict_proba(frame), calibrator.predict_proba(frame), check_exact=True
    )
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict_proba(frame[names[::-1]])


NUMBERS = st.sampled_from(
    [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint16, np.bool_]
).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | NUMBERS
    | NUMBERS.map(lambda array: array.reshape(-1)[:1].sum(dtype=array.dtype))
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.just("$array"), inner, max_size=3)
    ),
    max_leaves=6,
)


def assert_same(a: object, b: object) -> None:
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, strict=True)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    else:
        assert a == b or (a != a and b != b)


TEMPERATURE = fitted(mc.TemperatureScaling)


@settings(deadline=None, max_examples=40)
@given(VALUES)
def test_any_plain_state_comes_back(value: object) -> None:
    calibrator = copy.copy(TEMPERATURE)
    calibrator.extra_ = value
    text = persistence.to_json(calibrator)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert_same(persistence.from_json(text).extra_, value)


@pytest.mark.parametrize(
    "value",
    [abs, object(), np.array([object()]), np.array([1j]), np.array(["2020-01-01"], "M8[D]"), {1, 2}],
    ids=["function", "object", "objects", "complex", "dates", "set"],
)
def test_what_json_cannot_hold_is_refused_by_name(value: object, tmp_path: Path) -> None:
    calibrator = fitted(mc.TemperatureScaling)
    calibrator.extra_ = {"deep": [value]}
    with pytest.raises(InputError, match=r"extra_\['deep'\].* cannot hold"):
        calibrator.save(tmp_path / "cal.json")
    assert os.listdir(tmp_path) == []


def test_what_is_no_file_of_a_calibrator(tmp_path: Path) -> None:
    np.savez(tmp_path / "cal.json.npz", a=[1.0])
    for name, message in (
        ("no.json", "There is no file"),
        ("", "cannot be read"),
        ("cal.json.npz", "binary"),
    ):
        with pytest.raises(FileError, match=message):
            mc.load(tmp_path / name)


def test_only_fitted_calibrators_are_saved(mcct: mc.MCCT, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(X, y\)"):
        persistence.to_json(mcct, data=(DATA.values,))

    with pytest.raises(NotFittedError):
        mc.MCCT().save(tmp_path / "cal.json")
    with pytest.raises(InputError, match="one of monocal's, got dict"):
        mc.save({}, tmp_path / "cal.json")
    assert os.listdir(tmp_path) == []


def test_existing_files_stay_unless_forced(mcct: mc.MCCT, tmp_path: Path) -> None:
    path = tmp_path / "cal.json"
    path.write_text("precious")
    with pytest.raises(FileError, match="exists already"):
        mcct.save(path)
    assert path.read_text() == "precious"
    assert mc.load(mcct.save(path, force=True)).solution_.converged


# The fingerprint and the metrics.


def test_describe_tells_where_it_came_from(mcct: mc.MCCT, tmp_path: Path) -> None:
    metrics = mc.evaluate(mcct.predict_proba(DATA.values), DATA.labels, metrics=["nll", "ece"]).to_dict()
    path = mcct.save(tmp_path / "cal.json", data=(DATA.values, DATA.labels), metrics=metrics)
    result = persistence.describe(path)
    assert result["class"] == "MCCT"
    assert result["monocal_version"] == mc.__version__
    assert result["parameters"] == mcct.get_params()
    assert result["data"] == persistence.fingerprint(DATA.values, DATA.labels)
    assert result["data"]["shape"] == [300, 6]
    assert result["metrics"] == metrics


def test_the_fingerprint_sees_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = DATA.values, DATA.labels
    w = np.ones(len(y))
    other = X.copy()
    other[-1, -1] = np.nextafter(other[-1, -1], np.float32(9))
    changed = [
        (X, y),
        (other, y),
        (X, (y + 1) % 6),
        (X, y, w),
        (X, y, w * 2),
        (X.astype(float), y),
        (X[::-1], y[::-1]),
    ]
    prints = [persistence.fingerprint(*data)["sha256"] for data in changed]
    assert len(set(prints)) == len(prints)
    assert persistence.fingerprint(np.asfortranarray(X), y.astype(np.int32))["sha256"] == prints[0]
    monkeypatch.setattr(persistence, "_BLOCK", 100)
    assert persistence.fingerprint(X, y)["sha256"] == prints[0]


# Files that must not load.


def rewritten(text: str, **changes: object) -> str:
    """Another content under a right checksum: what damage does not make but a hostile hand can."""
    document = {**json.loads(text), **changes}
    document["checksum"] = persistence._checksum(document)
    return json.dumps(document)


def test_every_cut_is_noticed(mcct: mc.MCCT) -> None:
    text = persistence.to_json(mcct).rstrip()
    for end in [*range(0, len(text), 397), len(text) - 1]:
        with pytest.raises(FileError, match=r"empty|cut short"):
            persistence.from_json(text[:end])


def test_every_flipped_digit_is_noticed(mcct: mc.MCCT) -> None:
    text = persistence.to_json(mcct)
    places = [i for i, letter in enumerate(text) if letter.isdigit()]
    for i in places[:: max(1, len(places) // 60)]:
        damaged = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        if json.loads(text) == json.loads(damaged):  # the seventeenth digit may not change the number
            continue
        with pytest.raises(FileError, match=r"checksum|format"):
            persistence.from_json(damaged)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format_version": 2, "monocal_version": "9.1"},
            r"monocal 9\.1 in format 2.*up to format 1: upgrade",
        ),
        *[({"format_version": version}, "format version") for version in (0, -1, None, "1", True, 1.5)],
        *[({"format": name}, "no saved calibrator") for name in ("other", None, [1])],
    ],
    ids=str,
)
def test_another_format_or_version_is_named(mcct: mc.MCCT, changes: dict[str, object], message: str) -> None:
    with pytest.raises(FileError, match=message):
        persistence.from_json(rewritten(persistence.to_json(mcct), **changes))


@pytest.mark.parametrize(
    "text",
    ["[1, 2]", "{}", "3", "null", "NaN", '{"a": Infinity}', "[" * 100_000, "9" * 5000, "{'a': 1}", "\0"],
)
def test_other_text_is_one_sentence(text: str) -> None:
    with pytest.raises(FileError, match=r"no JSON that can be read|no saved calibrator"):
        persistence.from_json(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"class": "os:system"},
        {"class": "Calibrator"},
        {"class": 3},
        {"parameters": {"no_such": 1}},
        {"parameters": [1]},
        {"state": {"predict_proba": 1}},
        {"state": {"__class__": "x"}},
        {"state": {"a_": {"$object": "Popen", "args": ["true"]}}},
        {"state": {"a_": {"$object": "RankMap", "nothing": 1}}},
        {"state": {"a_": {"$array": "object", "shape": [10**12], "values": []}}},
        {"state": {"a_": {"$array": "float64", "shape": [2], "values": [1.0]}}},
        {"state": {"a_": {"$array": "O,f8", "shape": [1], "values": [1.0]}}},
        {"state": {"a_": {"$pickle": "gASV"}}},
    ],
    ids=str,
)
def test_hostile_content_is_refused(mcct: mc.MCCT, changes: dict[str, object]) -> None:
    with pytest.raises(FileError):
        persistence.from_json(rewritten(persistence.to_json(mcct), **changes))


@pytest.mark.parametrize(
    "metrics", [{"$scalar": "int64", "value": 10**30}, {"$dict": 5}, {"$unknown": 1}], ids=str
)
def test_forged_metrics_are_refused_in_a_sentence(mcct: mc.MCCT, tmp_path: Path, metrics: object) -> None:
    (tmp_path / "cal.json").write_text(rewritten(persistence.to_json(mcct), metrics=metrics))
    with pytest.raises(FileError, match=r"cal\.json holds no calibrator"):
        persistence.describe(tmp_path / "cal.json")


# Calibrators of others.


class Flat(mc.Calibrator):
    """A user's own family."""

    def __init__(self, input: str = "logits"):
        self.input = input

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        self.share_ = 1.0 / logits.shape[1]
        self.coef_ = self.weights_ = np.array([3.0, -1.0])  # other than what monocal calls so

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        return np.zeros(logits.shape)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_the_published_procedure_meets_its_constraints_to_rounding_only(unit: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrator = mc.MCCT.as_published().fit(DATA.values * unit, DATA.labels)
    loaded = persistence.from_json(persistence.to_json(calibrator))
    np.testing.assert_array_equal(loaded.predict_proba(DATA.values), calibrator.predict_proba(DATA.values))


def test_what_could_not_be_loaded_is_not_saved() -> None:
    calibrator = fitted(mc.MCCT)
    calibrator.biases_ = calibrator.biases_[:-1]
    with pytest.raises(InputError, match="cannot be saved: biases_"):
        persistence.to_json(calibrator)


def test_a_users_own_family_loads_where_it_is_defined_and_is_never_imported() -> None:
    text = persistence.to_json(Flat().fit(DATA.values, DATA.labels))
    assert json.loads(text)["class"] == f"{__name__}:Flat"
    loaded = persistence.from_json(text)
    assert type(loaded) is Flat
    np.testing.assert_array_equal(loaded.coef_, [3.0, -1.0])
    text = rewritten(text, **{"class": "this:Zen"})
    with pytest.raises(FileError, match=r"a Zen, which is not known here.*import this before loading"):
        persistence.from_json(text)
    assert "this" not in sys.modules


# Format version 1 must always load. The files were written once and are never written again.


@pytest.mark.parametrize("path", sorted(STORED.glob("*_v1.json")), ids=lambda path: path.stem)
def test_stored_files_of_format_1_load(path: Path) -> None:
    calibrator = mc.load(path)
    expected = json.loads(path.with_name(path.stem + "_expected.json").read_text())
    probabilities = calibrator.predict_proba(np.array(expected["logits"]))
    np.testing.assert_allclose(probabilities, expected["probabilities"], rtol=1e-13, atol=0)


def test_every_kind_loads_in_a_fresh_process_without_unpickling() -> None:
    script = (
        "import sys, pickle\n"
        "def no(*a, **k): raise SystemExit('unpickled')\n"
        "pickle.load = pickle.loads = no\n"
        "import monocal\n"
        f"print([monocal.load(p) for p in {[str(p) for p in STORED.glob('*_v1.json')]}])\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "LabelShift" in done.stdout
    kinds = ("temperature", "mcct", "conditional", "svs", "sms", "stacked", "structured_mcct", "label_shift")
    assert {f"{kind}_v1" for kind in kinds} <= {path.stem for path in STORED.glob("*_v1.json")}
