"""Many runs of one experiment, one per core, and a fair choice of hyperparameters.

To compare methods, each method tries the same number of settings on validation data (`best`). Then it runs again with
its best setting, and with seeds that were not used for the choice.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import cloudpickle
import pandas as pd

from course_lib import statistics
from course_lib.ranks import environment
from course_lib.system.cores import available_cores
from course_lib.system.errors import CourseError


def run(
    function: Callable[..., Mapping[str, Any]],
    plan: Iterable[Mapping[str, Any]],
    *,
    report: Callable[[dict[str, Any], int, int], Any] | None = None,
) -> pd.DataFrame:
    """Call `function(**settings)` for each of the settings in `plan`, one call per core at a time.

    An interrupt or a failing call ends all workers.

    Args:
        function: returns a dict. It should import TensorFlow when it is called, not before.
        plan: settings of each call.
        report: called after each call with its row, the number of finished calls and their total.

    Returns:
        One row for each call, in the order of the plan, with its settings and what the function returned.

    Raises:
        CourseError: a worker died.
        Exception: the exception of a failing call.
    """
    plan = [dict(settings) for settings in plan]
    rows: list[dict[str, Any]] = [{}] * len(plan)
    with _environment(), _workers(available_cores()) as pool:
        jobs = {
            pool.submit(_call, cloudpickle.dumps((function, settings))): number for number, settings in enumerate(plan)
        }
        for done, job in enumerate(as_completed(jobs), 1):
            number = jobs[job]
            rows[number] = {**plan[number], **job.result()}
            if report:
                report(rows[number], done, len(plan))
    return pd.DataFrame(rows)


def print_row(row: Mapping[str, Any], done: int, total: int) -> None:
    """Print a row as one line."""
    print(f"[{done}/{total}] " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def tune_then_score(
    function: Callable[..., Mapping[str, Any]],
    tries: Sequence[Mapping[str, Any]],
    choose: str,
    score: str,
    tuning_seeds: Iterable[int],
    seeds: Iterable[int],
    scored: Callable[[list[dict[str, Any]]], Iterable[Mapping[str, Any]]] | None = None,
) -> pd.DataFrame:
    """Tune one hyperparameter of each setting with the tuning seeds, then run each setting with other seeds.

    Every run gets its settings, `seed` and `use`: "tuning", then "result".

    Args:
        tries: the runs of the tuning; each combines a setting with a value of `choose`. All entries except `choose`
            make up the setting.
        choose: name of the hyperparameter.
        score: name of the result that is maximised, as in `best`.
        scored: maps the tuned settings, in the order of `tries`, to the settings that run with `seeds`; it may add
            some. An entry `use` overrides "result".

    Returns:
        The rows of all runs, those of the tuning first.
    """
    by = [column for column in tries[0] if column != choose]
    tuning = run(
        function, [{**one, "seed": seed, "use": "tuning"} for one in tries for seed in tuning_seeds], report=print_row
    )
    settings = pd.DataFrame(tries)[by].drop_duplicates()
    chosen = settings.merge(best(tuning, by, choose, score), on=by).to_dict("records")
    plan = scored(chosen) if scored else chosen
    results = run(
        function,
        [{**one, "seed": seed, "use": one.get("use", "result")} for one in plan for seed in seeds],
        report=print_row,
    )
    return pd.concat([tuning, results], ignore_index=True)


def describe_seeds(tuning_seeds: Sequence[int], seeds: Sequence[int]) -> str:
    """A text on the seeds for tuning the learning rate and for the results, for a `Recording`."""
    return f"{', '.join(map(str, tuning_seeds))} to choose the learning rate, {seeds[0]} to {seeds[-1]} for the results"


def summary(table: pd.DataFrame, by: Sequence[str], score: str) -> pd.DataFrame:
    """The mean `score` over the result seeds, and half the width of its 95 % interval: columns `by`, mean, half."""
    rows = table[table["use"] == "result"]
    means = rows.groupby(list(by), sort=False)[score].agg(lambda values: statistics.mean(values))
    return pd.DataFrame(means.tolist(), index=means.index, columns=["mean", "half"]).reset_index()


def best(table: pd.DataFrame, by: Sequence[str], choose: str, score: str) -> pd.DataFrame:
    """For each combination of the columns `by`, the value of column `choose` with the highest mean `score`.

    The mean is over the runs with that value; a missing score counts as the worst. Among equal means, the smallest
    value is chosen. Returns a table with the columns `by` and `choose`.
    """
    worst = table.assign(**{score: table[score].fillna(float("-inf"))})
    means = worst.groupby([*by, choose], as_index=False)[score].mean()
    ranked = means.sort_values([score, choose], ascending=[False, True], kind="stable")
    return ranked.groupby(list(by), as_index=False, sort=False).first()[[*by, choose]]


def _call(pickled: bytes) -> Mapping[str, Any]:
    function, settings = cloudpickle.loads(pickled)
    return function(**settings)


@contextlib.contextmanager
def _workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """A process pool that ends its workers at once if the block raises an exception."""
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _ignore_interrupt) as pool:
        try:
            yield pool
        except BaseException as error:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise CourseError(
                    "A worker process died during a run, perhaps because memory ran out: close other programs, or run "
                    "fewer workers at once."
                ) from None
            raise


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    settings = {**environment.ONE_THREAD, **environment.QUIET}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
