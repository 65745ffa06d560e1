from __future__ import annotations

import numpy as np
import pytest

from labs.lab1_gradient_descent.lessons import figures_1a

STEEPEST, FLATTEST = 8.0, 0.5
BEST = (1.0, -2.0)


def bowl(w, b):
    return 0.5 * (STEEPEST * (w - BEST[0]) ** 2 + FLATTEST * (b - BEST[1]) ** 2)


def path(eta, steps=40, ended=""):
    places = [(-1.0, 3.0)]
    for _ in range(steps):
        w, b = places[-1]
        places.append((w - eta * STEEPEST * (w - BEST[0]), b - eta * FLATTEST * (b - BEST[1])))
    ws, bs = np.array(places).T
    return figures_1a.Path(ws, bs, bowl(ws, bs), ended)


@pytest.fixture(scope="module")
def over():
    return figures_1a.grid(bowl, (-2, 4), (-7, 4), BEST, points=21)


def test_the_grid_holds_the_loss_of_each_pair(over):
    assert over.losses.shape == (len(over.b), len(over.w)) == (21, 21)
    assert over.losses[3, 17] == bowl(over.w[17], over.b[3])


@pytest.mark.parametrize(
    ("eta", "name"), [(0.001, "crawl"), (0.05, "converge"), (0.2, "oscillate"), (0.2501, "diverge"), (9.0, "diverge")]
)
def test_regimes_by_the_largest_curvature(eta, name):
    assert figures_1a.regime(eta, STEEPEST) == name


@pytest.mark.parametrize("eta", [0.2, 0.3])
def test_above_two_by_the_largest_curvature_the_loss_grows(eta):
    losses = path(eta, steps=200).losses
    assert (losses[-1] > losses[0]) == (figures_1a.regime(eta, STEEPEST) == "diverge")


def test_rate_says_where_eta_stands_and_how_the_descent_ended(over, titles):
    figure = figures_1a.rate(over, path(0.2, ended="converged"), 0.0, eta=0.2, steepest=STEEPEST, most=300, caption="c")
    assert titles(figure) == ["η = 0.2 = 1.60/λₘₐₓ", "converged after 40 steps"]
    assert {"crawl", "converge", "oscillate", "diverge", "c"} <= {text.get_text() for text in figure.texts}
    (mark,) = [line for line in figure.artists if getattr(line, "get_marker", str)() == "v"]
    names = {text.get_text(): text.get_position()[0] for text in figure.texts}
    assert names["1/λₘₐₓ"] < mark.get_xdata()[0] < names["2/λₘₐₓ"]
    assert figure.axes[1].get_yscale() == "log"


def test_of_a_descent_that_ran_to_infinity_the_finite_part_is_drawn(over):
    with np.errstate(all="ignore"):
        wild = path(30.0, steps=400, ended="diverged")
    assert not np.isfinite(wild.losses[-1])
    left, right = figures_1a.rate(over, wild, 0.0, eta=30.0, steepest=STEEPEST, most=300).axes
    _, way, start = left.lines
    assert 1 < len(way.get_xdata()) < 10 and np.abs(way.get_xydata()).max() < 1e6
    assert start.get_xydata().tolist() == [[-1.0, 3.0]]
    assert right.lines[0].get_ydata().max() < 1e12
    beside, losses = figures_1a.side_by_side({"wild": (over, wild)}, lowest=0.0).axes
    np.testing.assert_array_equal(beside.lines[1].get_xydata(), way.get_xydata())
    np.testing.assert_array_equal(losses.lines[0].get_xydata(), right.lines[0].get_xydata())


def test_fit_draws_the_error_of_each_point(over, titles):
    x, y = np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.0, 4.0])
    figure = figures_1a.fit(x, y, 2.0, 0.5, loss=1.25, over=over)
    assert titles(figure)[0] == "w = 2.00, b = 0.50: L = 1.25"
    segments = figure.axes[0].collections[0].get_segments()
    np.testing.assert_allclose([segment[:, 1] for segment in segments], [[1.0, 0.5], [0.0, 2.5], [4.0, 4.5]])
    np.testing.assert_allclose(figure.axes[0].lines[1].get_xydata(), [[0.0, 0.5], [2.0, 4.5]])
    assert figure.axes[1].lines[-1].get_xydata().tolist() == [[2.0, 0.5]]


def test_steps_mark_what_converged_did_not_arrive_and_diverged():
    ends = {0.01: "", 0.1: "converged", 0.24: "converged", 0.4: "diverged"}
    paths = [path(eta, steps=10 * (number + 1), ended=ended) for number, (eta, ended) in enumerate(ends.items())]
    figure = figures_1a.steps(np.array(list(ends)), paths, FLATTEST, STEEPEST)
    (axis,) = figure.axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axis.lines if line.get_label()[0] != "_"}
    assert drawn == {"converged": [[0.1, 20], [0.24, 30]], "did not arrive": [[0.01, 40]], "diverged": [[0.4, 40]]}
    assert {"crawl", "converge", "oscillate", "diverge"} <= {text.get_text() for text in axis.texts}
    bounds = [line.get_xdata()[0] for line in axis.lines if len(set(line.get_xdata())) == 1][-2:]
    np.testing.assert_allclose(bounds, [2 / STEEPEST, 2 / (STEEPEST + FLATTEST)])


def test_side_by_side_keeps_circles_round_and_shows_losses(over, titles):
    cases = {"one": (over, path(0.05)), "two": (over, path(0.2))}
    assert titles(figures_1a.side_by_side(cases)) == ["one", "two"]
    figure = figures_1a.side_by_side(cases, lowest=-1.0, equal=True)
    assert [axis.get_aspect() for axis in figure.axes] == [1.0, 1.0, "auto"]
    lines = figure.axes[2].lines
    assert [line.get_label() for line in lines] == ["one", "two"]
    np.testing.assert_allclose(lines[0].get_ydata(), path(0.05).losses + 1)


def test_an_exact_difference_is_still_drawn():
    figure = figures_1a.differences(np.array([0.1, 1.0]), {"central": np.array([0.0, 1e-3])})
    (line,) = figure.axes[0].lines
    assert line.get_ydata()[0] == np.finfo(float).eps


def test_the_compute_of_training_doubled_every_3_4_months():
    assert figures_1a.doubling_time() == pytest.approx(3.35, abs=0.01)  # 61 months, 18.2 doublings


def test_since_then_it_doubled_every_ten_months():
    assert figures_1a.later_doubling_time() == pytest.approx(10.3, abs=0.1)  # 81 months, 7.9 doublings


def test_the_first_steps_of_a_path():
    begun = path(0.2, ended="diverged").first(20)
    assert (begun.steps, len(begun.w), begun.ended) == (20, 21, "diverged")


def test_trends_show_each_machine_and_each_domain():
    figure = figures_1a.trends({"mine": 2e11, "yours": 5e15}, "c")
    machines, _, data = figure.axes
    assert [text.get_text() for text in machines.texts] == ["mine", "yours"]
    labels = [text.get_text() for text in data.get_legend().get_texts()]
    assert labels[0] == "image classification, 0.31" and len(labels) == 6
    assert data.lines[0].get_ydata()[-1] == pytest.approx(1000**-0.31)
    assert "c" in [text.get_text() for text in figure.texts]
