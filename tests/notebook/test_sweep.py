"""Many runs of one experiment, and the fair choice of a setting."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import pandas as pd
import psutil
import pytest

from course_lib.notebook import sweep
from course_lib.ranks.environment import ONE_THREAD
from course_lib.system.errors import CourseError

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers can't import a test


@pytest.fixture(autouse=True)
def two_workers(monkeypatch):
    monkeypatch.setattr(sweep, "available_cores", lambda: 2)


PLAN = [{"rate": rate, "seed": seed} for rate in (3, 1, 2) for seed in (0, 1)]


def square(rate, seed):
    import os
    import time

    time.sleep(0.2 if rate == 3 else 0)  # so that the first runs end last
    return {"loss": rate**2 + seed, "threads": os.environ["OMP_NUM_THREADS"], "process": os.getpid()}


def test_a_row_for_each_run_in_the_order_of_the_plan():
    reports = []
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    table = sweep.run(square, PLAN, report=lambda row, done, total: reports.append((done, total)))
    assert table[["rate", "seed"]].to_dict("records") == PLAN
    assert list(table["loss"]) == [9, 10, 1, 2, 4, 5]
    assert set(table["threads"]) == {"1"} and os.getpid() not in set(table["process"])
    assert reports == [(n, 6) for n in range(1, 7)]
    assert {name: os.environ.get(name) for name in ONE_THREAD} == before


def test_a_failing_run_does_not_wait_for_the_others():
    def fail_or_wait(seed):
        import time

        if seed == 1:
            raise ValueError("no such seed")
        time.sleep(600)

    with pytest.raises(ValueError, match="no such seed"):
        sweep.run(fail_or_wait, [{"seed": 0}, {"seed": 1}])


def test_a_worker_that_dies_ends_the_sweep_with_one_sentence():
    def die(seed):
        import os
        import signal
        import time

        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    with pytest.raises(CourseError, match=r"^A worker process died [^.]*\.$"):
        sweep.run(die, [{"seed": 0}, {"seed": 1}, {"seed": 2}])
    assert multiprocessing.active_children() == []


def test_an_interrupt_leaves_no_worker():
    script = """
from course_lib.notebook import sweep
def wait(n):
    import os, time
    os.write(1, b"up\\n")
    time.sleep(600)
if __name__ == "__main__":
    sweep.available_cores = lambda: 2
    sweep.run(wait, [{"n": 1}, {"n": 2}])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )  # fmt: skip
    workers = []
    try:
        for _ in range(2):
            assert process.stdout.readline() == "up\n"
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
        assert psutil.wait_procs(workers, timeout=10)[1] == []
    finally:
        for left in (process, *workers):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


def test_the_best_setting_by_the_mean_over_seeds():
    table = pd.DataFrame(
        [
            ("SGD", 0.1, 0, 0.9), ("SGD", 0.1, 1, 0.5), ("SGD", 0.2, 0, 0.8), ("SGD", 0.2, 1, 0.8),
            ("Adam", 0.1, 0, 0.6), ("Adam", 0.1, 1, 0.6), ("Adam", 0.2, 0, 0.9), ("Adam", 0.2, 1, None),
        ],
        columns=["method", "rate", "seed", "accuracy"],
    )  # fmt: skip
    chosen = sweep.best(table, ["method"], "rate", "accuracy")
    assert chosen.set_index("method")["rate"].to_dict() == {"SGD": 0.2, "Adam": 0.1}


def test_of_equals_the_smallest():
    table = pd.DataFrame({"batch": 8, "rate": [0.2, 0.1], "accuracy": [0.5, 0.5]})
    assert sweep.best(table, ["batch"], "rate", "accuracy")["rate"].tolist() == [0.1]


def test_each_setting_is_tuned_and_then_scored_with_other_seeds(monkeypatch):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    right = {("SGD", 64): 0.2, ("Adam", 64): 0.1, ("SGD", 8): 0.1}
    tries = [{"method": m, "batch": b, "rate": rate} for m, b in right for rate in (0.1, 0.2, 0.3)]

    def run(method, batch, rate, seed, use):
        return {"accuracy": 1 - abs(rate - right[method, batch])}

    def scored(chosen):
        return [*chosen, {**chosen[0], "rate": 0.9, "use": "another"}]

    table = sweep.tune_then_score(run, tries, "rate", "accuracy", (101, 102), (1, 2, 3), scored)
    uses = dict(list(table.groupby("use")))
    assert len(uses["tuning"]) == len(tries) * 2 and set(uses["tuning"]["seed"]) == {101, 102}
    result = uses["result"].groupby(["method", "batch"], sort=False)
    assert {key: tuple(rows["seed"]) for key, rows in result} == dict.fromkeys(right, (1, 2, 3))
    assert {key: set(rows["rate"]) for key, rows in result} == {key: {rate} for key, rate in right.items()}
    assert uses["another"]["rate"].tolist() == [0.9] * 3 and table["use"].iloc[0] == "tuning"
    assert sweep.describe_seeds((101, 102), (1, 2, 3)).startswith("101, 102 to choose")
