"""Notebook 5d: prunings with one mistake each, to be recognised by their symptoms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from course_lib.notebook import diagnosis
from labs.lab5_precision_and_memory.lessons import pruning

DENSITY, RATE, SEED = 0.1, 0.05, 1
MISTAKES = {
    1: "the mask is applied once, and not after the updates",
    2: "weights are ranked with their signs",
    3: "the smallest weights stay, and the largest go",
    4: "one threshold for the kernels together, so that one of them loses far more than another",
    5: "the weights that stay are chosen at random",
    6: "the weights start anew after the pruning",
}
_PATIENTS = {"A": 2, "B": 1, "C": 5, "D": 4}


def _mistaken(mistake: int) -> Callable[[pruning.Network], None]:
    """What prunes a network to DENSITY with a mistake of MISTAKES; 0 makes none."""

    def prune(network: pruning.Network) -> None:
        if mistake == 2:
            network.prune(DENSITY, choose=lambda kernel, density, _: _largest(kernel, density))
        elif mistake == 3:
            network.prune(DENSITY, choose=lambda kernel, density, _: _largest(-np.abs(kernel), density))
        elif mistake == 4:
            together = np.concatenate([np.abs(kernel.numpy()).ravel() for kernel in network.kernels])
            threshold = np.quantile(together, 1 - DENSITY)
            network.prune(DENSITY, choose=lambda kernel, *_: np.abs(kernel) > threshold)
        else:
            network.prune(DENSITY, random=np.random.default_rng(SEED) if mistake == 5 else None)
        if mistake == 6:
            fresh = pruning.initial_weights(SEED + 1)
            network.model.set_weights(fresh)
            for kernel, stay in zip(network.kernels, network.stay):
                kernel.assign(kernel * stay)
        network.regrow = mistake == 1

    return prune


def _largest(values: np.ndarray, density: float) -> np.ndarray:
    stay = np.zeros(values.size, bool)
    stay[np.argsort(values, axis=None)[-round(density * values.size) :]] = True
    return stay.reshape(values.shape)


def observe(mistake: int, epochs: int = 2) -> pd.Series:
    """Prune the trained network, train it again, and note what can be seen of it; 0 makes no mistake."""
    problem, network = pruning.fashion(), pruning.trained(SEED)
    dense = [kernel.numpy() for kernel in network.kernels]
    _mistaken(mistake)(network)
    pruned = [kernel.numpy() for kernel in network.kernels]
    network.settle(problem.train)
    before = network.accuracy(problem.validation)
    network.train(problem.train, RATE, SEED, epochs=epochs)
    seen: dict[str, str] = {}
    for name, old, new, kernel in zip(("2nd kernel", "3rd kernel"), dense, pruned, network.kernels):
        stays = new != 0
        seen |= {
            f"{name}: not 0 after pruning": f"{stays.mean():.1%}",
            f"{name}: not 0 at the end": f"{np.mean(kernel.numpy() != 0):.1%}",
            f"{name}: positive among those that stay": f"{np.mean(new[stays] > 0):.0%}",
            f"{name}: mean size before, stays / goes": f"{np.abs(old[stays]).mean() / np.abs(old[~stays]).mean():.2f}",
            f"{name}: as before the pruning, of those that stay": f"{np.mean(new[stays] == old[stays]):.0%}",
        }
    seen["accuracy after the pruning"] = f"{before:.1%}"
    seen["accuracy at the end"] = f"{network.accuracy(problem.validation):.1%}"
    return pd.Series(seen)


def patients(epochs: int = 2) -> pd.DataFrame:
    """The healthy pruning, and those of the patients, a column for each."""
    columns = {"healthy": observe(0, epochs)}
    return pd.DataFrame({**columns, **{name: observe(mistake, epochs) for name, mistake in _PATIENTS.items()}})


# Of each patient: what speaks against another mistake, and what for its own.
_AGAINST = {
    "A": {
        1: "the share of weights that are not 0 is the same at the end as after the pruning.",
        3: "the weights that stay are larger, on average, than those that go.",
        4: "both kernels keep the same share.",
        5: "the weights that stay are larger, on average, than those that go, and look at their signs.",
        6: "all weights that stay are what they were before.",
    },
    "B": {
        2: "of the weights that stay in B as many are negative as in the healthy pruning.",
        3: "the weights that stay are larger than those that go.",
        4: "both kernels keep the same share after the pruning.",
        5: "the weights that stay are as much larger than those that go as in the healthy pruning.",
        6: "all weights that stay are what they were before.",
    },
    "C": {
        1: "the share of weights that are not 0 is the same at the end as after the pruning.",
        2: "both signs are among the weights that stay.",
        3: "the weights that stay would be far smaller than those that go.",
        4: "both kernels keep the same share.",
        6: "all weights that stay are what they were before.",
    },
    "D": {
        1: "the share of weights that are not 0 is the same at the end as after the pruning.",
        2: "both signs are among the weights that stay.",
        3: "the weights that stay are larger than those that go.",
        5: "the weights that stay are larger than those that go.",
        6: "all weights that stay are what they were before.",
    },
}
_FOR = {
    "A": "compare the weights that stay with those of the healthy pruning, by size and by sign.",
    "B": "compare what is not 0 after the pruning with what is not 0 at the end.",
    "C": "are the weights that stay larger than those that go?",
    "D": "compare the two kernels with each other.",
}


_EXERCISE = diagnosis.exercise(
    _PATIENTS,
    _AGAINST,
    _FOR,
    lambda name, number: f"{name}: {MISTAKES[number]}.",
    case="patient",
    mistake="mistake",
    example='{"A": 1, "B": 2}',
)
check_diagnosis, diagnosis_points = _EXERCISE.report, _EXERCISE.points
