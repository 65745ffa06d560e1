"""Notebook 3d: where its rules depend on each other, and what its text says."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from course_lib.system.paths import ROOT
from labs.lab3_large_batch.lessons import checks_3d
from labs.lab3_large_batch.lessons.checks_3d import points
from tests.labs.notebooks import recorded, text

# A warning goes to stderr, and nbgrader gives no points to a cell that writes there.
pytestmark = pytest.mark.filterwarnings("error")


def test_a_wrong_local_rate_is_named_in_the_rules_that_use_it(answer, capsys):
    rule = answer("3d", "lars")
    rule.__globals__["local_rate"] = answer(
        "3d", "local_rate", ("np.linalg.norm(g) + b * np.linalg.norm(w)", "np.linalg.norm(g + b * w)")
    )
    assert points(rule, 3) < 3
    assert "norm of the sum" in capsys.readouterr().out


def test_checking_loads_no_tensorflow():
    code = "import sys, labs.lab3_large_batch.lessons.checks_3d; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_the_colleagues_novograd_fails_where_the_text_says(answer):
    """It keeps a number for each weight, its first step is too long, and its decay depends on the gradient."""
    text = (ROOT / "labs/lab3_large_batch/3d_layer_wise_rates.py").read_text(encoding="utf-8")
    cell = text[text.index("def colleagues_novograd") : text.index('pd.DataFrame({f"‖∇L‖')]
    space = {"np": np}
    exec(cell, space)
    theirs = [space["first_steps"](space["colleagues_novograd"], scale) for scale in (0.1, 10)]
    ours = [space["first_steps"](answer("3d", "novograd"), scale) for scale in (0.1, 10)]
    assert [row["numbers kept"] for row in (*theirs, *ours)] == [200, 200, 101, 101]
    assert [row["length of the first step"] for row in ours] == pytest.approx([1, 1])
    assert theirs[0]["length of the first step"] > 50
    assert [row["what decay 0.1 adds to it"] for row in ours] == pytest.approx([1, 1])
    added = [row["what decay 0.1 adds to it"] for row in theirs]
    assert added[0] > 20 * added[1]


def test_the_numbers_of_the_table_of_variants():
    """Three steps with the gradients of the check, as the table 'Which LARS is it?' has them."""
    w, v, b = checks_3d.START.copy(), 0.0, 0.1
    for g, eta in zip(checks_3d.GRADIENTS, (1, 0.5, 0.5)):
        decayed = g + b * w
        v = 0.9 * v + eta * 0.001 * np.linalg.norm(w) / np.linalg.norm(decayed) * decayed
        w = w - v
    assert f"‖∇L + b w‖ | {w[0]:.7f}, {w[1]:.7f} |" in text("3d")
    last = checks_3d.PUBLISHED["lars"][2][-1]
    assert f"(‖∇L‖ + b ‖w‖) | {last[0]:.7f}, {last[1]:.7f} |" in text("3d")


def test_what_an_update_costs_against_keras_s():
    table = recorded("optimizer_cost")
    ratios = table.groupby("optimizer")["ratio"]
    low, high = ratios.min(), ratios.max()
    assert high["LARS"] < 1 and "LARS is no slower than Keras's SGD" in text("3d")
    assert (
        low["LAMB"] >= 1.05
        and high["LAMB"] <= 1.15
        and "LAMB keeps two arrays like Adam and takes a tenth" in text("3d")
    )
    assert low["NovoGrad"] >= 0.4 and high["NovoGrad"] <= 0.6 and "takes half of Adam's time" in text("3d")
