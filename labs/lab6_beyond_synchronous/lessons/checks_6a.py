"""Checks of notebook 6a: what the server answers, staleness, the mean of late gradients, their rates, overlaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_lib.notebook.answers import array, case, compare, name_mistake, number, returned, same, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab6_beyond_synchronous.lessons import bowl, ratings
from labs.lab6_beyond_synchronous.lessons.asynchronous import Arrivals
from labs.lab6_beyond_synchronous.lessons.parameter_server import Server

# --- arrived

ETA = 0.3  # 1 / ETA is no quorum: else a sum with η could pass for a mean without it


def _plays(quorum: int, order: Sequence[int]) -> Callable[[Callable], None]:
    """Let gradients of these workers arrive, one after the other."""

    def judge(arrived: Callable) -> None:
        random = np.random.default_rng(quorum)
        server, waiting = Server(random.normal(size=4), ETA, quorum), {}
        for step, worker in enumerate(order, 1):
            gradient = random.normal(size=4)
            waiting[worker] = gradient.copy()
            before, updates = server.weights.copy(), server.updates
            with case(f"quorum {quorum}, gradient {step}, of worker {worker}"):
                answers = arrived(server, worker, gradient.copy())
                if answers is None and len(waiting) < quorum:
                    raise Wrong(
                        f"only {len(waiting)} of {quorum} gradients have come: nobody is answered. Return {{}}."
                    )
                answers = returned(answers)
                if not isinstance(answers, dict):
                    raise Wrong(f"it returns {type(answers).__name__} where a dict is expected: worker → weights.")
                weights = array(server.weights, (4,), "as server.weights it")
                if len(waiting) < quorum:
                    _nothing_yet(answers, before, weights, len(waiting), quorum)
                    continue
                _update(before, weights, list(waiting.values()))
                if server.updates != updates + 1:
                    raise Wrong(f"server.updates goes from {updates} to {server.updates}: it counts the updates made.")
                _answered(answers, before, weights, set(waiting))
                if server.waiting:
                    raise Wrong("the gradients stay in server.waiting: the next update would take them again.")
                waiting = {}

    return judge


def _nothing_yet(answers: dict, before: np.ndarray, weights: np.ndarray, come: int, quorum: int) -> None:
    if not same(weights, before):
        raise Wrong(f"the weights change, though only {come} of {quorum} gradients have come.")
    if answers:
        raise Wrong(f"it answers, though only {come} of {quorum} gradients have come: who handed in has to wait.")


def _update(before: np.ndarray, weights: np.ndarray, gradients: list[np.ndarray]) -> None:
    mean = np.mean(gradients, 0)
    if same(weights, before):
        raise Wrong("the weights stay as they are, though enough gradients have come.")
    mistakes = {
        "the weights move up the slope: subtract.": before + ETA * mean,
        "η is not applied.": before - mean,
        "the gradients are added up: take their mean.": before - ETA * np.sum(gradients, 0),
        "only the last gradient is used; the others wait in server.waiting.": before - ETA * gradients[-1],
    }
    compare(weights, before - ETA * mean, "the weights", mistakes)


def _answered(answers: dict, before: np.ndarray, weights: np.ndarray, waiting: set[int]) -> None:
    if too_many := set(answers) - waiting:
        raise Wrong(f"it answers worker {min(too_many)}, which is still calculating and has asked for nothing.")
    if left := waiting - set(answers):
        raise Wrong(f"worker {min(left)} has handed in and gets no answer: it would wait for ever.")
    for worker, sent in answers.items():
        sent = array(sent, weights.shape, f"for worker {worker} it")
        name_mistake(sent, weights, {f"worker {worker} is sent the weights from before the update.": before})
        if not same(sent, weights):
            raise Wrong(f"worker {worker} is sent other weights than the server's.")


# --- staleness

ORDERS = {
    "turns": ([0, 1, 2, 0, 1, 2, 0, 1, 2], "three workers in turn"),
    "first": ([0, 0, 1, 0, 2, 1, 2], "workers that hand in late for the first time"),
    "slow": ([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0], "a fast worker and a slow one"),
}


def _reference(worker: Sequence[int]) -> np.ndarray:
    return Arrivals(max(worker) + 1, np.array(worker), np.arange(len(worker))).staleness


def _stale(name: str) -> Callable[[Callable], None]:
    order, told = ORDERS[name]

    def judge(staleness: Callable) -> None:
        given = np.array(order)
        with unchanged(given):
            found = staleness(given)
        right = _reference(order)
        first = np.array([order.index(worker) == update for update, worker in enumerate(order)])
        with case(f"{told}, {order}"):
            found = array(found, right.shape)
            mistakes = {
                "each is one too many. A gradient whose weights nobody else changed is not stale: 0.": right + 1,
                "a worker's first gradient is stale, too, if others came before it: it was taken at the first weights.":
                    np.where(first, 0, right),
                "each is one too many, but for the first of a worker. Its own last update was in what it read.":
                    np.where(first, right, right + 1),
                "that is the number of a worker's own updates; asked for is what the others did meanwhile.":
                    np.array([order[:update].count(worker) for update, worker in enumerate(order)]),
                "that is how many updates there were in all; those that the worker had already read don't count.":
                    np.arange(len(order)),
            }  # fmt: skip
            name_mistake(found, right, mistakes)
            if not same(found, right):
                at = int(np.argmax(found != right))
                raise Wrong(f"in update {at} the staleness should be {right[at]}; it is {found[at]:g}.")

    return judge


# --- disguise

SETTINGS = ((2, 0.1), (4, 0.2), (10, 0.05), (32, 0.3))


def _pair(answer: object) -> tuple[float, float]:
    momentum, rate = several(answer, "momentum", "rate")
    return number(momentum, "as momentum it"), number(rate, "as rate it")


def _disguised_momentum(disguise: Callable) -> None:
    for workers, eta in SETTINGS:
        momentum, _ = _pair(disguise(workers, eta))
        mistakes = {
            "that is the chance that a worker is the next to hand in; what stays of ḡ?": 1 / workers,
            "momentum and rate are exchanged.": eta / workers,
            "that is the mean staleness. A momentum of 1 or more would never fade.": float(workers - 1),
        }
        compare(momentum, 1 - 1 / workers, f"for {workers} workers the momentum", mistakes)


def _disguised_rate(disguise: Callable) -> None:
    for workers, eta in SETTINGS:
        _, rate = _pair(disguise(workers, eta))
        mistakes = {
            f"with this rate and this momentum a gradient moves w by {workers} η in the end; a late one moves it by η.":
                eta,
            f"a step of a late gradient is not larger than η, but spread over {workers} updates, on average.":
                eta * workers,
            "that is η times the momentum; what share of ḡ is new in each update?": eta * (1 - 1 / workers),
        }  # fmt: skip
        compare(rate, eta / workers, f"for {workers} workers and η = {eta:g} the rate", mistakes)


def _alone(disguise: Callable) -> None:
    momentum, rate = _pair(disguise(1, 0.3))
    if not (same(momentum, 0.0, atol=1e-12) and same(rate, 0.3)):
        raise Wrong(f"one worker alone is plain descent: momentum 0 and η = 0.3. It returns {momentum:g} and {rate:g}.")


# --- rate_for

WORKERS = (1, 4, 16, 64)
GOOD, FAIR = 0.012, 0.02


def _fresh(rate_for: Callable) -> None:
    for eta in (bowl.RATE, 0.1):
        found = number(rate_for(0, eta))
        if not same(found, eta):
            raise Wrong(
                f"a gradient that is not stale should get all of η = {eta:g}, as for one worker; it gets {found:g}."
            )


def _falls(rate_for: Callable) -> None:
    found = np.array([number(rate_for(stale, 1.0)) for stale in range(200)])
    if found.min() < 0:
        raise Wrong(f"for a staleness of {int(found.argmin())} the rate is negative.")
    if np.diff(found).max() > 1e-12:
        at = int(np.argmax(np.diff(found) > 1e-12))
        raise Wrong(f"the rate grows from staleness {at} to {at + 1}: an older gradient is never the better one.")
    if same(found, np.ones(200)):
        raise Wrong("the rate is the same for all.")
    if not same(number(rate_for(3, 0.5)), 0.5 * found[3]):
        raise Wrong("with half of η every gradient should get half: the result is proportional to η.")


def _survives(rate_for: Callable) -> str:
    with np.errstate(all="ignore"):
        found = bowl.losses(lambda stale: number(rate_for(stale, bowl.RATE)), WORKERS)
    worst = int(found.argmax())
    told = ", ".join(f"{workers}: {loss:.2g}" for workers, loss in zip(WORKERS, found))
    if found[worst] <= GOOD:
        return f"The loss by workers is {told}; asked for was at most {GOOD:g}."
    weight = sum(rate_for(stale, 1.0) for stale in range(400))
    if found[worst] > 1:
        hint = f"with {WORKERS[worst]} workers it diverges: late gradients still get too much."
    elif weight < 3:
        hint = "stale gradients hardly count, so that of 64 workers most work in vain."
    else:
        hint = "compare with N: how large a rate do N workers stand, whose staleness is N − 1 on average?"
    raise Wrong(f"the loss by workers is {told}; it should be at most {GOOD:g}: {hint}", 0.5 * (found[worst] <= FAIR))


# --- common

CLOSE = 0.05  # relative: who counts pairs that were drawn at random is not exact


def _overlaps(popularity: float) -> Callable[[Callable], None]:
    def judge(common: Callable) -> None:
        for values in (20, 40):
            problem = ratings.Sparse.drawn(4_000, values, popularity)
            with unchanged(problem.features):
                found = number(common(problem.features))
            examples, fields = problem.features.shape
            touched = np.bincount(problem.features.ravel())
            right = float(((touched / examples) ** 2).sum())
            mistakes = {
                "the shares are those of all entries; a weight's share is that of the examples that touch it.":
                    right / fields**2,
                "that would be so if all weights were equally frequent.": fields**2 / len(touched),
                "that is the share of an example's weights, not their number.": right / fields,
                "that is the number of weights of one example.": float(fields),
                "that is a mean over the weights; asked for is their number: add up.": right / len(touched),
                "that counts pairs of examples. What is the chance that a random pair touches the weight?":
                    right * examples**2,
            }  # fmt: skip
            told = f"{fields} fields of {values} values{', few of them frequent' * (popularity > 0)}: the number"
            compare(found, right, told, mistakes, rtol=CLOSE)

    return judge


EXERCISES = Exercises(
    Exercise(
        "arrived",
        Criterion("asynchronous", "Nobody waits", 0.4, _plays(1, (0, 0, 1, 0, 2, 1))),
        Criterion("synchronous", "All wait for all", 0.3, _plays(3, (2, 0, 1, 0, 1, 2))),
        Criterion("between", "Two of three", 0.3, _plays(2, (0, 2, 2, 0, 1, 0, 2, 1))),
    ),
    Exercise(
        "staleness",
        Criterion("turns", "In turn", 0.3, _stale("turns")),
        Criterion("first", "First gradients", 0.3, _stale("first")),
        Criterion("slow", "A slow worker", 0.4, _stale("slow")),
    ),
    Exercise(
        "disguise",
        Criterion("momentum", "Momentum", 0.5, _disguised_momentum),
        Criterion("rate", "Rate", 0.3, _disguised_rate),
        Criterion("alone", "One worker", 0.2, _alone),
    ),
    Exercise(
        "rate_for",
        Criterion("fresh", "Fresh gradients", 0.2, _fresh),
        Criterion("falls", "Never more for the older one", 0.2, _falls),
        Criterion("measured", "One rate for 1 to 64 workers", 0.6, _survives),
    ),
    Exercise(
        "common",
        Criterion("even", "Equally frequent", 0.4, _overlaps(0.0)),
        Criterion("uneven", "Few are frequent", 0.6, _overlaps(1.0)),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
