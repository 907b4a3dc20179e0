"""Work shared among threads: what they make does not depend on them, whatever happens on the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import threadpoolctl
from sklearn.base import clone

import monocal as mc
from monocal.data import synthetic
from monocal.parallel import parallel_map, parallel_sum, run_parallel


@pytest.fixture(autouse=True)
def several_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")


@pytest.fixture(params=["2", "5"])
def threads(request, several_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", request.param)
    return int(request.param)


@pytest.fixture(scope="module")
def rows():
    data = synthetic(9000, 600, seed=0, keep_truth=False)
    return data.values.astype(np.float32), data.labels


def all_meet(threads):
    """Whether so many threads are inside one function at once. One that is on its way back from earlier work is waited for."""
    for _ in range(100):
        barrier = threading.Barrier(threads, timeout=0.5)
        try:
            parallel_map(lambda i, barrier=barrier: barrier.wait(), range(threads))
        except threading.BrokenBarrierError:
            continue
        return True
    return False


def test_as_many_as_are_asked_for_now(threads, monkeypatch):
    for more in (1, threads + 2, 2, threads):
        monkeypatch.setenv("OMP_NUM_THREADS", str(more))
        assert all_meet(more)


def test_the_first_of_all_errors_is_raised_and_the_threads_live_on(threads):
    def fails(i):
        if i % 7 == 5:
            raise ValueError(i)
        return i

    for run in [parallel_map, parallel_sum] * 20:
        with pytest.raises(ValueError, match=r"^5$"):
            run(fails, range(100))
    assert all_meet(threads)


def test_an_interrupt_stops_all_threads(threads):
    done = []

    def interrupted(i):
        if i == 3:
            raise KeyboardInterrupt
        time.sleep(1e-3)
        done.append(i)

    with pytest.raises(KeyboardInterrupt):
        parallel_map(interrupted, range(1_000_000))
    assert len(done) < 100_000  # twenty seconds of work of five threads, however late one of them stops
    assert all_meet(threads)


def test_work_inside_work_is_done_by_the_thread_itself():
    def outer(i):
        here = threading.get_ident()
        assert parallel_map(lambda j: threading.get_ident(), range(20)) == [here] * 20
        return parallel_sum(lambda j: i * j, range(20))

    assert parallel_map(outer, range(30)) == [190 * i for i in range(30)]


def test_no_call_waits_for_a_thread_that_comes_late(threads):
    """All the pieces are taken by the caller while the others are held up by other work."""
    hold, held = threading.Event(), threading.Semaphore(0)

    def busy():
        held.release()
        hold.wait(30)

    other = threading.Thread(target=run_parallel, args=(busy, threads))
    other.start()
    for _ in range(threads):
        held.acquire(timeout=1)  # all, but for one that may be on its way back from earlier work
    assert parallel_map(lambda i: i, range(20)) == list(range(20))
    hold.set()
    other.join()


def test_fits_do_not_depend_on_threads_nor_on_fits_beside_them(rows, monkeypatch):
    z, y = rows
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    expected = [type(cal)().fit(z, y).solution_.coefficients for cal in (mc.MCCT(), mc.ConditionalMCCT())]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with ThreadPoolExecutor(2) as pool:
        fits = [pool.submit(type(cal)().fit, z, y) for cal in (mc.MCCT(), mc.ConditionalMCCT())]
        for fit, coefficients in zip(fits, expected, strict=True):
            np.testing.assert_array_equal(fit.result().solution_.coefficients, coefficients)


@pytest.mark.parametrize("cal", [mc.TemperatureScaling(), mc.MCCT(top_k=5), mc.ConditionalMCCT()], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_fit_bit_for_bit(cal, dtype):
    data = synthetic(40_000, 20, seed=0)  # several blocks, so that threads could finish in any order
    z = data.values.astype(dtype)
    first, second = (clone(cal).fit(z, data.labels) for _ in range(2))
    np.testing.assert_array_equal(first.solution_.coefficients, second.solution_.coefficients)
    np.testing.assert_array_equal(first.predict_proba(z), second.predict_proba(z))


def blas_threads():
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


def test_a_fit_on_any_thread_gives_the_same_bits_and_leaves_blas_as_it_was():
    data = synthetic(2000, 100, seed=0)

    def fit(i):
        return mc.ConditionalMCCT().fit(data.values, data.labels).solution_.coefficients

    before, here = blas_threads(), fit(0)
    with ThreadPoolExecutor(1) as other:
        (there,) = other.map(fit, range(1))
    np.testing.assert_array_equal(there, here)
    with ThreadPoolExecutor(2) as both:
        for result in both.map(fit, range(4)):
            np.testing.assert_array_equal(result, here)
    assert blas_threads() == before


def test_an_interrupt_while_the_caller_waits_leaves_no_thread_at_work():
    """A thread that went on would write where the next fit writes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main, done, other_began = threading.current_thread(), [], threading.Event()

    def slow_in_other_threads(i):
        if threading.current_thread() is main:
            other_began.wait(30)
            return
        other_began.set()
        time.sleep(0.1)  # by then the caller waits
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.4)
        done.append(i)

    def until_another_thread_has_come_in_time():
        for _ in range(100):
            other_began.clear()
            parallel_map(slow_in_other_threads, range(2))

    try:
        with pytest.raises(KeyboardInterrupt):
            until_another_thread_has_come_in_time()
        assert done
        assert all_meet(2)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_large_array_is_checked_on_threads(rows):
    z, y = rows[0].copy(), rows[1]
    z[[4321, 8000], 7] = np.nan
    with pytest.raises(mc.InputError, match="row 4321"):
        mc.MCCT().fit(z, y)
    z[[4321, 8000], 7] = 0.0
    z[8765, y[8765]] = -np.inf
    with pytest.raises(mc.InputError, match="row 8765"):
        mc.MCCT().fit(z, y)


def test_logits_whose_sum_overflows_are_no_reason_to_warn():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(120_000, 10)).astype(np.float32)
    labels = z.argmax(axis=1)
    z[[5, 70_000, 110_000], 3] = -1.7e38
    z[[6, 50_000, 100_000], 4] = -3e38
    z[9, 5] = -np.inf
    labels[[5, 6, 9, 50_000, 70_000, 100_000, 110_000]] = 0
    assert mc.MCCT().fit(z, labels).solution_.converged


AFTER_A_FORK = """
import os, threading, warnings
import monocal as mc
from monocal.data import synthetic
from monocal.parallel import parallel_map

warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
data = synthetic(6000, 600, seed=0, keep_truth=False)
def fit():
    return mc.MCCT().fit(data.values.astype("float32"), data.labels).solution_.coefficients.tobytes()
here = fit()  # the parent's threads wait now; a child has none of them
child = os.fork()
if child:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
barrier = threading.Barrier(2, timeout=300)
both = parallel_map(lambda i: (barrier.wait() >= 0) and i, range(2)) == [0, 1]
os._exit(not (both and fit() == here))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_has_threads_of_its_own():
    done = subprocess.run([sys.executable, "-c", AFTER_A_FORK], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


AT_EXIT = """
import atexit, threading
from monocal.parallel import run_parallel
from monocal.parallel import parallel_map
print(sum(parallel_map(lambda i: i, range(100))))
atexit.register(lambda: print(sum(parallel_map(lambda i: i, range(200)))))
threading.Thread(target=lambda: print(sum(parallel_map(lambda i: i, range(300))))).start()
"""


def test_the_interpreter_ends_while_threads_wait():
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, done.stdout.split())) == [4950, 19900, 44850]
    assert not done.stderr
