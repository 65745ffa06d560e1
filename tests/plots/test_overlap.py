from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.plots import WIDTH, Card, overlap

PREDICTIONS = pd.DataFrame(
    {
        "setting": ["a", "a", "b"],
        "used": ["fit", "fit", "test"],
        "measured": [0.1, 0.2, 0.3],
        "low": [0.09, 0.19, 0.3],
        "high": [0.12, 0.22, 0.3],
        "predicted": [0.1, 0.22, 0.9],
    }
)
CURVES = {"A": {"x": [0.0, 0.1, 0.2], "y": [1.0, 2.0, 3.0]}, "B": {"x": [0.0, 0.0, 0.1], "y": [0.5, 0.6, 0.7]}}
FIGURES = {
    "gradients": lambda: overlap.gradients({"A": ([4e6, 400, 4e4], [1.0, 0.5, 0.5]), "B": ([4e8], [1.0])}, "sizes"),
    "step": lambda: overlap.step(0.1, 0.2, np.array([[0.05, 0.1], [0.2, 0.25]]), "simulated"),
    "step, all at the end": lambda: overlap.step(0.1, 0.2, np.array([[0.2, 0.5]])),
    "step without messages": lambda: overlap.step(0.1, 0.2, np.empty((0, 2))),
    "waiting": lambda: overlap.waiting([1, 10, 100], CURVES, "ranks", ticks=[1, 10, 100]),
    "waiting, with computation": lambda: overlap.waiting(
        [1, 10, 100], CURVES, "ranks", ticks=[1, 10, 100], compute={"A": 1.0, "B": 2.0}
    ),
    "predictions": lambda: overlap.predictions(PREDICTIONS, "measured"),
    "stragglers": lambda: overlap.stragglers([1, 16, 2048], {"normal": ([1, 1.1, 1.2], [1, 1.09, 1.21])}, "drawn"),
    "stragglers, far apart": lambda: overlap.stragglers([1, 2048], {"normal": ([1, 30.0], [1, 31.0])}),
    "stragglers, all the same": lambda: overlap.stragglers([1, 2048], {"normal": ([1, 1.0], [1, 1.0])}),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_are_cards_as_wide_as_a_notebook(figure):
    drawn = FIGURES[figure]()
    assert isinstance(drawn, Card)
    assert drawn.get_figwidth() * 100 == WIDTH
    assert drawn.png()
