"""A file with a right checksum and wrong numbers: refused, or harmless. A file that never ends: refused at once."""

import copy
import json
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

import monocal as mc
from hostile import assert_order_kept
from monocal import persistence
from monocal.calibrators.state import rules_of
from monocal.errors import FileError

rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(250, 5)) * 3
LABELS = np.array([rng.choice(5, p=np.exp(z - np.logaddexp.reduce(z))) for z in LOGITS / 2])
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
ROWS = np.concatenate([LOGITS[:50], np.round(LOGITS[50:100]), 20 * LOGITS[100:130], np.zeros((1, 5))])

QUICK = {"max_epochs": 2}
METHODS = {
    **{info.name: info for info in mc.all_calibrators() if not info.extras},
    **{info.name: info for info in mc.all_calibrators() if info.extras and not info.published},
}


@cache
def made(name):
    """A fitted calibrator of each kind; networks trained for a moment."""
    calibrator = METHODS[name].make()
    if METHODS[name].extras:
        pytest.importorskip("torch")
        calibrator.set_params(**QUICK)
    return calibrator.fit(LOGITS, LABELS)


def document(calibrator):
    return json.loads(persistence.to_json(calibrator))


def load(forged):
    forged["checksum"] = persistence._checksum(forged)
    return persistence.from_json(json.dumps(forged))


def arrays(value, path=()):
    """Paths to all arrays of numbers in a document's state."""
    if isinstance(value, dict):
        if "$array" in value:
            yield path
        else:
            for key, item in value.items():
                yield from arrays(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from arrays(item, (*path, i))


def at(value, path):
    for key in path:
        value = value[key]
    return value


FORGERIES = {
    "nan": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, np.nan, a),
    "inf": lambda a: np.where(np.arange(a.size).reshape(a.shape) == a.size - 1, np.inf, a),
    "negative": lambda a: -1.0 - abs(a),
    "backwards": lambda a: a[::-1],
    "huge": lambda a: 1e308 * np.sign(a + 0.5),
    "one huge": lambda a: np.where(np.arange(a.size).reshape(a.shape) == a.size // 2, -1e300, a),
    "the first huge": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, 1e308, a),
    "shorter": lambda a: a[:-1],
    "longer": lambda a: np.concatenate([a, a[-1:] + 1]),
    "another shape": lambda a: a[None],
    "empty": lambda a: a[:0],
    "doubled": lambda a: 2 * a + 1,
}
MAY_BE_ANYTHING = {"solution", "factor_means", "solution_", "history_", "factor_means_"}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::monocal.OrderWarning")
@pytest.mark.parametrize("name", METHODS)
def test_a_forged_array_is_refused_or_harmless(name):
    calibrator = made(name)
    whole = document(calibrator)
    assert set(whole["state"]) <= {"n_features_in_", "smallest_probability_", *rules_of(type(calibrator))}
    refused = 0
    paths = [
        path for path in arrays(whole["state"]) if not MAY_BE_ANYTHING.intersection(path)
    ]  # of a stage, too
    step = 1 if len(paths) <= 8 else 3  # of many arrays each has a third of the forgeries
    for number, path in enumerate(paths):
        for kind in list(FORGERIES)[number % step :: step]:
            forged = copy.deepcopy(whole)
            entry = at(forged["state"], path)
            original = np.array(entry["values"], dtype=entry["$array"]).reshape(entry["shape"])
            if not original.size:
                continue
            if original.dtype.kind == "i" and (kind in ("nan", "inf") or "huge" in kind):
                continue
            changed = np.asarray(FORGERIES[kind](original)).astype(original.dtype, copy=False)
            entry.update(json.loads(json.dumps(persistence.encode(changed, "x"))))
            try:
                calibrator = load(forged)
            except FileError as error:
                assert "holds no calibrator" in str(error)  # noqa: PT017  some forgeries are harmless
                refused += 1
                continue
            assert kind not in ("nan", "inf"), path
            assert np.isfinite(calibrator.predict_proba(1e4 * ROWS.astype(np.float32))).all(), (path, kind)
            p = calibrator.predict_proba(ROWS)
            assert np.isfinite(p).all(), (path, kind)
            np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6, err_msg=f"{path} {kind}")
            assert (p >= 0).all(), (path, kind)
            if calibrator.preserves_order:
                assert_order_kept(ROWS, p)
    assert refused >= 4


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("TS", "temperature_", 0.0),
        ("TS", "temperature_", {"$float": "nan"}),
        ("TS", "n_features_in_", 0),
        ("TS", "n_features_in_", True),
        ("MCCT", "n_features_in_", 2),
        ("MCCT", "rank_map_", [1, 2]),
        ("MCCT", "weights_", {"$array": "float64", "shape": [2], "values": [2.0, 1.0]}),
        ("VS", "n_features_in_", 4),
        ("Isotonic OvR", "mode_", "multiclass"),
        ("HB", "values_", []),
        ("DIAG", "scale_", -1.0),
    ],
)
def test_a_forged_number_is_refused(method, name, value):
    forged = document(made(method))
    forged["state"][name] = value
    with pytest.raises(FileError, match="holds no calibrator"):
        load(forged)


