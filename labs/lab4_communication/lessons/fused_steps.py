"""Steps on real ranks: Horovod's all-reduces of a network's gradients, while an accelerator computes.

The accelerator is a timer. A rank waits until a gradient is due and then hands it to Horovod, so that its processor is
free to communicate as it is beside a GPU. All else is real: gradients of real sizes, fused, copied, sent and summed by
Horovod.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from course_lib.cost import overlap
from course_lib.ranks import launch

Job = tuple  # (elements of each gradient [T], when each is due [T])
WARM_UP_ROUNDS = 2  # that are not counted: Horovod allocates its buffers and fills its cache
SIMULATED_ROUNDS = 8
UNSTEADY = 1.4  # times as long as the other round


@dataclass(frozen=True)
class Run:
    """A setting, and what was measured with it.

    threshold in bytes, cycle in seconds; nbytes [T] of each gradient; ready [T]: when it was handed to Horovod, in
    seconds from the start of the backward pass (mean of the ranks' medians); seconds [steps]: of each step, on the
    slowest rank.
    """

    threshold: float
    cycle: float
    nbytes: np.ndarray
    ready: np.ndarray
    seconds: np.ndarray

    @property
    def typical(self) -> float:
        """The median of the steps."""
        return float(np.median(self.seconds))


def measure(jobs: Sequence[Job], threshold: float, cycle: float, *, ranks: int = 2, steps: int = 8) -> list[Run]:
    """Run steps on real ranks, of all jobs in turns, and time them: a Run for each job.

    Args:
        jobs: (elements, due): the numbers of each gradient, [T], float32, in forward order; when each is due, [T], in
            seconds from the start of the backward pass.
        threshold, cycle: HOROVOD_FUSION_THRESHOLD in bytes, HOROVOD_CYCLE_TIME in seconds.
        steps: that are timed.
    """
    environment = {
        "HOROVOD_FUSION_THRESHOLD": str(round(threshold)),
        "HOROVOD_CYCLE_TIME": f"{1000 * cycle:g}",
        "TF_NUM_INTEROP_THREADS": "2",  # one waits for the accelerator
    }
    by_rank = launch.call(lambda: _time_jobs(jobs, steps), ranks, env=environment)
    return [
        Run(
            threshold, cycle, 4.0 * np.asarray(elements),
            np.mean([np.median(ready, axis=0) for ready, _ in results], axis=0),
            np.max([seconds for _, seconds in results], axis=0),
        )
        for (elements, _), results in zip(jobs, zip(*by_rank))
    ]  # fmt: skip


def joined(rounds: Sequence[Sequence[Run]]) -> list[Run]:
    """The runs of several rounds with one setting, all their steps together."""
    return [
        replace(
            runs[0],
            ready=np.mean([run.ready for run in runs], axis=0),
            seconds=np.concatenate([run.seconds for run in runs]),
        )
        for runs in zip(*rounds)
    ]


def steadiness(rounds: Mapping[str, Sequence[Sequence[Run]]]) -> str:
    """A sentence on how well two rounds of the same setting agree: by it, differences of settings can be judged."""
    if all(len(measured) < 2 for measured in rounds.values()):
        return "One round only: how steady the machine is was not measured."
    apart = {name: max(map(_apart, zip(*measured))) for name, measured in rounds.items()}
    name, most = max(apart.items(), key=lambda pair: pair[1])
    if most > UNSTEADY:
        return (
            f"The machine is busy: with {name} one round took {most:.1f} times as long as the other. Close what else "
            "runs and repeat, or go by the recorded figure."
        )
    return f"The machine is steady: rounds of one setting differ by {100 * (most - 1):.0f} % at most."


def _apart(runs: Sequence[Run]) -> float:
    typical = [run.typical for run in runs]
    return max(typical) / min(typical)


def _time_jobs(jobs: Sequence[Job], steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """On a rank: for each job, when the gradients were handed over [steps, T], and seconds [steps]."""
    import horovod.tensorflow as hvd

    hvd.init()
    step_functions: dict[tuple, Callable] = {}
    for elements, _ in jobs:
        if tuple(elements) not in step_functions:
            step_functions[tuple(elements)] = _step_function(tuple(elements), f"network{len(step_functions)}")
    timed: list[list] = [[] for _ in jobs]
    for _ in range(WARM_UP_ROUNDS + steps):  # in turns, so that what else the machine does disturbs all of them
        for (elements, due), done in zip(jobs, timed):
            done.append(step_functions[tuple(elements)](np.asarray(due, float)))
    hvd.shutdown()
    return [tuple(np.array(column) for column in zip(*done[WARM_UP_ROUNDS:])) for done in timed]


def _step_function(elements: tuple[int, ...], name: str) -> Callable[[np.ndarray], tuple[np.ndarray, float]]:
    """A function that makes one step: due [T] → when the gradients were handed over [T], seconds."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    gradients = [tf.Variable(np.ones(size, np.float32)) for size in elements]
    began, handed = [0.0], np.zeros(len(elements))

    def wait(tensor: np.ndarray, moment: np.ndarray) -> np.ndarray:
        left = began[0] + moment - time.perf_counter()
        if left > 0:
            time.sleep(left)
        handed[tensor] = time.perf_counter() - began[0]
        return tensor

    @tf.function(input_signature=[tf.TensorSpec([len(elements)], tf.float64)])
    def reduce(due: tf.Tensor) -> list[tf.Tensor]:
        waited, sums = tf.constant(0), []
        for tensor in reversed(range(len(elements))):
            with tf.control_dependencies([waited]):
                waited = tf.numpy_function(wait, [np.int32(tensor), due[tensor]], tf.int32)
            with tf.control_dependencies([waited]):
                gradient = tf.identity(gradients[tensor])
            sums.append(hvd.allreduce(gradient, op=hvd.Sum, name=f"{name}.{tensor}"))
        return sums  # what is not returned would not be calculated

    def step(due: np.ndarray) -> tuple[np.ndarray, float]:
        moments = tf.constant(due)
        began[0] = time.perf_counter()
        reduce(moments)
        return handed.copy(), time.perf_counter() - began[0]

    return step


@dataclass(frozen=True)
class Machine:
    """What a machine's fused all-reduces cost, in seconds.

    alpha: a message; beta: a byte of it; copy: a byte that goes through the fusion buffer; negotiation: a cycle with
    work.
    """

    alpha: float
    beta: float
    copy: float
    negotiation: float

    def seconds(self, runs: Sequence[Run]) -> np.ndarray:
        """Predicted seconds of a step of each of the runs of one launch, where they take turns.

        The cycles go on from step to step, so when a step's first cycle begins depends on the step before. Nothing
        that was measured is looked at but when the gradients were ready.
        """
        costs = {"copy": self.copy, "negotiation": self.negotiation, "blocking": True}
        first, took = 0.0, []
        for _ in range(SIMULATED_ROUNDS):
            for run in runs:
                step = overlap.step(
                    run.ready, run.nbytes, self._all_reduce, run.threshold, run.cycle, first=first, **costs
                )
                took.append(step.seconds)
                first = step.next_cycle - step.seconds
        return np.reshape(took, (SIMULATED_ROUNDS, len(runs)))[WARM_UP_ROUNDS:].mean(0)

    def _all_reduce(self, nbytes: np.ndarray) -> np.ndarray:
        return self.alpha + self.beta * nbytes


def compare(machine: Machine, runs: Mapping[str, Sequence[Run]], used: Mapping[str, str]) -> pd.DataFrame:
    """A row for each run: setting, backward, used, measured (median), low and high (quartiles), predicted; seconds.

    Args:
        runs: setting → its runs. used: setting → "fit" or "test".
    """
    return pd.DataFrame(
        {
            "setting": name,
            "used": used[name],
            "backward": run.ready.max(),
            "measured": run.typical,
            "low": np.quantile(run.seconds, 0.25),
            "high": np.quantile(run.seconds, 0.75),
            "predicted": predicted,
        }
        for name, measured in runs.items()
        for run, predicted in zip(measured, machine.seconds(measured))
    )


INITIAL_GUESS = Machine(alpha=3e-4, beta=1e-9, copy=5e-10, negotiation=3e-4)
PRIOR_WEIGHT = 1e-3  # of a factor e away from INITIAL_GUESS, beside one between predicted and measured


def fit(launches: Sequence[Sequence[Run]]) -> Machine:
    """The machine whose predictions come closest to what was measured: least squares on the logarithms.

    A step's time is no straight line in the parameters, so it is linearised again and again (Gauss and Newton, damped
    by Levenberg). What they can't tell stays near INITIAL_GUESS.
    """
    names = ("alpha", "beta", "copy", "negotiation")
    measured = np.log([run.typical for runs in launches for run in runs])
    origin = np.log([getattr(INITIAL_GUESS, name) for name in names])

    def predicted(logs: np.ndarray) -> np.ndarray:
        machine = replace(INITIAL_GUESS, **dict(zip(names, np.exp(logs))))
        return np.log(np.concatenate([machine.seconds(runs) for runs in launches]))

    def cost(logs: np.ndarray) -> float:
        return float(((predicted(logs) - measured) ** 2).sum() + PRIOR_WEIGHT * ((logs - origin) ** 2).sum())

    logs, damping = origin, 0.01
    for _ in range(12):
        now = predicted(logs)
        slopes = np.stack([(predicted(logs + 0.05 * axis) - now) / 0.05 for axis in np.eye(4)], 1)
        gradient = slopes.T @ (measured - now) + PRIOR_WEIGHT * (origin - logs)
        square = slopes.T @ slopes + PRIOR_WEIGHT * np.eye(4)
        move = np.clip(np.linalg.solve(square + damping * np.eye(4), gradient), -1, 1)
        if cost(logs + move) < cost(logs):
            logs, damping = logs + move, damping / 4
        else:
            damping *= 10
    return replace(INITIAL_GUESS, **dict(zip(names, np.exp(logs).tolist())))
