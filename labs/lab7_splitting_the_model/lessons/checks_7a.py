"""Checks of notebook 7a: adjoints, layers that are cut, heads, a vocabulary, experts, and words, on rehearsed ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.notebook.answers import array, case, compare, function, items, number, plain, same, several
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.parallel.group import CollectiveError, Group, rehearse
from labs.lab7_splitting_the_model.lessons import cut_network, experts

SIZES = (1, 2, 4)


def _rehearsed(program: Callable[..., Any], ranks: int, values: Sequence[Any] | None = None) -> list[tuple[Any, Group]]:
    """What program(group, values[rank]) returned on each rank, and its group.

    What goes wrong between the ranks, `Wrong` says.
    """

    def with_group(group: Group) -> tuple[Any, Group]:
        return program(group, *([values[group.rank]] if values else [])), group

    try:
        return rehearse(with_group, ranks)
    except CollectiveError as error:
        raise Wrong(str(error)) from error


def _random(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _called(group: Group) -> str:
    """The collectives that a rank took part in, as a sentence has them."""
    names = [call.kind for call in group.calls]
    counted = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    return " and ".join(counted) or "no collective"


# --- Adjoint

ROOT = 1


def _arrays(ranks: int, *shape: int, seed: int = 0) -> list[np.ndarray]:
    return [_random(seed, rank, ranks).normal(size=shape) for rank in range(ranks)]


def _broadcast(adjoint: Any) -> None:
    broadcast = function(adjoint, "broadcast")
    for ranks in (2, 4):
        y = _arrays(ranks, 3, 2)
        found = [array(value, (3, 2), f"rank {rank}") for rank, (value, _) in enumerate(
            _rehearsed(lambda group, mine: broadcast(group, mine.copy(), ROOT), ranks, y))]  # fmt: skip
        total = np.sum(y, axis=0)
        right = np.array([total * (rank == ROOT) for rank in range(ranks)])
        with case(f"{ranks} ranks, root {ROOT}"):
            compare(
                np.array(found),
                right,
                "the ranks' results",
                {
                    "the root's numbers went to every rank, and all that happened to them there counts: add it up.": (
                        np.array([y[rank] * (rank == ROOT) for rank in range(ranks)])
                    ),
                    "the sum is right for the root. But broadcast does not look at what the others give it: how much "
                    "does the result change with that?": np.array([total] * ranks),
                    "what the ranks got back goes to the root, added up; the root's y alone is not it.": np.array(
                        [y[ROOT]] * ranks
                    ),
                    "that is the adjoint of doing nothing: broadcast carries the root's numbers to all ranks.": (
                        np.array(y)
                    ),
                    "the mean is too small: the root's number acts on each rank in full.": right / ranks,
                },
            )


def _all_gather(adjoint: Any) -> None:
    all_gather = function(adjoint, "all_gather")
    for ranks in (2, 4):
        y = _arrays(ranks, 3, 2 * ranks)
        both = _rehearsed(lambda group, mine: all_gather(group, mine.copy()), ranks, y)
        with case(f"{ranks} ranks"):
            found = np.array([array(value, (3, 2), f"rank {rank}") for rank, (value, _) in enumerate(both)])
            mine = np.array([np.split(part, ranks, axis=1)[rank] for rank, part in enumerate(y)])
            right = np.array(np.split(np.sum(y, axis=0), ranks, axis=1))
            compare(
                found,
                right,
                "the ranks' results",
                {
                    "each rank takes its own columns of its own y. But its numbers went to all ranks: what did the "
                    "others do with them?": mine,
                    "the mean is too small: what each rank does with the numbers counts in full.": right / ranks,
                },
            )


def _all_reduce(adjoint: Any) -> None:
    all_reduce = function(adjoint, "all_reduce")
    for ranks in (2, 4):
        y = _arrays(ranks, 3, 2)
        both = _rehearsed(lambda group, mine: all_reduce(group, mine.copy()), ranks, y)
        with case(f"{ranks} ranks"):
            found = np.array([array(value, (3, 2), f"rank {rank}") for rank, (value, _) in enumerate(both)])
            right = np.array([np.sum(y, axis=0)] * ranks)
            compare(
                found,
                right,
                "the ranks' results",
                {
                    "each rank's x is in the result of every rank, not in its own alone. Put a 1 into one rank's x: "
                    "which results change?": np.array(y),
                    "that is the mean; each rank's x is in every result in full.": right / ranks,
                    "the sum is too large: what is all-reduced already must not be added up again.": right * ranks,
                },
            )


def _all_to_all(adjoint: Any) -> None:
    all_to_all = function(adjoint, "all_to_all")
    for ranks in (2, 4):
        y = [[_random(rank, other).normal(size=(1 + rank + 2 * other, 2)) for other in range(ranks)]
             for rank in range(ranks)]  # fmt: skip
        both = _rehearsed(lambda group, mine: all_to_all(group, [part.copy() for part in mine]), ranks, y)
        with case(f"{ranks} ranks"):
            for rank, (value, _) in enumerate(both):
                parts = items(value, "a list of arrays is expected", f"rank {rank}")
                if not same(parts, [y[other][rank] for other in range(ranks)]):
                    raise Wrong(
                        f"rank {rank} must get back, from each rank, the gradient by what it had given to that rank: "
                        "who has it now, and in which place of its list?"
                    )


def _little(adjoint: Any) -> None:
    """The cheapest way, of those which Horovod offers."""
    all_gather = function(adjoint, "all_gather")
    for ranks in (2, 4):
        y = _arrays(ranks, 3, 2 * ranks)
        both = _rehearsed(all_gather, ranks, y)
        least = (ranks - 1) / ranks * y[0].size
        if both[0][1].sent > least + 1e-9:
            raise Wrong(
                f"{ranks} ranks: each sends {both[0][1].sent:g} numbers in the adjoint of all_gather; {least:g} are "
                "enough. Who needs which part of the sum?"
            )


# --- Cut

EXAMPLES, INPUTS, MIDDLE, OUTPUTS = 5, 8, 12, 4


def _dense() -> dict[str, np.ndarray]:
    random = _random(3)
    shapes = {"x": (EXAMPLES, INPUTS), "w": (INPUTS, MIDDLE), "b": (MIDDLE,), "slope": (EXAMPLES, MIDDLE)}
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


def _part(x: np.ndarray, group: Group, axis: int) -> np.ndarray:
    return np.split(x, group.size, axis)[group.rank].copy()


def _columns(cut: Any) -> None:
    columns = function(cut, "columns")
    d = _dense()
    whole = d["x"] @ d["w"] + d["b"]
    for ranks in SIZES:
        both = _rehearsed(
            lambda group: columns(group, d["x"].copy(), _part(d["w"], group, 1), _part(d["b"], group, 0)), ranks
        )
        with case(f"columns, {ranks} rank{'s' * (ranks > 1)}"):
            for rank, (value, group) in enumerate(both):
                if getattr(plain(value), "shape", None) == whole.shape and ranks > 1:
                    raise Wrong("the columns are gathered: each rank is to go on with its own.")
                right = np.split(whole, ranks, axis=1)[rank]
                found = array(value, right.shape, f"rank {rank}")
                compare(
                    found,
                    right,
                    f"rank {rank}: the outputs",
                    {"the bias is missing.": right - np.split(d["b"], ranks)[rank]},
                )
                if group.calls and ranks > 1:
                    raise Wrong(f"there is {_called(group)}; each rank has all that it needs for its columns.")


def _columns_back(cut: Any) -> None:
    columns_back = function(cut, "columns_back")
    d = _dense()
    right = d["slope"] @ d["w"].T, d["x"].T @ d["slope"], d["slope"].sum(0)
    for ranks in SIZES:
        both = _rehearsed(
            lambda group: columns_back(
                group, d["x"].copy(), _part(d["w"], group, 1), _part(d["slope"], group, 1)
            ),
            ranks,
        )  # fmt: skip
        with case(f"columns_back, {ranks} rank{'s' * (ranks > 1)}"):
            for rank, (value, group) in enumerate(both):
                dx, dw, db = several(value, "dx", "dw", "db", what=f"rank {rank}")
                own = np.split(d["slope"], ranks, axis=1)[rank] @ np.split(d["w"], ranks, axis=1)[rank].T
                compare(
                    array(dx, right[0].shape, f"rank {rank}, dx"),
                    right[0],
                    f"rank {rank}: dx",
                    {
                        f"rank {rank} has in dx only what comes back through its own columns. But x is used by the "
                        "columns of all ranks.": own,
                        "dx is the mean of the ranks' parts: each is a term of a sum.": right[0] / ranks,
                    },
                )
                _own(dw, np.split(right[1], ranks, axis=1), rank, "dw")
                _own(db, np.split(right[2], ranks), rank, "db")
                _once(group, ranks, right[0].size)


def _own(found: Any, parts: Sequence[np.ndarray], rank: int, told: str) -> None:
    found = array(found, parts[rank].shape, f"rank {rank}, {told}")
    compare(
        found,
        parts[rank],
        f"rank {rank}: {told}",
        {
            f"{told} is added up over the ranks. But each rank has columns that no other has: what would the sum of "
            "gradients by different weights be?": np.sum(parts, axis=0),
            f"{told} is averaged over the ranks, whose weights are different ones.": np.mean(parts, axis=0),
            f"{told} is divided by the number of examples: the slope is that of the loss, means included.": (
                parts[rank] / EXAMPLES
            ),
        },
    )


def _once(group: Group, ranks: int, numbers: int) -> None:
    """One all-reduce of so many numbers."""
    if ranks == 1:
        return
    if [call.kind for call in group.calls] != ["all_reduce"]:
        raise Wrong(f"there is {_called(group)}; one all_reduce is enough. What does each rank have already?", 0.5)
    if group.calls[0].numbers > numbers:
        raise Wrong(f"{group.calls[0].numbers} numbers are all-reduced; {numbers} are enough.", 0.5)


def _rows(cut: Any) -> None:
    rows = function(cut, "rows")
    d = _dense()
    whole, bias = d["x"] @ d["w"] + d["b"], d["b"]
    for ranks in SIZES:
        both = _rehearsed(
            lambda group: rows(group, _part(d["x"], group, 1), _part(d["w"], group, 0), d["b"].copy()), ranks
        )
        with case(f"rows, {ranks} rank{'s' * (ranks > 1)}"):
            for rank, (value, group) in enumerate(both):
                own = np.split(d["x"], ranks, axis=1)[rank] @ np.split(d["w"], ranks)[rank]
                compare(
                    array(value, whole.shape, f"rank {rank}"),
                    whole,
                    f"rank {rank}: the outputs",
                    {
                        f"the bias is in the sum {ranks} times: every rank adds it, and then the ranks are added "
                        "up.": whole + (ranks - 1) * bias,
                        f"rank {rank} has only its own part of the sum over the inputs.": own + bias,
                        "the bias is missing.": whole - bias,
                        "the parts are averaged; the layer is their sum.": (whole - bias) / ranks + bias,
                    },
                )
                _once(group, ranks, whole.size)


def _rows_back(cut: Any) -> None:
    rows_back = function(cut, "rows_back")
    d = _dense()
    by_x, by_w, by_b = d["slope"] @ d["w"].T, d["x"].T @ d["slope"], d["slope"].sum(0)
    for ranks in SIZES:
        both = _rehearsed(
            lambda group: rows_back(group, _part(d["x"], group, 1), _part(d["w"], group, 0), d["slope"].copy()),
            ranks,
        )
        with case(f"rows_back, {ranks} rank{'s' * (ranks > 1)}"):
            for rank, (value, group) in enumerate(both):
                found = several(value, "dx", "dw", "db", what=f"rank {rank}")
                rights = np.split(by_x, ranks, axis=1)[rank], np.split(by_w, ranks)[rank], by_b
                sums = {"dx": sum(np.split(by_x, ranks, axis=1)), "dw": sum(np.split(by_w, ranks)), "db": ranks * by_b}
                for told, one, right in zip(("dx", "dw", "db"), found, rights):
                    compare(
                        array(one, right.shape, f"rank {rank}, {told}"),
                        right,
                        f"rank {rank}: {told}",
                        {
                            f"{told} is {ranks} times too large. The slope is the same on all ranks because there is "
                            "one loss, which all of them know: it counts once.": ranks * right,
                            f"{told} is divided by the number of ranks: nothing was added up before.": right / ranks,
                            f"{told} is added up over the ranks. But each has columns of x, and rows of w, that no "
                            "other has.": sums[told],
                        },
                    )
                if group.calls and ranks > 1:
                    raise Wrong(
                        f"there is {_called(group)}; every rank has all that it needs for its own rows.",
                    )


# --- deal

ATTENTION = ((4, 2, 1), (4, 2, 2), (4, 2, 4), (2, 3, 2), (8, 1, 4))  # heads, numbers of each, ranks


def _dealt(deal: Callable, heads: int, size: int, ranks: int) -> tuple[np.ndarray, np.ndarray, list]:
    random, width = _random(5, heads), heads * size
    qkv, out = random.normal(size=(width, 3 * width)), random.normal(size=(width, width))
    parts = []
    for rank in range(ranks):
        both = several(deal(qkv.copy(), out.copy(), heads, rank, ranks), "qkv", "out", what=f"rank {rank}")
        shapes = (width, 3 * width // ranks), (width // ranks, width)
        parts.append([array(part, shape, f"rank {rank}") for part, shape in zip(both, shapes)])
    return qkv, out, parts


def _queries(deal: Callable) -> None:
    for heads, size, ranks in ATTENTION:
        with case(f"{heads} heads on {ranks} rank{'s' * (ranks > 1)}"):
            qkv, out, parts = _dealt(deal, heads, size, ranks)
            first = np.split(qkv, ranks, axis=1)
            bias = _random(8, heads).normal(size=(1, 3 * heads * size))
            of_bias = np.split(bias.reshape(1, 3, heads, size), ranks, axis=2)
            by_head = qkv.reshape(len(qkv), 3, heads, size)
            for rank, (mine, _) in enumerate(parts):
                right = np.split(by_head, ranks, axis=2)[rank].reshape(len(qkv), -1)
                scattered = by_head[:, :, rank::ranks].reshape(len(qkv), -1)
                mixed = np.split(by_head, ranks, axis=2)[rank].swapaxes(1, 2).reshape(len(qkv), -1)
                compare(
                    mine,
                    right,
                    f"rank {rank}: the columns of qkv",
                    {
                        f"rank {rank} gets neighbouring columns. Those of rank 0 are queries, nothing else: a head "
                        "needs its queries, its keys and its values on the same rank.": first[rank],
                        f"rank {rank} gets every {ranks}th head. Its neighbours would do, too, but all must agree with "
                        "the rows of out: take heads that stand side by side.": scattered,
                        "first all queries, then all keys, then all values: the rank's part is to be arranged as the "
                        "whole is.": mixed,
                    },
                )
                mine = several(deal(bias.copy(), out.copy(), heads, rank, ranks), "qkv", "out")[0]
                told = f"rank {rank}: the columns of a qkv with one row, as a bias has it,"
                compare(array(mine, (1, 3 * heads * size // ranks), told), of_bias[rank].reshape(1, -1), told)


def _rows_of_out(deal: Callable) -> None:
    for heads, size, ranks in ATTENTION:
        with case(f"{heads} heads on {ranks} rank{'s' * (ranks > 1)}"):
            _, out, parts = _dealt(deal, heads, size, ranks)
            for rank, (_, mine) in enumerate(parts):
                columns = np.split(out, ranks, axis=1)[rank]
                compare(
                    mine,
                    np.split(out, ranks)[rank],
                    f"rank {rank}: its rows of out",
                    {"those are columns: what comes out of a rank's heads are inputs of out.": columns.T},
                )


def _whole_attention(deal: Callable) -> None:
    heads, size = 4, 2
    x = _random(6).normal(size=(2, 3, heads * size))
    for ranks in (2, 4):
        qkv, out, parts = _dealt(deal, heads, size, ranks)
        whole = cut_network.attention(x @ qkv, heads)[0] @ out
        found = sum(cut_network.attention(x @ mine, heads // ranks)[0] @ rows for mine, rows in parts)
        with case(f"{ranks} ranks"):
            compare(found, whole, "the sum of the ranks' outputs", atol=1e-9)


# --- cut_cross_entropy


def _logits(seed: int, scale: float = 1.0, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    random = _random(seed)
    return random.normal(size=(6, 8)) * scale + shift, np.array([0, 7, 3, 4, 2, 6])


def _loss(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each example, and their gradients."""
    logits = logits - logits.max(1, keepdims=True)
    e, rows = np.exp(logits), np.arange(len(labels))
    slope = e / e.sum(1, keepdims=True)
    slope[rows, labels] -= 1
    return np.log(e.sum(1)) - logits[rows, labels], slope


