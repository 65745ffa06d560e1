"""Walks of update rules, and how they are judged."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.notebook import update_rules
from course_lib.notebook.judging import Wrong

START, GRADIENTS, RATES = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [0.5, 0.5, 0.1]


def sgd(w, g, state, eta):
    return w - eta * g, state


def walk(rule):
    return update_rules.walk(rule, START, GRADIENTS, RATES)


def test_a_walk_has_the_weights_around_each_step():
    taken = walk(sgd)
    np.testing.assert_allclose(taken.before, [[1, 2], [0.5, 2], [0.5, 1.5]])
    np.testing.assert_allclose(taken.after, [[0.5, 2], [0.5, 1.5], [0.4, 1.4]])
    assert taken.rates.shape == (3, 1)


def test_collected_is_what_a_rule_with_a_memory_holds():
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(update_rules.collected(x, 0.5), [1, 2.5, 4.25])
    np.testing.assert_allclose(update_rules.collected(x, 1, start=10), [11, 13, 16])
    np.testing.assert_array_equal(update_rules.delayed(x, first=7), [7, 1, 2])


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (None, "returns nothing"),
        (START, "return two things"),
        ((1.0, None), "returns shape (); it should be (2,)"),
        ((np.array([1.0, np.nan]), None), "after step 1 the weights are not finite"),
    ],
)
def test_what_is_no_step_is_said(returns, said):
    with pytest.raises(Wrong) as wrong:
        walk(lambda w, g, state, eta: returns)
    assert said in str(wrong.value)


def compare(rule):
    """Judge a rule that should be SGD."""
    taken = walk(rule)
    mistakes = {"uphill.": taken.rates * GRADIENTS, "η twice.": -(taken.rates**2) * GRADIENTS}
    update_rules.compare_walk(taken, walk(sgd).after, mistakes, atol=1e-9)


def test_the_right_walk_passes():
    assert compare(lambda w, g, state, eta: (w - g * eta, None)) is None  # nothing raised


def test_a_mistake_is_named_by_its_changes():
    with pytest.raises(Wrong, match=r"^η twice\.$"):
        compare(lambda w, g, state, eta: (w - eta * eta * g, None))


def test_else_the_first_wrong_step_is_told():
    with pytest.raises(Wrong) as wrong:
        compare(lambda w, g, state, eta: (w - eta * g if state is None else w - 3 * eta * g, 1))
    assert str(wrong.value) == ("step 2 from w = 2 with g = 1 and η = 0.5: the change of w should be -0.5; it is -1.5.")


def in_place(w, g, state, eta):
    w -= eta * g
    return w, None


def gradient_in_place(w, g, state, eta):
    g *= eta
    return w - g, None


def state_in_place(w, g, state, eta):
    v = np.zeros(2) if state is None else state
    v += g
    return w - eta * v, v


def global_memory(w, g, state, eta, memory=[0.0]):  # noqa: B006
    memory[0] = memory[0] + g
    return w - eta * memory[0], None


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (in_place, "changed in place"),
        (gradient_in_place, "changed in place"),
        (state_in_place, "the state is changed in place"),
        (global_memory, "stored outside the state"),
    ],
)
def test_memory_belongs_to_the_state(rule, said):
    with pytest.raises(Wrong) as wrong:
        update_rules.judge_memory(rule, START, GRADIENTS, 0.5)
    assert said in str(wrong.value)
    np.testing.assert_array_equal(START, [1, 2])


def test_a_rule_with_its_memory_in_the_state_passes():
    def momentum(w, g, state, eta):
        v = g if state is None else 0.9 * state + g
        return w - eta * v, v

    assert update_rules.judge_memory(momentum, START, GRADIENTS, 0.5) is None  # nothing raised
