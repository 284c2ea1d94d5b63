"""Loops that helper threads take part in: every part once, whoever takes it, and nobody waits for who does not come."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from specpilot_kernels import cpu_jit, cpu_pool, cpu_scarcity
from specpilot_kernels.cpu_jit import inlined, kernel
from specpilot_kernels.cpu_pool import job_of, num_helped, pool_for, run_parts


@inlined
def _count(part: int, counts: Any, work: int) -> None:
    """Some work, so that helpers come in time, and a mark."""
    total = 0
    for i in range(work):
        total += i ^ counts[part]
    counts[part] += 1 if total >= 0 else 2


@kernel("b1(i8[::1], i8, i8)")
def count_parts(counts: Any, work: int, pool: int) -> bool:
    return run_parts(pool, job_of(_count, (counts, work)), counts.shape[0])


@inlined
def _stick(part: int, last: int) -> None:
    """The last part takes long, the others less."""
    total = part
    for i in range(10_000_000 if part == last else 500_000):
        total = (total * 5 + i) ^ (total >> 7)
    if total == 1:
        print(total)


@kernel("void(i8, i8)")
def count_stuck(num_parts: int, pool: int) -> None:
    run_parts(pool, job_of(_stick, (num_parts - 1,)), num_parts)


def _skip_on_one_cpu() -> None:
    if cpu_jit.max_threads() < 2:
        pytest.skip("this process has one CPU: a helper never comes while the caller is at work")


class _NoRest:
    def is_on(self) -> bool:
        return False


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The pool with one helper."""
    _skip_on_one_cpu()
    before = cpu_jit.num_threads()
    monkeypatch.setattr(cpu_jit, "_num_threads", 2)
    # A machine that is busy with other tests would have the pool rest; how it does has a test of its own.
    monkeypatch.setattr(cpu_pool, "_rest", _NoRest())
    yield pool_for(cpu_pool.SHARE_FROM)
    cpu_jit.set_num_threads(before)


def wait_until(condition: Any) -> bool:
    for _ in range(2000):
        if condition():
            return True
        time.sleep(0.005)
    return False


def test_every_part_is_run_once_by_whoever_takes_it(pool: int) -> None:
    """Until helpers have taken some hundred parts of loops of all lengths, however busy the machine is."""
    rng, before, num_loops = np.random.default_rng(0), num_helped(), 0

    def is_enough() -> bool:
        nonlocal num_loops
        for _ in range(100):
            counts = np.zeros(rng.integers(2, 40), np.int64)
            work = int(rng.choice((0, 30, 300, 3000)))
            assert count_parts(counts, work, pool_for(cpu_pool.SHARE_FROM))
            assert (counts == 1).all()
        num_loops += 100
        return num_loops >= 3000 and num_helped() - before >= 300

    assert wait_until(is_enough)


def test_a_helper_sleeps_when_nothing_comes_and_is_woken_by_the_next_loop(pool: int) -> None:
    (helper, *_) = cpu_pool._helpers
    assert wait_until(lambda: helper.is_asleep)
    assert pool_for(cpu_pool.SHARE_FROM) and not helper.is_asleep
    assert wait_until(lambda: helper.is_asleep)


