"""Notebook 7a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab7_splitting_the_model.lessons.checks_7a import check, points

NOTEBOOK = "7a_cut_the_layer"
EXERCISES = ("Adjoint", "Cut", "deal", "cut_cross_entropy", "route", "balance", "words")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


ROOT_ONLY = "total if group.rank == root else np.zeros_like(total)"
OWN = "np.split(y, group.size, axis=1)[group.rank]"
COLUMNS_BACK = "group.all_reduce(slope @ w.T), x.T @ slope, slope.sum(0)"
ROWS_BACK = "slope @ w.T, x.T @ slope, slope.sum(0)"
KINDS = "[np.split(kind, size, axis=1)[rank] for kind in kinds]"
TOP = "group.all_reduce(logits.max(1), 'max')"
HERE = "np.flatnonzero((places >= 0) & (places < width))"
BOTH = "group.all_reduce(np.array([e.sum(1), right]))"
PLACES = "[np.flatnonzero(choice == rank)[:capacity] for rank in range(group.size)]"
MADE = "np.split(expert(np.concatenate(came)), np.cumsum([len(some) for some in came])[:-1])"
SUMS = "group.all_reduce(np.array([counts, probabilities.sum(0)]))"
SLOPE = "np.tile(many * counts / tokens**2, (len(probabilities), 1))"
ACTIVATIONS = "(into + out) * tokens / data"
WEIGHTS = "(into * hidden + hidden + hidden * out) / tensor + out"
WRONG = {
    "everywhere": ("Adjoint", [(ROOT_ONLY, "total")], "does not look at what the others give"),
    "a broadcast again": (
        "Adjoint", [("total = group.all_reduce(y)", "total = group.broadcast(y, root)")], "add it up",
    ),
    "nothing back": ("Adjoint", [("total = group.all_reduce(y)", "total = y")], "went to every rank"),
    "own columns": ("Adjoint", [("group.reduce_scatter(y)", OWN)], "what did the others do with them"),
    "all of the sum": (
        "Adjoint", [("group.reduce_scatter(y)", "np.split(group.all_reduce(y), group.size, axis=1)[group.rank]")],
        "Who needs which part",
    ),
    "not adjoint to itself": ("Adjoint", [("return group.all_reduce(y)", "return y")], "not in its own alone"),
    "sent nowhere": ("Adjoint", [("group.all_to_all(parts)", "parts")], "who has it now"),
    "a deadlock": (
        "Adjoint",
        [("return group.reduce_scatter(y)", "if group.rank: return group.reduce_scatter(y)\nreturn y[:, :2]")],
        "waits in its collective number 1, reduce_scatter, for rank 0",
    ),
    "gathered": (
        "Cut", [("return x @ w + b\n", "return group.all_gather(x @ w + b)")], "go on with its own",
    ),
    "own x": ("Cut", [(COLUMNS_BACK, "slope @ w.T, x.T @ slope, slope.sum(0)")], "columns of all ranks"),
    "sum of weights": (
        "Cut", [(COLUMNS_BACK, "group.all_reduce(slope @ w.T), group.all_reduce(x.T @ slope), slope.sum(0)")],
        "different weights",
    ),
    "bias for each": ("Cut", [("group.all_reduce(x @ w) + b", "group.all_reduce(x @ w + b)")], "bias is in the sum"),
    "own rows": ("Cut", [("group.all_reduce(x @ w) + b", "x @ w + b")], "own part of the sum"),
    "the adjoint of the sum": (
        "Cut",
        [("return slope @ w.T, x.T @ slope, slope.sum(0)",
          "slope = group.all_reduce(slope)\nreturn slope @ w.T, x.T @ slope, slope.sum(0)")],
        "it counts once",
    ),
    "sum of own columns": (
        "Cut", [(ROWS_BACK, "group.all_reduce(slope @ w.T), x.T @ slope, slope.sum(0)")], "dx is added up over",
    ),
    "mean of examples": (
        "Cut", [(COLUMNS_BACK, "group.all_reduce(slope @ w.T), x.T @ slope / len(x), slope.mean(0)")],
        "divided by the number of examples",
    ),
    "neighbours": (
        "deal", [("np.concatenate(mine, axis=1)", "np.split(qkv, size, axis=1)[rank]")], "Those of rank 0 are queries",
    ),
    "every other head": (
        "deal",
        [(KINDS, "[kind.reshape(len(kind), heads, -1)[:, rank::size].reshape(len(kind), -1) for kind in kinds]")],
        "side by side",
    ),
    "as many columns as rows": (
        "deal",
        [("np.split(qkv, 3, axis=1)", "[qkv[:, i * len(qkv) : (i + 1) * len(qkv)] for i in range(3)]")],
        "a qkv with one row",
    ),
    "columns of out": ("deal", [("np.split(out, size)[rank]", "np.split(out, size, axis=1)[rank].T")], "are inputs"),
    "own largest": ("cut_cross_entropy", [(TOP, "logits.max(1)")], "the loss"),
    "no largest": ("cut_cross_entropy", [(TOP, "np.zeros(len(logits))")], "take something off"),
    "own sum": ("cut_cross_entropy", [(BOTH, "e.sum(1), group.all_reduce(right)")], "this rank's words alone"),
    "negative places": (
        "cut_cross_entropy", [(HERE, "np.flatnonzero(places < width)"), ("places[here]", "places[here] % width")],
        "word of another rank",
    ),
    "largest taken off once": (
        "cut_cross_entropy", [("logits[here, places[here]] - top[here]", "logits[here, places[here]]")],
        "not off the right word's",
    ),
    "logarithms added": (
        "cut_cross_entropy",
        [(TOP, "np.zeros(n)"), (BOTH, "group.all_reduce(np.array([np.log(e.sum(1)), right]))"),
         ("np.log(total)", "total")],
        "the sum of all",
    ),
    "three collectives": (
        "cut_cross_entropy", [(BOTH, "group.all_reduce(e.sum(1)), group.all_reduce(right)")], "two are enough",
    ),
    "gathered logits": (
        "cut_cross_entropy", [(TOP, "group.all_gather(logits).max(1)")], "three for each are enough",
    ),
    "sum of examples": ("cut_cross_entropy", [("slope / n", "slope")], "sum over the examples"),
    "no right word": ("cut_cross_entropy", [("slope[here, places[here]] -= 1", "pass")], "does not know the right"),
    "back to others": ("route", [(MADE, f"{MADE}[::-1]")], "broadcast"),
    "nothing dropped": ("route", [(PLACES, PLACES.replace("[:capacity]", ""))], "no token is dropped"),
    "dropped ones kept": ("route", [("np.zeros(tokens.shape)", "tokens.copy()")], "experts *add*"),
    "the last ones": ("route", [(PLACES, PLACES.replace("[:capacity]", "[-capacity:]"))], "the first ones"),
    "own expert": (
        "route", [("group.all_to_all(made)", "[expert(tokens[some]) for some in places]")], "its own expert",
    ),
    "own balance": ("balance", [(SUMS, "counts, probabilities.sum(0)")], "this rank's tokens alone"),
    "mean of means": (
        "balance",
        [(SUMS, "group.all_reduce(np.array([counts, probabilities.sum(0)]) / len(probabilities)) / group.size")],
        "counts some tokens",
    ),
    "own number": (
        "balance", [(SLOPE, "np.tile(many * counts / tokens / len(probabilities), (len(probabilities), 1))")],
        "divides by their number",
    ),
    "by the mean": (
        "balance", [(SLOPE, "np.tile(many * counts / tokens, (len(probabilities), 1))")], "mean probability",
    ),
    "no factor": (
        "balance", [("many * (counts @ sums) / tokens**2", "(counts @ sums) / tokens**2")], "factor is missing",
    ),
    "all tokens": ("words", [(ACTIVATIONS, "(into + out) * tokens")], "own part of the tokens"),
    "all weights": ("words", [(WEIGHTS, "into * hidden + hidden + hidden * out + out")], "only a part of the weights"),
    "one way": ("words", [(ACTIVATIONS, "out * tokens / data")], "in the backward pass, too"),
    "no biases": ("words", [(WEIGHTS, "(into * hidden + hidden * out) / tensor")], "which of them is cut"),
    "both biases cut": ("words", [(WEIGHTS, "(into * hidden + hidden + hidden * out + out) / tensor")], "is whole"),
    "half a ring": (
        "words", [("2 * (tensor - 1)", "(tensor - 1)"), ("2 * (data - 1)", "(data - 1)")], "sends each number twice",
    ),
    "hidden numbers": ("words", [(ACTIVATIONS, "hidden * tokens / data")], "hidden numbers stay"),
    "wide outputs": ("words", [(ACTIVATIONS, "2 * into * tokens / data")], "only in some layers"),
    "all ranks' words": (
        "words", [("2 * (tensor - 1) / tensor * activations", "2 * (tensor - 1) * data * activations"),
                  ("2 * (data - 1) / data * weights", "2 * (data - 1) * tensor * weights")], "of all ranks together",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_room_that_all_ranks_share_is_named(capsys):
    def route(group, tokens, choice, capacity, expert):
        places = [np.flatnonzero(choice == rank) for rank in range(group.size)]
        came = group.all_to_all([tokens[some] for some in places])
        every = np.concatenate(came)
        made = np.concatenate([expert(every[:capacity]), np.zeros_like(every[capacity:])])
        out = np.zeros(tokens.shape)
        ends = np.cumsum([len(some) for some in came])[:-1]
        for some, back in zip(places, group.all_to_all(np.split(made, ends))):
            out[some] = back
        return out

    assert points(route, 4) < 4
    assert "of all ranks together" in capsys.readouterr().out


def test_another_way_of_the_loss_is_right():
    def cut_cross_entropy(group, logits, labels):
        n, width = logits.shape
        top, place = logits.max(1), labels - group.rank * width
        here = (place >= 0) & (place < width)
        right = np.where(here, logits[np.arange(n), place * here], -np.inf)
        mine = np.stack([top, np.exp(logits - top[:, None]).sum(1), right], axis=1)[..., None]
        tops, sums, rights = np.moveaxis(group.all_gather(mine), 1, 0)
        most = tops.max(1)
        total = (sums * np.exp(tops - most[:, None])).sum(1)
        slope = np.exp(logits - most[:, None]) / total[:, None]
        slope[here, place[here]] -= 1
        return np.mean(np.log(total) + most - rights.max(1)), slope / n

    assert points(cut_cross_entropy, 5) == 5.0


@pytest.mark.parametrize("exercise", EXERCISES[1:])
def test_a_stub_gets_nothing(exercise, capsys):
    def stub(*_):
        raise NotImplementedError()

    stub.__name__ = exercise
    for name in ("columns", "columns_back", "rows", "rows_back"):
        setattr(stub, name, stub)
    assert points(stub, 4) == 0.0
    assert "stub" in capsys.readouterr().out
