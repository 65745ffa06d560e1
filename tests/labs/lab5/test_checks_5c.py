"""Notebook 5c: other answers, wrong and right."""

from __future__ import annotations

import math

import numpy as np

from labs.lab5_precision_and_memory.lessons.checks_5c import check, points


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