def test_loops_of_two_threads_do_not_mix(pool: int) -> None:
    faults: list[int] = []
    num_shared = [0, 0, 0]

    def run_many(index: int) -> None:
        for _ in range(2000):
            counts = np.zeros(24, np.int64)
            num_shared[index] += count_parts(counts, 200, pool)
            if not (counts == 1).all():
                faults.append(1)

    threads = [threading.Thread(target=run_many, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and all(num_shared)


def test_too_few_or_too_many_parts_and_those_without_a_pool_are_the_callers_own(pool: int) -> None:
    for num_parts, at in ((1, pool), (cpu_pool.MOST_PARTS + 1, pool), (5, 0)):
        counts = np.zeros(num_parts, np.int64)
        assert not count_parts(counts, 1, at) and (counts == 1).all()


def test_little_work_and_a_single_thread_are_not_shared(pool: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_for(cpu_pool.SHARE_FROM - 1) == 0
    monkeypatch.setattr(cpu_jit, "_num_threads", 1)
    assert pool_for(2**40) == 0


def test_sharers_of_the_threads_leave_the_helpers_alone(pool: int) -> None:
    seen: list[int] = []

    def ask() -> None:
        cpu_jit.share_threads(2)
        seen.append(pool_for(2**40))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == [0] and pool_for(2**40) == pool


@pytest.mark.parametrize("sign", ["stuck helper", "waiting for a core"])
def test_where_cores_are_scarce_nothing_is_shared_for_longer_and_longer(
    sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waited_s = 100.0, 0.0
    stuck = clock = 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(cpu_scarcity, "waited_s", lambda: waited_s)
    rest, lengths = cpu_scarcity.Rest(lambda: [stuck, clock]), []
    for pause in (0.05, 0.05, 0.05, 0.05, 100.0, 0.05):
        now += 0.03
        waited_s += 0.001  # less than matters
        stuck += 1_000
        clock += 30_000
        assert not rest.is_on()
        now += pause
        clock += 1_000_000
        if sign == "stuck helper":
            stuck += 400_000
        else:
            waited_s += pause / 2
        began = now
        while rest.is_on():
            now += 0.05
        lengths.append(now - began)
    assert lengths == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.1, 0.2], abs=0.06)


def test_waiting_for_a_core_is_seen_where_the_system_tells() -> None:
    if not os.path.exists("/proc/thread-self/schedstat"):
        pytest.skip("this system does not tell how long a thread waits")
    before = cpu_scarcity.waited_s()
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        assert wait_until(lambda: sum(range(10_000)) and cpu_scarcity.waited_s() > before)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_helper_that_is_stuck_is_noticed(pool: int) -> None:
    before = int(cpu_pool._pool[cpu_pool._STUCK])

    def is_noticed() -> bool:
        count_stuck(2, pool_for(cpu_pool.SHARE_FROM))
        return int(cpu_pool._pool[cpu_pool._STUCK]) > before

    assert wait_until(is_noticed)


FORKED = """
import os, time, warnings
import numpy as np
warnings.simplefilter("ignore")
from specpilot_kernels import cpu_jit, cpu_pool
from tests.kernels.test_cpu_pool import _NoRest, count_parts
cpu_jit._num_threads, cpu_pool._rest = 2, _NoRest()

def run(until):
    begin = time.monotonic()
    while not until() and time.monotonic() - begin < 60:
        counts = np.zeros(64, np.int64)
        assert count_parts(counts, 5000, cpu_pool.pool_for(2**40)) and (counts == 1).all()

for index in range(20):
    run(lambda: cpu_pool.num_helped() > 0)
    time.sleep(index * 3e-5)  # the helper spins, falls asleep or sleeps
    cpu_pool._pool[cpu_pool._OWNER] = 1  # as if another thread's loop ran
    child = os.fork()
    if child == 0:
        before = cpu_pool.num_helped()
        run(lambda: cpu_pool.num_helped() > 0)
        os._exit(0 if before == 0 and cpu_pool.num_helped() > 0 else 3)
    cpu_pool._pool[cpu_pool._OWNER] = 0
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("ok")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_helpers_of_its_own() -> None:
    _skip_on_one_cpu()
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["ok"], done.stdout + done.stderr


WITHOUT_HELP = """
import numpy as np
from specpilot_kernels import cpu_pool
from tests.kernels.test_cpu_pool import count_parts
counts = np.zeros(500, np.int64)
assert not cpu_pool._helpers
assert count_parts(counts, 10, cpu_pool._POOL) and (counts == 1).all()
assert cpu_pool.num_helped() == 0
print("ok")
"""


def test_nobody_waits_for_helpers_that_do_not_come() -> None:
    """No helper at all is the extreme of one whose core is taken."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HELP],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["ok"], done.stderr
