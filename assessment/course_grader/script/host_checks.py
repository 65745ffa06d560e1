"""What the host saw of the ranks while they trained, and what it says of how they did: nothing here comes from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_lib.ranks.run_record import Moment

MIN_CPU_SHARE = 0.4  # of the CPU seconds of the busiest rank, that each must use while they speak to each other
MAX_SILENT_SHARE = 0.6  # of the ranks' CPU seconds, that may pass without a word between them
MIN_WHOLE_CPU_S = 5.0  # of the busiest rank, from the start on, that it takes to compare it with the others
SPAN_S = 2.0  # in which ranks that average every step speak at least once, however large their batches are
_MIN_SPANS = 8  # that it takes to say anything
_MIN_WORDS = 4  # that it takes to say anything
_ENDS = 0.1  # of all bytes: what is spoken before the first tenth, or after the last
# Of an update's bytes, between two looks. With fewer it is Horovod that speaks, which asks a thousand times a second
# whether others are ready, or gradients are compressed.
_WORD = 0.4
_LONGEST = 3.0  # times the median: what takes longer from word to word is a pause, in which one rank saves or builds


def idle(moments: Sequence[Moment], update: int = 0) -> str:
    """A sentence about a rank that computed little, in all or from word to word between the ranks; "" where none did.

    `update`: bytes that go between all ranks where they average the gradients of all weights once.
    """
    _, spoken, seconds = _since_the_last(moments)
    used = seconds.sum(axis=0)
    if len(used) > 1 and used.max() >= MIN_WHOLE_CPU_S and used.min() < MIN_CPU_SHARE * used.max():
        return _little("In the whole run", used)
    words = np.flatnonzero(spoken >= _word(spoken, update))
    if len(words) <= _MIN_WORDS or seconds.shape[1] < 2:
        return ""
    # What comes before the first word is the start. In a pause most may wait for one; in a step all compute: so a pause
    # counts no more than a long step.
    steps = np.add.reduceat(seconds[: words[-1] + 1], words[:-1] + 1)
    used = np.minimum(steps, _LONGEST * np.median(steps.max(axis=1))).sum(axis=0)
    return _little("While gradients went between the ranks", used) if used.min() < MIN_CPU_SHARE * used.max() else ""


def _little(when: str, used: np.ndarray) -> str:
    return (
        f"{when}, rank {used.argmin()} used {used.min():.1f} s of its core, rank {used.argmax()} {used.max():.1f} s: "
        "it did not compute gradients of its own."
    )


def silent(moments: Sequence[Moment], update: int = 0) -> str:
    """A sentence about ranks that computed, for most of the training, without a word between them; "" else."""
    times, spoken, seconds = _since_the_last(moments)
    word = _word(spoken, update)
    words = np.flatnonzero(spoken >= word)
    if len(words) < 2 or seconds.shape[1] < 2:
        return ""
    # What is spoken at the start, and a burst of bytes at either end, say nothing.
    told = np.cumsum(np.minimum(spoken, np.median(spoken[words])))
    during = slice(int(np.argmax(told > _ENDS * told[-1])), int(np.argmax(told >= (1 - _ENDS) * told[-1])) + 1)
    span = ((times[during] - times[during.start]) // SPAN_S).astype(int)
    if span[-1] < _MIN_SPANS or not seconds[during].sum():
        return ""
    told, used = np.bincount(span, spoken[during]), np.bincount(span, seconds[during].sum(axis=1))
    share = used[told < word].sum() / used.sum()
    if share <= MAX_SILENT_SHARE:
        return ""
    return (
        f"For {share:.0%} of the time that they computed, no bytes went between the ranks: gradients that are averaged "
        "on every step go between them all the time."
    )


def _word(spoken: np.ndarray, update: int) -> float:
    """Bytes before a look that are a word: not more where a burst is much larger, nor where gradients are smaller."""
    many = (spoken**2).sum() / max(1, spoken.sum())  # of a look in which much is said
    return max(1.0, _WORD * (min(update, many) if update else many))


def _since_the_last(moments: Sequence[Moment]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times [n], bytes [n] and CPU seconds [n, ranks] of the looks, each since the look before."""
    if len(moments) < 2:
        return np.zeros(0), np.zeros(0), np.zeros((0, 0))
    times = np.array([moment.time for moment in moments[1:]])
    spoken = np.diff([float(moment.traffic) for moment in moments])
    return times, spoken, np.maximum(np.diff([moment.computed for moment in moments], axis=0), 0)
