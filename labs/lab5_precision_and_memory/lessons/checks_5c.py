"""Checks of notebook 5c: recomputing a chain, offloading, shared optimizer states and their norms."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from course_lib.notebook.answers import array, case, compare, function, items, number, returned, short, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab5_precision_and_memory.lessons import shards
from labs.lab5_precision_and_memory.lessons.counted_chain import Chain, fewest, halved

# in_segments, recursive


def _run(answer: Callable, layers: int, kept: int | None = None) -> tuple[Chain, Any]:
    """The chain after the answer has run on it, and what it returned."""
    chain = Chain(layers)
    x, slope = chain.start()
    arguments = (chain, x, slope) if kept is None else (chain, x, slope, 0, layers, kept)
    with unchanged(x, slope):
        try:
            result = answer(*arguments)
        except RecursionError:
            raise Wrong(f"{layers} layers: it calls itself without end. Has each call fewer layers?") from None
    return chain, result


def _gradients(answer: Callable, layers: int, kept: int | None = None) -> None:
    chain, result = _run(answer, layers, kept)
    done = [call.layer for call in chain.calls if call.kind == "backward"]
    wanted = list(reversed(range(layers)))
    if sorted(done) != wanted[::-1]:
        missing = next((layer for layer in wanted if layer not in done), None)
        if missing is not None:
            raise Wrong(f"layer {missing} has no backward pass.")
        twice = next(layer for layer in done if done.count(layer) > 1)
        raise Wrong(f"layer {twice} has {done.count(twice)} backward passes; each needs one.")
    if done != wanted:
        raise Wrong(f"the backward passes come in the order {done[:4]} …: from the last layer to the first.")
    slope, gradients = chain.reference()
    result = array(result, slope.shape)
    compare(result, slope, "the gradient by the chain's input", rtol=1e-9)
    for layer in wanted:
        if not np.allclose(chain.gradients[layer], gradients[layer], rtol=1e-9):
            raise Wrong(f"the gradient by the weights of layer {layer} is wrong: which slope did it get?")


def _still_alive(chain: Chain, allowed: int) -> int | None:
    """A layer whose input was kept after its backward pass, where nothing else makes the arrays too many."""
    over: set[int] = set()
    found = None
    for call in chain.calls:
        left = over & set(call.kept)
        if len(call.kept) > allowed:
            if len(call.kept) - len(left) > allowed:
                return None
            found = max(left)
        if call.kind == "backward":
            over.add(call.layer)
    return found


def _segment_gradients(in_segments: Callable) -> None:
    for layers in (16, 30, 7):
        with case(f"{layers} layers"):
            _gradients(in_segments, layers)


def _segment_forwards(in_segments: Callable) -> None:
    for layers in (16, 50, 100):
        chain, _ = _run(in_segments, layers)
        if chain.forwards > 2 * layers:
            raise Wrong(
                f"{layers} layers take {chain.forwards} forward calls; {2 * layers} should do: once to the end, and "
                "once more within each segment."
            )


def _segment_memory(in_segments: Callable) -> None:
    for layers in (16, 30, 100):
        chain, _ = _run(in_segments, layers)
        most = min(-(-layers // length) + length - 2 for length in range(1, layers + 1))
        if chain.kept <= most + 1:  # one to spare
            continue
        told = f"{layers} layers: {chain.kept} arrays are kept at a time, where {most} would do"
        if chain.kept >= layers - 1:
            raise Wrong(f"{told}: the input of every layer is kept.")
        if (left := _still_alive(chain, most)) is not None:
            raise Wrong(
                f"{told}: the input of layer {left} is still alive when its backward pass is over. An array goes when "
                "the last name and the last list let go of it."
            )
        raise Wrong(
            f"{told}. Two numbers add up: the inputs of the segments, and the inputs within the one at work. Choose "
            "the length for which the sum is least."
        )


MOST_CALLS = 100_000


def _search_remembers(recursive: Callable) -> None:
    """Raise Wrong where a small chain takes so many calls that the larger ones of the criteria would not end."""
    calls, before = 0, sys.getprofile()

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"
        if calls > MOST_CALLS:
            raise Wrong(
                f"14 layers with 4 arrays take more than {MOST_CALLS:,} calls of functions: the same searches are made "
                "again and again. Let the search remember what it has found."
            )

    sys.setprofile(count)
    try:
        _run(recursive, 14, 4)
    finally:
        sys.setprofile(before)


CHAINS = ((2, 1), (5, 1), (9, 8), (10, 3), (24, 4), (40, 3), (60, 6))


def _recursive_gradients(recursive: Callable) -> None:
    _search_remembers(recursive)
    for layers, kept in CHAINS[1:5]:
        with case(f"{layers} layers, {kept} kept"):
            _gradients(recursive, layers, kept)


def _recursive_memory(recursive: Callable) -> None:
    _search_remembers(recursive)
    for layers, kept in CHAINS:
        chain, _ = _run(recursive, layers, kept)
        if chain.kept <= kept:
            continue
        told = f"{layers} layers: {chain.kept} arrays are kept where {kept} are allowed"
        if (left := _still_alive(chain, kept)) is not None:
            raise Wrong(
                f"{told}: the input of layer {left} is still alive when its backward pass is over. The function that "
                "made it still has a name for it: `del` it before going on to the left."
            )
        raise Wrong(f"{told}: whoever keeps one more array leaves one less to the part on its right.")


def _recursive_forwards(recursive: Callable) -> None:
    _search_remembers(recursive)
    for layers, kept in CHAINS:
        chain, _ = _run(recursive, layers, kept)
        least = fewest(layers, kept)
        if chain.forwards <= least:
            continue
        told = f"{layers} layers with {kept} arrays take {chain.forwards} forward calls, {least:.0f} would do"
        if kept == 1:
            raise Wrong(f"{told}: with one array, go forward to the last layer and back, over and over.")
        if chain.forwards <= halved(layers, kept):
            raise Wrong(
                f"{told}. Half-way is a fair place to keep an array, and not the best: what lies on the right of it "
                "has one array less, so it should be shorter. Ask what each place would cost, and take the cheapest.",
                share=0.4,
            )
        if chain.kept < kept:
            raise Wrong(f"{told}: only {chain.kept} arrays are ever kept. Use them all.")
        raise Wrong(f"{told}: where is the array kept, and what do the two parts cost then?")


# channels_to_hide

SPEED, BANDWIDTH = 5e12, 12e9


def _channels(channels_to_hide: Callable, kernel: int, speed: float, bandwidth: float) -> None:
    got = number(channels_to_hide(kernel, speed, bandwidth))
    ratio = speed / bandwidth  # operations that pass while one byte travels
    want = 2 * ratio / kernel**2
    mistakes = {
        "a multiply-add is two operations.": 2 * want,
        "a number of the input has 4 bytes.": want / 4,
        "a kernel of k × k takes k² multiply-adds for a number of the input and an output channel.": 2 * ratio / kernel,
        "it is the other way round: a faster device needs more channels, a faster cable fewer.": 1 / want,
        "the speeds are the wrong way round: a faster device needs more channels.": 2 / ratio / kernel**2,
        "this lets the transfer take as long as forward and backward together: it leaves during the forward pass "
        "alone.": want / 3,
    }
    compare(got, want, f"for k = {kernel}, {speed:.3g} operations/s and {bandwidth:.3g} bytes/s the number", mistakes)


def _channels_three(channels_to_hide: Callable) -> None:
    _channels(channels_to_hide, 3, SPEED, BANDWIDTH)


def _channels_others(channels_to_hide: Callable) -> None:
    for kernel, speed, bandwidth in ((1, SPEED, BANDWIDTH), (5, 7e13, 2.5e10)):
        _channels(channels_to_hide, kernel, speed, bandwidth)


# prefetch

NEEDED, SECONDS = [3.0, 5.0, 5.5, 6.0, 12.0], [0.5, 1.0, 1.0, 2.0, 1.0]  # three of them in a queue
ENOUGH = 1e-9


def _latest(needed: Sequence[float], seconds: Sequence[float]) -> np.ndarray:
    """Return the latest starts: a transfer and all up to the j-th must fit before the j-th is needed, for each j."""
    total = np.cumsum(seconds)
    latest = np.minimum.accumulate((np.asarray(needed) - total)[::-1])[::-1]
    return latest + total - np.asarray(seconds)


def _starts(prefetch: Callable, needed: Sequence[float], seconds: Sequence[float]) -> np.ndarray:
    result = returned(prefetch(list(needed), list(seconds)))
    return array(result, (len(needed),)).astype(float)


def _in_time(prefetch: Callable) -> None:
    starts = _starts(prefetch, NEEDED, SECONDS)
    for place, (start, took, moment) in enumerate(zip(starts, SECONDS, NEEDED)):
        if start + took > moment + ENOUGH:
            raise Wrong(f"array {place} is needed at {moment:g} s and arrives at {start + took:g} s.")


def _one_at_a_time(prefetch: Callable) -> None:
    starts = _starts(prefetch, NEEDED, SECONDS)
    for place, (start, took, following) in enumerate(zip(starts, SECONDS, starts[1:])):
        if following < start - ENOUGH:
            raise Wrong(f"array {place + 1} starts before array {place}, which is needed first.")
        if start + took > following + ENOUGH:
            raise Wrong(
                f"array {place} travels until {start + took:g} s, array {place + 1} starts at {following:g} s: the "
                f"cable carries one at a time. By when must array {place} be through?"
            )


def _as_late(prefetch: Callable) -> None:
    _in_time(prefetch)
    _one_at_a_time(prefetch)
    for needed, seconds in ((NEEDED, SECONDS), ([1.0, 1.0], [0.5, 0.75]), ([0.0, 4.0], [1.0, 1.0])):
        starts, want = _starts(prefetch, needed, seconds), _latest(needed, seconds)
        for place, (start, latest) in enumerate(zip(starts, want)):
            told = f"needed at {needed}, transfers of {seconds} s: array {place}"
            if start < latest - ENOUGH:
                raise Wrong(
                    f"{told} starts at {start:g} s; {latest:g} s would do. Until it is needed it takes up room for "
                    "nothing."
                )
            if start > latest + ENOUGH:
                raise Wrong(
                    f"{told} starts at {start:g} s and should at {latest:g} s. A start below 0 is right where time is "
                    "short: it says by how much the backward pass will wait."
                )


def _nothing_to_fetch(prefetch: Callable) -> None:
    if result := items(prefetch([], []), "an empty list is expected", "for no arrays it"):
        raise Wrong(f"for no arrays it returns {short(result)}; an empty list is expected.")


# Sharded

STEPS = 4
EXAMPLES = 12
LARGE, SMALL = shards.Network((7, 5, 4)), shards.Network((7, 5, 3))  # 64 numbers, and 58: no multiple of 3 or 4


class _Made(shards.Adam):
    """An Adam that remembers what it was made for."""

    def __init__(self, k: int) -> None:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
            raise Wrong(f"`make` wants a number of numbers; it was given {type(k).__name__}.")
        super().__init__(int(k))


def _examples(network: shards.Network) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    classes = network.shapes[-1][0]
    return network.start(), random.normal(size=(EXAMPLES, 7)), random.integers(0, classes, EXAMPLES)


def _serial(network: shards.Network, adam: shards.Adam, factor: float = 1.0) -> np.ndarray:
    weights, x, y = _examples(network)
    for _ in range(STEPS):
        weights = adam.update(weights, factor * network.gradient(weights, x, y))
    return weights


def _train(sharded: Any, network: shards.Network, ranks: int) -> tuple[list, np.ndarray, list[list[int]], bool]:
    """After STEPS on simulated ranks: weights of each, numbers that each sent in a step, what each made Adam for.

    And whether a step has changed the weights that it was given.
    """
    start, x, y = _examples(network)
    made: list[list[int]] = [[] for _ in range(ranks)]
    changed: list[bool] = []

    def program(me: shards.Rank, rank: int) -> Any:
        def make(k: int) -> shards.Adam:
            adam = _Made(k)
            made[rank].append(len(adam.mean))
            return adam

        step, weights = function(sharded(me, start.copy(), make), "step"), start.copy()
        for _ in range(STEPS):
            gradient = network.gradient(weights, x[rank::ranks], y[rank::ranks])
            given = weights.copy()
            following = array(step(given, gradient), start.shape, f"`step` on rank {rank} of {ranks}").copy()
            changed.append(not np.array_equal(given, weights))
            weights = following
        return weights

    results, sent = shards.simulate(program, range(ranks))
    return results, sent / STEPS, made, any(changed)


def _takes_the_serial_steps(sharded: Any, network: shards.Network, ranks: int) -> None:
    results, sent, _, _ = _train(sharded, network, ranks)
    n = network.bounds[-1]
    want = _serial(network, _Made(n))
    if not np.isfinite(results).all():
        raise Wrong(f"after {STEPS} steps the weights are not finite numbers.")
    apart = max(float(np.abs(result - results[0]).max()) for result in results)
    if apart > 1e-9:
        if not sent.any():
            raise Wrong("the ranks have told each other nothing, and their weights differ.")
        raise Wrong(
            f"after {STEPS} steps the ranks' weights differ by up to {apart:.1e}. All must end a step with the same "
            "weights, those of all parts."
        )
    if np.abs(results[0] - want).max() <= 1e-9:
        return
    if np.abs(results[0] - _serial(network, _Made(n), ranks)).max() <= 1e-9:
        raise Wrong(f"this is the sum of the ranks' gradients; the serial run has their average, 1/{ranks} of it.")
    cut = np.array_split(np.arange(n), ranks)
    wrong = [rank for rank, mine in enumerate(cut) if np.abs(results[0][mine] - want[mine]).max() > 1e-9]
    raise Wrong(
        f"after {STEPS} steps the part of rank {wrong[0]} (numbers {cut[wrong[0]][0]} to {cut[wrong[0]][-1]}) is not "
        "that of the serial run. Do the weights, the gradient and the state of a rank belong to the same numbers?"
    )


def _two_ranks(sharded: Any) -> None:
    with case("2 ranks, 64 numbers"):
        _takes_the_serial_steps(sharded, LARGE, 2)
        if _train(sharded, LARGE, 2)[3]:
            raise Wrong("`step` changes the weights that it is given: return new ones.")


def _uneven(sharded: Any) -> None:
    for ranks in (3, 4):
        with case(f"{ranks} ranks, 58 numbers"):
            try:
                _takes_the_serial_steps(sharded, SMALL, ranks)
            except ValueError as error:
                raise Wrong(f"{error}. The parts are not all equally long.") from None


def _own_share(sharded: Any) -> None:
    for network, ranks in ((LARGE, 2), (SMALL, 4)):
        _, _, made, _ = _train(sharded, network, ranks)
        n = network.bounds[-1]
        shares = [len(part) for part in np.array_split(np.arange(n), ranks)]
        for rank, sizes in enumerate(made):
            if not sizes:
                raise Wrong(f"rank {rank} of {ranks} makes no optimizer: call `make`.")
            if sum(sizes) >= n:
                raise Wrong(
                    f"rank {rank} of {ranks} keeps the state of {sum(sizes)} numbers: of all, not of its share."
                )
            if sum(sizes) != shares[rank]:
                raise Wrong(
                    f"rank {rank} of {ranks} keeps the state of {sum(sizes)} numbers; its share is {shares[rank]}."
                )


def _wire(sharded: Any) -> None:
    for network, ranks in ((LARGE, 2), (LARGE, 4)):
        _, sent, _, _ = _train(sharded, network, ranks)
        least = 2 * (ranks - 1) / ranks * network.bounds[-1]
        if sent.max() > 1.02 * least:
            raise Wrong(
                f"on {ranks} ranks each sends {sent.max():.0f} numbers in a step, for {network.bounds[-1]} weights; "
                f"{least:.0f} are enough. What travels that nobody needs?"
            )
        if sent.max() < 0.98 * least:
            raise Wrong(f"on {ranks} ranks each sends {sent.max():.0f} numbers in a step; {least:.0f} must travel.")


# layer_norms

VECTOR = np.random.default_rng(3).normal([2.0] * 10 + [0.5] * 20 + [1.0] * 4 + [3.0] * 16, 1.0)
BOUNDS = [0, 10, 30, 34, 50]  # the third layer is small, and whole on one rank


def _norms(answer: Callable, ranks: int, bounds: Sequence[int] = BOUNDS) -> tuple[list, np.ndarray]:
    """What each simulated rank returns, and how many numbers each sent."""
    cut = np.array_split(np.arange(len(VECTOR)), ranks)

    def program(me: shards.Rank, mine: np.ndarray) -> np.ndarray:
        part = VECTOR[mine]
        with unchanged(part):
            result = answer(me, part, int(mine[0]), list(bounds))
        return array(result, (len(bounds) - 1,), f"rank {me.rank} of {ranks}")

    return shards.simulate(program, cut)


def _check_norms(layer_norms: Callable, ranks: int) -> None:
    results, _ = _norms(layer_norms, ranks)
    layers = list(zip(BOUNDS, BOUNDS[1:]))
    squares = np.array([np.sum(VECTOR[a:b] ** 2) for a, b in layers])
    parts = np.array_split(np.arange(len(VECTOR)), ranks)
    own = np.array(
        [[np.sqrt(np.sum(VECTOR[a:b][np.isin(np.arange(a, b), mine)] ** 2)) for a, b in layers] for mine in parts]
    )
    cut = [(int(mine[0]), VECTOR[mine]) for mine in parts]
    from_the_back = [
        sum(np.array([np.sum(part[max(0, a - first) : b - first] ** 2) for a, b in layers]) for first, part in cut),
        sum(np.array([np.sum(part[a - first : b - first] ** 2) for a, b in layers]) for first, part in cut),
    ]
    back = "a layer that ends before this rank's part begins has nothing in it, but a negative end counts from the back"
    for rank, result in enumerate(results):
        mistakes = {
            "these are the norms of this rank's own pieces: the other ranks have the rest of the layers.": own[rank],
            "norms of pieces don't add up to the norm of the whole: for 3 and 4 it is 5. What does add up?": own.sum(0),
            "the ranks' norms are averaged; what has to be put together are pieces of one layer.": own.mean(0),
            "these are the squares of the norms: the root is missing.": squares,
            "the squares are averaged over the ranks; the norm of a layer is that of all its pieces together.": np.sqrt(
                squares / ranks
            ),
            "these are sums of the numbers' absolute values; asked for is the root of the sum of their squares.": [
                np.abs(VECTOR[a:b]).sum() for a, b in layers
            ],
            f"{back}.": np.sqrt(from_the_back[0]),
            f"{back}, and so does a negative beginning.": np.sqrt(from_the_back[1]),
        }
        compare(result, np.sqrt(squares), f"on rank {rank} of {ranks} the norms", mistakes)


def _norms_one(layer_norms: Callable) -> None:
    _check_norms(layer_norms, 1)


def _norms_on_ranks(layer_norms: Callable) -> None:
    for ranks in (2, 5):
        _check_norms(layer_norms, ranks)


def _norms_wire(layer_norms: Callable) -> None:
    _check_norms(layer_norms, 4)
    _, sent = _norms(layer_norms, 4)
    if sent.max() > 2 * (len(BOUNDS) - 1):
        raise Wrong(
            f"on 4 ranks each sends {sent.max()} numbers for {len(BOUNDS) - 1} norms of {len(VECTOR)} numbers: one "
            "number for each layer is enough to be added up."
        )


EXERCISES = Exercises(
    Exercise(
        "in_segments",
        Criterion("gradients", "The gradients", 0.4, _segment_gradients),
        Criterion("forwards", "Two forward calls a layer", 0.3, _segment_forwards),
        Criterion("memory", "Few arrays", 0.3, _segment_memory),
    ),
    Exercise(
        "recursive",
        Criterion("gradients", "The gradients", 0.2, _recursive_gradients),
        Criterion("memory", "No more than allowed", 0.3, _recursive_memory),
        Criterion("forwards", "The fewest forward calls", 0.5, _recursive_forwards),
    ),
    Exercise(
        "channels_to_hide",
        Criterion("three", "A kernel of 3 × 3", 0.5, _channels_three),
        Criterion("others", "Other kernels and speeds", 0.5, _channels_others),
    ),
    Exercise(
        "prefetch",
        Criterion("in-time", "In time", 0.3, _in_time),
        Criterion("one-link", "One at a time", 0.3, _one_at_a_time),
        Criterion("late", "As late as can be", 0.3, _as_late),
        Criterion("nothing", "Nothing to fetch", 0.1, _nothing_to_fetch),
    ),
    Exercise(
        "Sharded",
        Criterion("serial", "The steps of the serial run", 0.3, _two_ranks),
        Criterion("uneven", "Parts of different length", 0.2, _uneven),
        Criterion("state", "State for the own share alone", 0.3, _own_share),
        Criterion("wire", "What travels", 0.2, _wire),
    ),
    Exercise(
        "layer_norms",
        Criterion("whole", "On one rank", 0.2, _norms_one),
        Criterion("pieces", "Of layers in pieces", 0.5, _norms_on_ranks),
        Criterion("wire", "One number a layer", 0.3, _norms_wire),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