@pytest.mark.parametrize("change", [{"statistic": 9}, {"statistic": -1}, {"zero": 1.0, "one": 1.0}])
def test_a_forged_ramp_is_refused(change):
    forged = document(mc.ConditionalMCCT(shrinkage=0.1).fit(LOGITS, LABELS))
    forged["state"]["rank_map_"]["factors"]["ramps"]["$tuple"][0].update(change)
    with pytest.raises(FileError, match="ramps"):
        load(forged)


@pytest.mark.parametrize("name", ["MCCT", "VS", "HB", "Isotonic"])
def test_what_is_missing_is_refused(name):
    whole = document(made(name))
    about_the_fit = {"solution_", "n_iter_", "passes_", "shrinkage_", "n_rows_"}  # the map does without them
    for attribute in set(whole["state"]) - {"weights_", "biases_", "mode_"}:
        forged = copy.deepcopy(whole)
        del forged["state"][attribute]
        if attribute in about_the_fit:
            assert load(forged).n_features_in_ == 5
        else:
            with pytest.raises(FileError):
                load(forged)
    forged = copy.deepcopy(whole)
    forged["parameters"]["input"] = "words"
    with pytest.raises(FileError, match="input must be one of"):
        load(forged)


def test_a_file_without_state_is_refused():
    for info in METHODS.values():
        forged = document(made("TS")) | {"class": type(info.make()).__name__, "state": {}}
        with pytest.raises(FileError, match="never fitted: fit it, and write it again"):
            load(forged)


@pytest.mark.parametrize("smallest", [0.0, -1.0, 2.0, {"$float": "inf"}])
def test_the_smallest_probability_is_one(smallest):
    forged = document(mc.MCCT(input="probabilities").fit(PROBABILITIES, LABELS))
    load(copy.deepcopy(forged))
    forged["state"]["smallest_probability_"] = smallest
    with pytest.raises(FileError, match="smallest_probability_"):
        load(forged)


def test_a_file_does_not_decide_how_much_memory_is_taken():
    forged = document(made("TS"))
    wide = {"$array": "<U100000000", "shape": [1], "values": ["a"]}
    with pytest.raises(FileError, match="not allowed"):
        load({**forged, "state": {**forged["state"], "names_": wide}})
    forged["state"]["n_features_in_"] = 10**12
    assert load(forged).n_features_in_ == 10**12


def test_a_file_that_is_too_large_is_neither_read_nor_written(tmp_path, monkeypatch):
    calibrator = made("TS")
    calibrator.save(tmp_path / "cal.json")
    monkeypatch.setattr(persistence, "LARGEST_FILE", 100)
    with pytest.raises(FileError, match="has more than 0 MB, which no saved calibrator has"):
        mc.load(tmp_path / "cal.json")
    with pytest.raises(mc.InputError, match="pickle it"):
        calibrator.save(tmp_path / "other.json")


def test_what_never_ends_is_no_calibrator(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    np.save(tmp_path / "x.npy", LOGITS)
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(FileError, match=r"is no plain file: give the \.json"):
            mc.load(path)
    command = [sys.executable, "-m", "monocal", "apply", str(tmp_path / "pipe")]
    done = subprocess.run(
        [*command, str(tmp_path / "x.npy"), "-o", str(tmp_path / "p.npy")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1
    assert "is no plain file" in done.stderr