def _entropies(answer: Callable, ranks: int, logits: np.ndarray, labels: np.ndarray) -> list[tuple[tuple, Group]]:
    """Of each rank (loss, gradient), which may hold infinities, and its group."""

    def program(group: Group) -> Any:
        return answer(group, _part(logits, group, 1), labels.copy())

    found, shape = [], (len(logits), logits.shape[1] // ranks)
    for rank, (value, group) in enumerate(_rehearsed(program, ranks)):
        loss, slope = several(value, "the loss", "the gradient", what=f"rank {rank}")
        found.append(((number(loss, "the loss", finite=False), array(slope, shape, "the gradient")), group))
    return found


def _mean_loss(answer: Callable) -> None:
    for ranks in SIZES:
        logits, labels = _logits(1)
        each, _ = _loss(logits, labels)
        for rank, (value, _) in enumerate(_entropies(answer, ranks, logits, labels)):
            with case(f"{ranks} rank{'s' * (ranks > 1)}, rank {rank}"):
                own = np.split(logits, ranks, axis=1)[rank]
                everything = np.log(np.exp(logits).sum(1)).mean()
                compare(
                    number(value[0], "the loss"),
                    each.mean(),
                    "the loss",
                    {
                        "the loss is the sum over the examples; asked for is the mean.": each.sum(),
                        "the exponentials of this rank's words alone are in the sum.": (
                            np.log(np.exp(own).sum(1)).mean() - logits[np.arange(6), labels].mean()
                        ),
                        "the logit of the right word is missing, or rather, only the rank that has it knows it.": (
                            everything
                        ),
                        "the largest logit is taken off in the exponentials, but not off the right word's logit.": (
                            each - logits.max(1)
                        ).mean(),
                        "the logarithms of the ranks' sums are added; the logarithm is that of the sum of all.": (
                            sum(np.log(np.exp(part).sum(1)) for part in np.split(logits, ranks, axis=1))
                            - logits[np.arange(6), labels]
                        ).mean(),
                        f"the logit of the right word counts {ranks} times.": (
                            everything - ranks * logits[np.arange(6), labels].mean()
                        ),
                    },
                )


def _entropy_slope(answer: Callable) -> None:
    for ranks in SIZES:
        logits, labels = _logits(1)
        _, slope = _loss(logits, labels)
        softmax = slope.copy()
        softmax[np.arange(6), labels] += 1
        for rank, (value, _) in enumerate(_entropies(answer, ranks, logits, labels)):
            with case(f"{ranks} rank{'s' * (ranks > 1)}, rank {rank}"):
                right = np.split(slope, ranks, axis=1)[rank]
                everywhere = np.split(softmax, ranks, axis=1)[rank]
                wrapped = everywhere.copy()
                wrapped[np.arange(6), labels % right.shape[1]] -= 1
                compare(
                    value[1],
                    right / 6,
                    "the gradient",
                    {
                        "the gradient is that of the sum over the examples.": right,
                        "the gradient does not know the right words: −1 at each, on the rank that has it.": (
                            everywhere / 6
                        ),
                        "a word of another rank is taken for one of this rank: which place does a label have here, and "
                        "whose is it when that is negative?": wrapped / 6,
                        "the gradient is divided by the number of ranks; there is one loss.": right / 6 / ranks,
                    },
                )


def _large_logits(answer: Callable) -> None:
    for scale, shift in ((500.0, 0.0), (1.0, 1e4), (1.0, -1e4)):
        logits, labels = _logits(2, scale, shift)
        each, slope = _loss(logits, labels)
        for rank, (value, _) in enumerate(_entropies(answer, 2, logits, labels)):
            with case(f"logits around {shift:g}, some {scale:g} apart"):
                if not (np.isfinite(value[0]) and np.isfinite(value[1]).all()):
                    raise Wrong(
                        "an exponential is too large or all are 0: take something off all logits of an example first, "
                        "the same on every rank."
                    )
                compare(value[0], each.mean(), "the loss", rtol=1e-6)
                compare(value[1], np.split(slope, 2, axis=1)[rank] / 6, "the gradient", atol=1e-9)


def _two_small(answer: Callable) -> None:
    logits, labels = _logits(1)
    for ranks in (2, 4):
        _, group = _entropies(answer, ranks, logits, labels)[0]
        given = sum(call.numbers for call in group.calls)
        if len(group.calls) > 2:
            raise Wrong(
                f"there are {len(group.calls)} collectives, and two are enough: sums that are needed at the same time "
                "travel in one array.",
                0.5,
            )
        if given > 3 * len(labels):
            raise Wrong(
                f"{given} numbers are given for {len(labels)} examples: three for each are enough, however many words "
                "a rank has."
            )


# --- route

TOKENS, WIDTH = 10, 3


def _scaled(group: Group) -> Callable:
    """An expert that can be recognised: rank r multiplies by 10^r and adds r + 1."""
    return lambda x: x * 10.0**group.rank + (group.rank + 1)


def _routed(route: Callable, ranks: int, capacity: int, choices: Sequence[np.ndarray], expert: Callable) -> list:
    tokens = _arrays(ranks, TOKENS, WIDTH, seed=9)

    def program(group: Group) -> Any:
        return route(group, tokens[group.rank].copy(), choices[group.rank].copy(), capacity, expert(group))

    both = _rehearsed(program, ranks)
    every = [lambda x, rank=rank: expert(Group(rank, ranks))(x) for rank in range(ranks)]
    rights = [experts.alone(x, choice, capacity, every) for x, choice in zip(tokens, choices)]
    return [(array(value, (TOKENS, WIDTH), f"rank {rank}"), right, tokens[rank], group)
            for rank, ((value, group), right) in enumerate(zip(both, rights))]  # fmt: skip


def _choices(ranks: int, seed: int = 0) -> list[np.ndarray]:
    return [_random(seed, rank, ranks).integers(ranks, size=TOKENS) for rank in range(ranks)]


def _there_and_back(route: Callable) -> None:
    for ranks in SIZES:
        choices = _choices(ranks)
        for rank, (found, right, tokens, _) in enumerate(_routed(route, ranks, TOKENS, choices, _scaled)):
            with case(f"{ranks} rank{'s' * (ranks > 1)}, room for all, rank {rank}"):
                order = np.argsort(choices[rank], kind="stable")
                wrong = {
                    "the results come back sorted by expert. Each belongs to where its token was.": right[order],
                    f"rank {rank} treats its tokens with its own expert, whatever the gate chose.": (
                        tokens * 10.0**rank + (rank + 1)
                    ),
                    "the tokens come back as they went: they have not met an expert.": tokens,
                }
                compare(found, right, "the results", {text: one for text, one in wrong.items() if ranks > 1})


def _capacity(route: Callable) -> None:
    for ranks, capacity in ((2, 3), (4, 2), (4, 1)):
        choices = _choices(ranks, 1)
        for rank, (found, right, tokens, _) in enumerate(_routed(route, ranks, capacity, choices, _scaled)):
            with case(f"{ranks} ranks, room for {capacity}, rank {rank}"):
                every = [lambda x, r=r: x * 10.0**r + (r + 1) for r in range(ranks)]
                kept = experts.places(choices[rank], ranks, capacity)[:, None]
                last = experts.alone(tokens[::-1], choices[rank][::-1], capacity, every)[::-1]
                shared = np.split(experts.places(np.concatenate(choices), ranks, capacity), ranks)[rank][:, None]
                unlimited = experts.alone(tokens, choices[rank], TOKENS, every)
                compare(
                    found,
                    right,
                    "the results",
                    {
                        "no token is dropped: an expert takes at most `capacity` tokens of each rank.": unlimited,
                        "an expert takes `capacity` tokens of all ranks together; asked for is so many of each.": (
                            shared * unlimited
                        ),
                        "tokens without room come back as they are: what is asked for is what experts *add* to a "
                        "token, here nothing.": np.where(kept, right, tokens),
                        "the last tokens find room; it should be the first ones.": last,
                    },
                )


def _lonely(route: Callable) -> None:
    for ranks in (2, 4):
        choices = [np.zeros(TOKENS, int) for _ in range(ranks)]
        with case(f"{ranks} ranks, all tokens choose expert 0"):
            for rank, (found, right, _, _) in enumerate(_routed(route, ranks, TOKENS, choices, _scaled)):
                compare(found, right, f"rank {rank}: the results")


def _both_ways(route: Callable) -> None:
    """The same route takes gradients: it is its own adjoint around the experts'."""
    for ranks in (2, 4):
        choices = _choices(ranks, 2)
        for _, right, _, group in _routed(route, ranks, 3, choices, _scaled):
            kept = int((right != 0).any(1).sum())
            kinds = [call.kind for call in group.calls]
            if kinds != ["all_to_all"] * 2:
                raise Wrong(
                    f"there is {_called(group)}; two all_to_all do it, one there and one back, on every rank.", 0.5
                )
            if group.calls[0].numbers > kept * WIDTH:
                raise Wrong(
                    f"{group.calls[0].numbers // WIDTH} tokens are sent, of which {kept} find room: the others need no "
                    "way."
                )


# --- balance


def _gates(ranks: int) -> list[np.ndarray]:
    return [experts.softmax(2 * _random(13, rank).normal(size=(4 + 3 * rank, 4)) + [1, 0.5, 0, 0])
            for rank in range(ranks)]  # fmt: skip


def _even(p: np.ndarray) -> float:
    shares = np.bincount(p.argmax(1), minlength=p.shape[1]) / len(p)
    return p.shape[1] * float(shares @ p.mean(0))


def _balanced(balance: Callable, ranks: int) -> tuple[list, list[Group], list[np.ndarray]]:
    gates = _gates(ranks)
    both = _rehearsed(lambda group: balance(group, gates[group.rank].copy()), ranks)
    found = [several(value, "the loss", "the gradient", what=f"rank {rank}") for rank, (value, _) in enumerate(both)]
    return found, [group for _, group in both], gates


def _balance_loss(balance: Callable) -> None:
    for ranks in (1, 2, 3):
        found, _, gates = _balanced(balance, ranks)
        whole = np.concatenate(gates)
        hard, soft = (
            np.mean([what(p) for p in gates], axis=0)
            for what in (lambda p: np.bincount(p.argmax(1), minlength=4) / len(p), lambda p: p.mean(0))
        )
        for rank, (loss, _) in enumerate(found):
            with case(f"{ranks} rank{'s' * (ranks > 1)}, rank {rank}"):
                compare(
                    number(loss, "the loss"),
                    _even(whole),
                    "the loss",
                    {
                        "that is the loss of this rank's tokens alone.": _even(gates[rank]),
                        "that is the mean of the ranks' losses. But the loss is a product of two means: a rank may be "
                        "one-sided if another makes up for it.": float(np.mean([_even(p) for p in gates])),
                        "the ranks have different numbers of tokens, so that a mean of their means counts some tokens "
                        "more than others.": 4 * float(hard @ soft),
                        "the factor is missing: the number of experts makes it 1 for equal shares.": _even(whole) / 4,
                    },
                )


def _balance_slope(balance: Callable) -> None:
    for ranks in (1, 2, 3):
        found, _, gates = _balanced(balance, ranks)
        whole = np.concatenate(gates)
        counts = np.bincount(whole.argmax(1), minlength=4)
        for rank, (_, slope) in enumerate(found):
            with case(f"{ranks} rank{'s' * (ranks > 1)}, rank {rank}"):
                shape = gates[rank].shape
                right = np.broadcast_to(4 * counts / len(whole) ** 2, shape)
                own = np.broadcast_to(4 * counts / len(whole) / shape[0], shape)
                compare(
                    array(slope, shape, "the gradient"),
                    right,
                    "the gradient",
                    {
                        "a probability is one of all ranks' tokens: the mean divides by their number.": own,
                        "the shares f don't depend on the probabilities (a small change moves no token): what is left "
                        "is Pᵢ, a mean.": np.broadcast_to(4 * whole.mean(0) / len(whole), shape),
                        "that is the gradient by the mean probability Pᵢ; asked for is that by each probability.": (
                            np.broadcast_to(4 * counts / len(whole), shape)
                        ),
                    },
                )


def _balance_words(balance: Callable) -> None:
    _, groups, gates = _balanced(balance, 3)
    given = sum(call.numbers for call in groups[0].calls)
    if given > 2 * gates[0].shape[1] + 1:
        raise Wrong(
            f"{given} numbers are given by rank 0; two for each expert and one more are enough, however many tokens "
            "there are."
        )


# --- words

PLANS = ((1, 1), (4, 1), (1, 4), (2, 2), (2, 4), (8, 1), (4, 2))  # data, tensor
NETWORKS = ((64, (8, 40, 8)), (1_024, (16, 64, 16)), (256, (96, 40, 24)))  # tokens, sizes


def ring(ranks: int, numbers: float) -> float:
    """Numbers that each rank sends in a ring all-reduce."""
    return 2 * (ranks - 1) / ranks * numbers


def loads(
    tokens: int, sizes: Sequence[int], data: int, tensor: int, *, cut_tokens: bool = True, cut_weights: bool = True,
    way_back: bool = True, biases: bool = True,
) -> tuple[float, float]:  # fmt: skip
    """Numbers that a rank sends in a step of the pair, for activations and for the gradients of weights.

    The options leave something out, as mistakes do.
    """
    into, middle, out = sizes
    activations = tokens / (data if cut_tokens else 1) * (out + into * way_back)
    cut = tensor if cut_weights else 1
    weights = ((into + out) * middle + middle * biases) / cut + out * biases
    return ring(tensor, activations), ring(data, weights)


def _words(plans: Sequence[tuple[int, int]]) -> Callable[[Callable], None]:
    def judge(words: Callable) -> None:
        for tokens, sizes in NETWORKS:
            for data, tensor in plans:
                found = number(words(tokens, sizes, data, tensor))
                with case(f"{tokens} tokens, sizes {sizes}, {data} × {tensor} ranks"):
                    right = sum(loads(tokens, sizes, data, tensor))
                    without = {
                        part: sum(loads(tokens, sizes, data, tensor, **{part: False}))
                        for part in ("cut_tokens", "cut_weights", "way_back", "biases")
                    }
                    into, _, out = sizes
                    compare(
                        found,
                        right,
                        "the numbers that a rank sends",
                        {
                            "a tensor group works on its own part of the tokens, a `data`th of them.": without[
                                "cut_tokens"
                            ],
                            "a rank has only a part of the weights, so it averages only their gradients.": (
                                without["cut_weights"]
                            ),
                            "the pair has an all-reduce in the backward pass, too: of what?": without["way_back"],
                            "the biases have gradients, too; which of them is cut?": without["biases"],
                            "both biases are taken for cut: the second is whole on every rank.": right
                            - ring(data, out * (1 - 1 / tensor)),
                            "the outputs are as wide as the inputs only in some layers: which of the two all-reduces "
                            "is of which?": right + ring(tensor, tokens / data * (into - out)),
                            "the outputs are as wide as the inputs only in some layers.": right
                            + ring(tensor, tokens / data * (out - into)),
                            "the groups are smaller than all ranks together: which N belongs to which all-reduce?": (
                                ring(data * tensor, tokens / data * (into + out))
                                + ring(data * tensor, ((into + out) * sizes[1] + sizes[1]) / tensor + out)
                            ),
                            "those are the numbers of all ranks together; asked for is one rank's.": right
                            * data
                            * tensor,
                            "a ring sends each number twice: as a term on its way to the sum, and as a part of the sum "
                            "on its way to all.": right / 2,
                            "the hidden numbers stay on their ranks: what do `rows` and `columns_back` all-reduce?": (
                                right + ring(tensor, tokens / data * (sizes[1] - into - out))
                            ),
                            "the hidden numbers stay on their ranks: what does `rows` all-reduce, and what does "
                            "`columns_back`?": right + ring(tensor, tokens / data * (2 * sizes[1] - into - out)),
                        },
                    )

    return judge


EXERCISES = Exercises(
    Exercise(
        "Adjoint",
        Criterion("broadcast", "Of a broadcast", 0.25, _broadcast),
        Criterion("all-gather", "Of an all-gather", 0.25, _all_gather),
        Criterion("all-reduce", "Of an all-reduce", 0.2, _all_reduce),
        Criterion("all-to-all", "Of an all-to-all", 0.2, _all_to_all),
        Criterion("little", "No more numbers than needed", 0.1, _little),
    ),
    Exercise(
        "Cut",
        Criterion("columns", "Columns, forward", 0.2, _columns),
        Criterion("columns-back", "Columns, backward, with one all-reduce", 0.3, _columns_back),
        Criterion("rows", "Rows, forward, with one all-reduce", 0.3, _rows),
        Criterion("rows-back", "Rows, backward", 0.2, _rows_back),
    ),
    Exercise(
        "deal",
        Criterion("queries", "Queries, keys and values of the same heads", 0.5, _queries),
        Criterion("out", "The rows of out that belong to them", 0.25, _rows_of_out),
        Criterion("attention", "The attention of the whole layer", 0.25, _whole_attention),
    ),
    Exercise(
        "cut_cross_entropy",
        Criterion("loss", "The loss of the whole vocabulary", 0.3, _mean_loss),
        Criterion("gradient", "The gradient by this rank's logits", 0.3, _entropy_slope),
        Criterion("large", "Large logits", 0.2, _large_logits),
        Criterion("small", "Two small collectives", 0.2, _two_small),
    ),
    Exercise(
        "route",
        Criterion("there-and-back", "Each token to its expert and back", 0.4, _there_and_back),
        Criterion("capacity", "No more than there is room for", 0.25, _capacity),
        Criterion("lonely", "Experts without work", 0.15, _lonely),
        Criterion("both-ways", "Two all-to-alls of what finds room", 0.2, _both_ways),
    ),
    Exercise(
        "balance",
        Criterion("loss", "The loss of all tokens", 0.45, _balance_loss),
        Criterion("gradient", "Its gradient", 0.35, _balance_slope),
        Criterion("words", "A few numbers", 0.2, _balance_words),
    ),
    Exercise(
        "words",
        Criterion("one-way", "Only data, only tensor", 0.5, _words(PLANS[:3])),
        Criterion("both", "Both at once", 0.5, _words(PLANS[3:])),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
