"""Pickles of arrays are read; a pickle that wants anything else is refused before it could do it."""

from __future__ import annotations

import codecs
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monocal.data import read, read_splits
from monocal.errors import FileError

LOGITS = np.random.default_rng(8).normal(size=(12, 3))
LABELS = (np.arange(12) % 3)[:, None]
CONTENT = ((LOGITS.astype("f4"), LABELS), (np.asfortranarray(LOGITS), LABELS.astype(">i4")))


def put(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "net.p"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(tmp_path: Path, protocol: int) -> None:
    got = read_splits(put(tmp_path, pickle.dumps(CONTENT, protocol=protocol)))
    np.testing.assert_array_equal(got.cal.values, LOGITS.astype("f4"))
    np.testing.assert_array_equal(got.test.values, LOGITS)
    np.testing.assert_array_equal(got.test.labels, LABELS.ravel())


@pytest.mark.parametrize("protocol", [0, 2, 3, 4])
def test_old_numpy_module_names(tmp_path: Path, protocol: int) -> None:
    new = pickle.dumps((LOGITS, LABELS), protocol=protocol)
    old = new.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    if protocol >= 4:  # lengths are written before the text and the frame
        old = new.replace(b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray")
        old = old[:3] + (len(old) - 11).to_bytes(8, "little") + old[11:]
    assert old != new
    np.testing.assert_array_equal(read(put(tmp_path, old)).values, LOGITS)


def test_python_2_pickle(tmp_path: Path) -> None:
    """As cPickle of Python 2 wrote it with protocol 2: bytes in a str, every byte value among them."""

    def text(raw: bytes) -> bytes:
        return b"T" + len(raw).to_bytes(4, "little") + raw

    def array(values: np.ndarray, code: bytes) -> bytes:
        shape = b"(" + b"".join(b"J" + n.to_bytes(4, "little") for n in values.shape) + b"t"
        state = b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        dtype = b"cnumpy\ndtype\n(U\x02" + code + b"K\x00K\x01tR" + state
        start = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        return start + b"(K\x01" + shape + dtype + b"\x89" + text(values.tobytes()) + b"tb"

    pair = b"(" + array(LOGITS, b"f8") + array(LABELS, b"i8") + b"t"
    got = read_splits(put(tmp_path, b"\x80\x02(" + pair + pair + b"t."))
    np.testing.assert_array_equal(got.cal.values, LOGITS)
    np.testing.assert_array_equal(got.test.labels, LABELS.ravel())


def test_other_layouts(tmp_path: Path) -> None:
    assert read(put(tmp_path, pickle.dumps([LOGITS, LABELS]))).labels is not None
    got = read(put(tmp_path, pickle.dumps({"logits": LOGITS, "y": LABELS})))
    assert (got.kind, got.n_classes) == ("logits", 3)
    assert read(put(tmp_path, pickle.dumps(LOGITS))).labels is None
    probs = np.full((4, 2), 0.5)
    got = read(put(tmp_path, pickle.dumps((probs, np.zeros(4, int)))), kind="probabilities")
    assert got.kind == "probabilities"


class Payload:
    """Pickles to a call of ``function(*args)``."""

    def __init__(self, function: object, *args: object) -> None:
        self.call = (function, args)

    def __reduce__(self) -> object:
        return self.call


def hostile(target: Path) -> dict[str, object]:
    touch = f"touch {target}"
    return {
        "os.system": Payload(os.system, touch),
        "subprocess": Payload(subprocess.check_call, touch.split()),
        "eval": Payload(eval, f"__import__('os').mkdir({str(target)!r})"),
        "exec": Payload(exec, f"import os; os.mkdir({str(target)!r})"),
        "os.mkdir": Payload(os.mkdir, str(target)),
        "getattr": Payload(getattr, "", "format"),
        "numpy.save": Payload(np.save, str(target), LOGITS),
        "codec": Payload(codecs.encode, "x", "rot13"),
        "object array": np.array([[Payload(os.system, touch)]], dtype=object),
        "subclass": LOGITS.view(np.matrix),
        "structured": np.zeros(3, dtype=[("a", "f4")]),
    }


@pytest.mark.parametrize("name", hostile(Path("x")))
@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("wrapped", [False, True])
def test_hostile_pickle_is_refused_and_does_not_run(
    tmp_path: Path, name: str, protocol: int, wrapped: bool
) -> None:
    target = tmp_path / "ran"
    bad = hostile(target)[name]
    content = pickle.dumps(((LOGITS, LABELS), (LOGITS, bad)) if wrapped else bad, protocol=protocol)
    with pytest.raises(FileError, match="refused and nothing in it was run"):
        read(put(tmp_path, content), part="test")
    assert not target.exists()
    if name in ("os.system", "eval", "exec", "os.mkdir"):  # the payload is real: plain pickle does run it
        pickle.loads(content)
        assert target.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"(S'touch ran'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch ran'\no.",
        b"\x80\x02cnumpy\ndtype\n(U\x03O8 tR.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # numpy.ndarray itself is never made
        b"\x80\x02cnumpy\nndarray\n}b.",  # nor changed
        b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.",
        b"\x80\x02\x82\x01.",  # extension registry
        b"Pid\n.",  # persistent object
        b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b"abc.",  # claims 4 exabytes
        b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"abc.",
        b"\x80\x02Nr" + b"\xff\xff\xff\x7f.",  # memo index 2**31 - 1
        b"\x80\x09N.",
        b"N.",
        b"]" * 100_000 + b"a" * 99_999 + b".",
    ],
)
def test_hand_written_pickles(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=r"net\.p"):
        read(put(tmp_path, content))
    assert [p.name for p in tmp_path.iterdir()] == ["net.p"]


def test_array_whose_bytes_do_not_fit(tmp_path: Path) -> None:
    content = pickle.dumps(LOGITS, protocol=3).replace(b"K\x0cK\x03\x86", b"K\x0cK\x04\x86")
    with pytest.raises(FileError, match=r"shape \(12, 4\) with 288 bytes"):
        read(put(tmp_path, content))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_pickles(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(pickle.dumps(CONTENT, protocol=data.draw(st.sampled_from([0, 2, 3, 4, 5]))))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(content)))
    path = put(tmp_path_factory.mktemp("fuzz"), bytes(content[:cut]))
    try:
        outcome = str(read_splits(path).cal.path)
    except FileError as error:
        outcome = str(error)
    assert "net.p" in outcome
