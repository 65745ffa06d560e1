"""Surfaces and contours: what is drawn, where it is cut off, and that nothing else is loaded."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from labs.lab1_gradient_descent.lessons import figures_surfaces as surfaces

XS, YS = np.linspace(-1, 1, 9), np.linspace(-2, 2, 5)
BOWL = 0.1 + XS**2 + 10 * YS[:, None] ** 2


def drawn(card):
    """The surface: its array holds the mean height of each facet."""
    return card.axes[0].collections[0]


def test_importing_it_loads_neither_tensorflow_nor_pyplot() -> None:
    code = (
        "import sys, labs.lab1_gradient_descent.lessons.figures_surfaces; print({'tensorflow', 'matplotlib.pyplot'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_a_surface_is_turned_tilted_and_named() -> None:
    card = surfaces.turned(XS, YS, BOWL, turn=25, tilt=50, names=("w", "b"), title="a bowl", caption="y = w x + b")
    (axis,) = card.axes
    assert (axis.azim, axis.elev) == (25, 50)
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_zlabel()) == ("w", "b", "loss L")
    assert {"a bowl", "y = w x + b"} <= {text.get_text() for text in card.texts}
    assert drawn(card).get_clim() == pytest.approx((0.1, BOWL.max())) == axis.get_zlim()
    assert card.png().startswith(b"\x89PNG")


def test_a_surface_is_cut_off_at_its_limit() -> None:
    losses = BOWL.copy()
    losses[0, :2] = np.inf, np.nan
    card = surfaces.turned(XS, YS, losses, limit=5)
    facets = drawn(card).get_array()
    assert np.isfinite(facets).all() and facets.max() == 5 == card.axes[0].get_zlim()[1]


def test_without_a_limit_the_highest_finite_loss_is_the_limit() -> None:
    losses = BOWL.copy()
    losses[0, 0] = np.inf
    assert drawn(surfaces.turned(XS, YS, losses)).get_clim() == pytest.approx((0.1, BOWL.max()))


def test_powers_of_ten_as_heights() -> None:
    card = surfaces.turned(XS, YS, BOWL, limit=10, lowest=0.01, log=True)
    assert drawn(card).get_array().max() == 1 and card.axes[0].get_zlim() == (-2, 1)
    assert card.axes[0].zaxis.get_major_formatter()(-1.0) == "0.1"


def test_contours_have_one_scale_for_all() -> None:
    card = surfaces.contours(XS, YS, {"low": BOWL, "high": 30 * BOWL}, limit=100, mark=(2.3, "guessing"), caption="c")
    left, right, bar = card.axes
    assert [axis.get_title(loc="left") for axis in (left, right)] == ["low", "high"]
    assert left.collections[0].get_clim() == right.collections[0].get_clim()
    assert 10 ** left.collections[0].levels[0] <= 0.1 and 10 ** left.collections[0].levels[-1] == pytest.approx(100)
    assert bar.get_ylabel() == "loss L" and left.get_xlabel() == "step along d₁"
    assert card.legends[0].get_texts()[0].get_text() == "guessing"


def test_contours_in_rows() -> None:
    card = surfaces.contours(XS, YS, {str(n): BOWL for n in range(4)})
    assert len(card.axes) == 5  # and the bar
    assert card.axes[0].get_xlabel() == "" and card.axes[2].get_xlabel() == "step along d₁"


@pytest.mark.filterwarnings("error")
def test_a_loss_that_is_the_same_everywhere() -> None:
    flat = surfaces.contours(XS, YS, {"flat": np.full_like(BOWL, 1.0)}, limit=0.5, mark=(2.3, "guessing"))
    assert list(flat.axes[0].collections[0].levels) == pytest.approx([0, 1 / surfaces.STEPS])  # powers of ten
    turned = surfaces.turned(XS, YS, np.ones_like(BOWL))
    assert turned.axes[0].get_zlim() == (0.5, 1.5)
    assert turned.png() and flat.png()  # no warning


def test_round_numbers_on_the_bar() -> None:
    assert [surfaces._number(mark) for mark in surfaces._marks(surfaces._levels(0.2, 100))] == [
        "0.3", "1", "3", "10", "30", "100",
    ]  # fmt: skip
    assert [surfaces._number(mark) for mark in surfaces._marks(surfaces._levels(0.1, 1e4))] == [
        "0.1", "1", "10", "100", "1,000", "10,000",
    ]  # fmt: skip
