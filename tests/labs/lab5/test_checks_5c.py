"""Notebook 5c: the solutions, mistakes that learners make in them, and what its text says of the recorded table."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from course_lib.cost import memory
from course_lib.system.paths import ROOT
from labs.lab5_precision_and_memory.lessons.checks_5c import check, points
from labs.lab5_precision_and_memory.lessons.counted_chain import Chain, fewest

NOTEBOOK = "5c_memory"
EXERCISES = ("in_segments", "recursive", "channels_to_hide", "prefetch", "Sharded", "layer_norms")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_all_points(answer, exercise, capsys):
    assert points(answer(NOTEBOOK, exercise), 10) == 10
    assert capsys.readouterr() == ("", "")


LENGTH = "max(1, round(math.sqrt(chain.layers)))"
UNDER_ROOT = "speed * 4 / bandwidth"
DIVIDED = "operations_while_a_number_travels / (2 * kernel**2)"
FREE = "min(moment, free) - took"
AVERAGE = "self.me.reduce_scatter(gradient) / self.me.size"
UPDATED = "self.optimizer.update(weights[self.mine], average)"
GATHERED = f"return self.me.all_gather({UPDATED})"
PIECE = "part[max(0, start - first):max(0, end - first)]"
NORMS = "np.sqrt(me.all_reduce(squares))"
BEST = "min((j + cheapest(layers - j, kept - 1)[0] + cheapest(j, kept)[0], j) for j in range(1, layers))"

# exercise, edits of its solution, the points of 10 that remain, a word of the reason
MISTAKES = {
    "segments a little too long": (
        "in_segments", [(LENGTH, "round(1.4 * math.sqrt(chain.layers))")], 7, "Choose the length",
    ),
    "one segment": ("in_segments", [(LENGTH, "chain.layers")], 7, "the input of every layer is kept"),
    "segments of two": ("in_segments", [(LENGTH, "2")], 7, "Choose the length"),
    "too few segments": ("in_segments", [(LENGTH, "math.ceil(chain.layers / 3)")], 7, "Two numbers add up"),
    "the first segment left out": (
        "in_segments", [("reversed(starts)", "reversed(starts[1:])")], 6, "layer 3 has no backward pass"
    ),
    "segments in order": ("in_segments", [("reversed(starts)", "starts")], 0, "was given"),
    "no slope": ("in_segments", [("return slope", "pass")], 6, "returns nothing"),
    "halves": ("recursive", [(BEST, "(0, layers // 2 if kept > 1 else layers - 1)")], 7, "shorter"),
    "no end": ("recursive", [(BEST, "(0, 0)")], 0, "without end"),
    "nothing remembered": ("recursive", [("lru_cache(None)", "(lambda search: search)")], 0, "search remember"),
    "not let go": ("recursive", [("del y", "pass")], 7, "`del` it"),
    "one array kept": ("recursive", [("cheapest(last - first, kept)", "(0, last - first - 1)")], 5, "Use them all"),
    "every array as if all were free": ("recursive", [("kept - 1", "kept")], 7, "leaves one less"),
    "no array is one too": ("recursive", [("kept == 0", "kept < 0")], 7, "are allowed"),
    "a multiply-add is one": ("channels_to_hide", [(DIVIDED, DIVIDED.replace("2 * ", ""))], 0, "two operations"),
    "a byte for a number": ("channels_to_hide", [(UNDER_ROOT, "speed / bandwidth")], 0, "4 bytes"),
    "k for k²": ("channels_to_hide", [("kernel**2", "kernel")], 0, "k² multiply-adds"),
    "speeds swapped": ("channels_to_hide", [(UNDER_ROOT, "bandwidth * 4 / speed")], 0, "channels"),
    "upside down": ("channels_to_hide", [(f"return {DIVIDED}", f"return 1 / ({DIVIDED})")], 0, "other way round"),
    "hidden by the whole step": (
        "channels_to_hide", [(DIVIDED, DIVIDED.replace("2 *", "6 *"))], 0, "during the forward pass"
    ),
    "each by itself": ("prefetch", [(FREE, "moment - took")], 4, "one at a time"),
    "the wait forgotten": ("prefetch", [(FREE, "max(0.0, min(moment, free) - took)")], 7, "below 0"),
    "at once": (
        "prefetch",
        [("return starts[::-1]", "return [sum(seconds[:place]) - 1 for place in range(len(seconds))]")],
        7,
        "takes up room",
    ),
    "when it is needed": ("prefetch", [(FREE, "moment")], 1, "arrives at"),
    "backwards": ("prefetch", [("return starts[::-1]", "return starts")], 1, "starts before"),
    "the end for the start": ("prefetch", [("starts.append(free)", "starts.append(free + took)")], 4, "arrives at"),
    "the sum": ("Sharded", [(AVERAGE, "self.me.reduce_scatter(gradient)")], 5, "average"),
    "state for all": (
        "Sharded",
        [("make(lengths[me.rank])", "make(len(weights))"),
         (GATHERED, "return self.optimizer.update(weights, self.me.all_gather(average))")],
        7,
        "not of its share",
    ),
    "equal parts": (
        "Sharded",
        [("slice(begin, begin + lengths[me.rank])",
          "slice(me.rank * lengths[me.rank], (me.rank + 1) * lengths[me.rank])")],
        8,
        "belong to the same numbers",
    ),
    "the first rank's part": (
        "Sharded", [("slice(begin, begin + lengths[me.rank])", "slice(0, lengths[me.rank])")], 5, "the same numbers"
    ),
    "own gradient": ("Sharded", [(AVERAGE, "gradient[self.mine]")], 3, "serial run"),
    "an all-reduce": ("Sharded", [(AVERAGE, "(self.me.all_reduce(gradient) / self.me.size)[self.mine]")], 8, "travels"),
    "only its part": ("Sharded", [(GATHERED, f"return {UPDATED}")], 0, "returns shape"),
    "the others' parts stay": (
        "Sharded",
        [(GATHERED, f"following = weights.copy()\nfollowing[self.mine] = {UPDATED}\nreturn following")],
        3,
        "the same weights",
    ),
    "in place": (
        "Sharded",
        [(GATHERED, f"weights[self.mine] = {UPDATED}\nreturn self.me.all_gather(weights[self.mine])")],
        7,
        "return new ones",
    ),
    "no optimizer": ("Sharded", [("make(lengths[me.rank])", "None")], 0, "AttributeError"),
    "own pieces": ("layer_norms", [(NORMS, "np.sqrt(squares)")], 2, "own pieces"),
    "norms added up": ("layer_norms", [(NORMS, "me.all_reduce(np.sqrt(squares))")], 2, "for 3 and 4 it is 5"),
    "norms averaged": ("layer_norms", [(NORMS, "me.all_reduce(np.sqrt(squares)) / me.size")], 2, "averaged"),
    "no root": ("layer_norms", [(NORMS, "me.all_reduce(squares)")], 0, "root is missing"),
    "squares averaged": ("layer_norms", [(NORMS, "np.sqrt(me.all_reduce(squares) / me.size)")], 2, "squares are"),
    "absolute values": (
        "layer_norms", [("np.sum(piece**2)", "np.sum(np.abs(piece))"), (NORMS, "me.all_reduce(squares)")], 0, "absolute"
    ),
    "all gathered": (
        "layer_norms",
        [(NORMS, "np.array([np.linalg.norm(me.all_gather(part)[a:b]) for a, b in zip(bounds, bounds[1:])])")],
        7,
        "one number for each layer",
    ),
    "negative ends": ("layer_norms", [(PIECE, "part[max(0, start - first):end - first]")], 2, "counts from the back"),
    "negative beginnings": ("layer_norms", [(PIECE, "part[start - first:end - first]")], 2, "negative beginning"),
}  # fmt: skip


@pytest.mark.parametrize(("exercise", "edits", "remain", "word"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_costs_points_and_is_named(answer, exercise, edits, remain, word):
    wrong = answer(NOTEBOOK, exercise, *edits)
    assert points(wrong, 10) == pytest.approx(remain)
    assert word in str(check(wrong))


def test_other_right_answers_are_right():
    def in_segments(chain, x, slope):
        n = chain.layers
        length = math.isqrt(n)
        kept = {0: x}
        for layer in range(n - 1):
            x = chain.forward(layer, x)
            if (layer + 1) % length == 0:
                kept[layer + 1] = x
        del x
        for layer in reversed(range(n)):
            near = max(start for start in kept if start <= layer)
            for within in range(near, layer):
                kept[within + 1] = chain.forward(within, kept[within])
            slope = chain.backward(layer, kept[layer], slope)
            del kept[layer]
        return slope

    def prefetch(needed, seconds):
        starts = np.zeros(len(needed))
        for place in range(len(needed) - 1, -1, -1):
            end = needed[place] if place == len(needed) - 1 else min(needed[place], starts[place + 1])
            starts[place] = end - seconds[place]
        return starts

    for other in (in_segments, prefetch):
        assert points(other, 10) == 10


def test_a_list_that_is_filled_anew_holds_the_old_arrays():
    def in_segments(chain, x, slope):
        length, inputs = round(math.sqrt(chain.layers)), []
        starts = list(range(0, chain.layers, length))
        snapshots = {0: x}
        for layer in range(starts[-1]):
            x = chain.forward(layer, x)
            if layer + 1 in starts:
                snapshots[layer + 1] = x
        del x
        for start in reversed(starts):
            again = [snapshots.pop(start)]
            for layer in range(start, min(start + length, chain.layers) - 1):
                again.append(chain.forward(layer, again[-1]))
            inputs = again
            for place in reversed(range(len(inputs))):
                slope = chain.backward(start + place, inputs[place], slope)
        return slope

    assert points(in_segments, 10) == 7
    assert "let go of it" in str(check(in_segments))


def test_copies_are_refused():
    def in_segments(chain, x, slope):
        return chain.backward(0, x.copy(), slope)

    assert "no copy" in str(check(in_segments))


# What the text says


def text():
    lines = (ROOT / "labs" / "lab5_precision_and_memory" / f"{NOTEBOOK}.py").read_text(encoding="utf-8").splitlines()
    return " ".join(line[2:].strip() for line in lines if line.startswith("# "))


def test_equal_segments_keep_eighteen_arrays(answer):
    chain = Chain(100)
    answer(NOTEBOOK, "in_segments")(chain, *chain.start())
    assert (chain.kept, chain.forwards) == (18, 180)
    assert "100 layers need 18 arrays" in text()
    assert fewest(100, 18) == 180 and fewest(100, 13) == 185
    assert "With 13 arrays in place of 18, the best schedule has 185 forward calls in place of 180" in text()


def test_residual_networks():
    runs = pd.read_csv(ROOT / "labs/lab5_precision_and_memory/recorded/recompute.csv", comment="#")
    mean = runs.groupby(["depth", "recompute"])["megabytes"].mean()
    plain, again = mean[40]
    told = f"At depth 40 the step needs {plain:.0f} MB more than with one image, and {again:.0f} MB with recomputing: "
    assert f"{told}{100 * (1 - again / plain):.0f} % less" in text()
    saved = 1 - mean.xs(True, level=1) / mean.xs(False, level=1)
    assert saved.is_monotonic_increasing and saved.max() < 0.75
    for depth in saved.index:  # within a fifth of the count, where there is much
        network = memory.wide_resnet(int(depth), 4)
        assert mean[depth, False] == pytest.approx(15 * 4 * network.activations / 1e6, rel=0.25)
    deep = runs[runs["depth"] == 40].pivot(index="run", columns="recompute", values="processor seconds")
    more, half = statistics.mean(100 * (deep[True] / deep[False] - 1))
    assert f"The measured {more:.0f} ± {half:.0f} % agree with that, and not with the slide's 25 %" in text()
    assert abs(more - 100 / 6) < half and more + half < 25
