"""Notebook 1f: the race of the rules, the ravines' budgets, and the bound of the softmax regression."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from course_lib import data
from labs.lab1_gradient_descent.lessons import checks_1f, rule_race
from tests.labs import notebooks

RACE = {
    "ravine": {"sgd": 82, "momentum": 16, "nesterov": 20, "adagrad": 4, "rmsprop": 90, "adam": 24},
    "turned ravine": {"sgd": 82, "momentum": 16, "nesterov": 20, "adagrad": 98, "rmsprop": 101, "adam": 40},
    "saddle": {"sgd": 48, "momentum": 25, "nesterov": 29, "adagrad": 6, "rmsprop": 31, "adam": 9},
}
LEAVING = {"sgd": 39, "momentum": 22, "nesterov": 21, "adagrad": 3, "rmsprop": 16, "adam": 5}


@pytest.fixture(scope="module")
def space():
    """What the notebook defines: its functions, and the surfaces and rules of the race."""
    names = dict(notebooks.solved("1f"))
    kept = {"ravine_start", "momentum", "turn", "surfaces", "six"}
    for cell in notebooks.master("1f").cells:
        for node in ast.parse(cell.source).body if cell.kind == "code" else ():
            targets = {getattr(target, "id", None) for target in getattr(node, "targets", ())}
            tuples = {getattr(name, "id", None) for target in getattr(node, "targets", ()) for name in
                      getattr(target, "elts", ())}  # fmt: skip
            if isinstance(node, ast.FunctionDef) or (targets | tuples) & kept:
                exec(ast.unparse(node), names)
    return names


@pytest.fixture(scope="module")
def race(space):
    return rule_race.race(space["six"], space["surfaces"])


def test_the_race_is_as_the_text_says(space, race):
    surfaces, text = space["surfaces"], notebooks.text("1f")
    steps = {
        surface: {rule: rule_race.steps_needed(run.path, surfaces[surface]) for rule, run in runs.items()}
        for surface, runs in race.items()
    }
    assert steps == RACE
    for told in (
        "and 82 steps go along",
        "needs 16 steps in the ravine and **Nesterov** 20",
        "4 steps in the straight ravine and 98 in the turned one, **Adam** 24 and 40, **RMSprop** 90 and over 100",
        "leave first, after 3 to 16 steps; the others need 21 to 39",
    ):
        assert told in text
    assert {rule: space["steps_to_leave"](run.path) for rule, run in race["saddle"].items()} == LEAVING


def test_with_the_usual_decay_nesterov_looks_better(space):
    ravine = space["surfaces"]["ravine"]
    runs = {name: rule_race.best(name, space["six"][name], ravine, (0.9,)) for name in ("momentum", "nesterov")}
    needed = {name: int(rule_race.steps_needed(run.path, ravine)) for name, run in runs.items()}
    assert needed == {"momentum": 58, "nesterov": 39} and "need 58 and 39" in notebooks.text("1f")


def test_in_a_shorter_race_rules_that_forget_would_count_as_having_arrived(space, monkeypatch):
    monkeypatch.setattr(rule_race, "STEPS", 120)
    ravine = space["surfaces"]["ravine"]
    runs = {name: rule_race.best(name, space["six"][name], ravine) for name in ("adam", "rmsprop")}
    needed = {name: int(rule_race.steps_needed(run.path, ravine)) for name, run in runs.items()}
    assert needed == {"adam": 13, "rmsprop": 4}
    assert "Adam would need 13, and RMSprop 4" in notebooks.text("1f")


def test_a_rule_that_takes_one_rate_at_a_time_races_too(space):
    def nesterov(w, g, state, eta, beta=0.9):
        return space["nesterov"](w, g, state, float(eta), float(beta))

    ravine = space["surfaces"]["ravine"]
    assert rule_race.steps_needed(rule_race.best("nesterov", nesterov, ravine).path, ravine) == 20


def test_below_the_cliff_adagrad_stays_behind_and_in_the_ravine_it_does_not(space):
    def ends(gradient):
        start, rates = space["ravine_start"], {"adagrad": 0.5, "rmsprop": 0.05}
        walks = {name: rule_race.walk(space[name], space[gradient], start, eta) for name, eta in rates.items()}
        return min(walks, key=lambda name: np.linalg.norm(walks[name][-1]))

    assert (ends("ravine_gradient"), ends("cliff_gradient")) == ("adagrad", "rmsprop")


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_the_races_rules_take_the_steps_of_those_that_the_learner_writes(name):
    points = notebooks.solved("1b")["points"]
    assert points(notebooks.named(name, getattr(rule_race, name)), 3) == 3.0


@pytest.mark.slow
def test_the_bound_at_the_start_of_the_recorded_softmax_regression():
    fashion = data.load("fashion_mnist")
    if fashion.name == "shapes":
        pytest.skip("the text has the bound of Fashion-MNIST")
    x = fashion.x_train.reshape(len(fashion.x_train), -1) / np.float32(255)
    x = np.column_stack([x[:4096] - x.mean(axis=0), np.ones(4096)])
    curvature = 0.1 * np.linalg.eigvalsh(x.T @ x / len(x))[-1]  # at w = 0 all ten classes are equally likely
    assert f"at the start is {2 / curvature:.2f}." in notebooks.text("1f")


@pytest.mark.parametrize(("low", "high", "budget"), checks_1f.RAVINES)
def test_the_table_of_budgets_says_what_others_need(low, high, budget):
    """Gradient descent, and β = 0.9, each with the best of its learning rates."""
    needed = checks_1f._steps_in_a_ravine
    plain = needed(2 / (low + high), 0.0, (low, high), 5_000)
    rates = 4 / (high**0.5 + low**0.5) ** 2 * 2.0 ** np.arange(-4, 1.6, 0.125)
    usual = min(steps for eta in rates if (steps := needed(eta, 0.9, (low, high), 400)))
    text = notebooks.text("1f")
    assert f"| {round(high / low):,} | {plain:,} | {usual:,} | {budget} |" in text


def test_the_best_choice_needs_the_steps_that_the_text_says(space):
    said = re.search(r"they are ([\d, and]+):", notebooks.text("1f").replace("# ", ""))[1]
    steps = [space["steps_in_a_ravine"](low, high) for low, high, _ in checks_1f.RAVINES]
    assert re.findall(r"\d+", said) == [str(count) for count in steps]
