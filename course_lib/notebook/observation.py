"""What the host saw of the ranks while they trained, and what it says of how they did: nothing here comes from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_lib.ranks.evidence import Moment

MIN_CPU_SHARE = 0.4  # of the CPU seconds of the busiest rank, that each must use while they speak to each other
MAX_PAUSES = 0.5  # of the looks: so much may be pauses, in which rank 0 saves or evaluates and the others wait for it
MAX_SILENT_SHARE = 0.6  # of the ranks' CPU seconds, that may pass without a word between them
SPAN_S = 2.0  # in which ranks that average every step speak at least once, however large their batches are
_MIN_SPANS = 8  # that it takes to say anything
_SILENCE = 0.1  # of the mean number of bytes in a span, or between two looks: below it, nobody speaks
_ENDS = 0.1  # of all bytes: what is spoken before the first tenth, as at the start, or after the last says nothing
_MIN_MOMENTS = 6  # that it takes to say anything


def idle(moments: Sequence[Moment]) -> str:
    """A sentence about a rank that computed little while the ranks spoke to each other, "" where none did."""
    _, spoken, seconds = _training(moments)
    if len(seconds) < _MIN_MOMENTS or seconds.shape[1] < 2:
        return ""
    speaking = spoken >= _SILENCE * spoken.mean()
    # Where most looks are silent the steps are long, and what is computed between two words counts.
    used = seconds[speaking if np.mean(~speaking) <= MAX_PAUSES else slice(None)].sum(axis=0)
    rank = int(used.argmin())
    if used[rank] >= MIN_CPU_SHARE * used.max():
        return ""
    return (
        f"While gradients went between the ranks, rank {rank} used {used[rank]:.1f} s of its core, rank "
        f"{int(used.argmax())} {used.max():.1f} s: it did not compute gradients of its own."
    )


def silent(moments: Sequence[Moment]) -> str:
    """A sentence about ranks that computed, for most of the training, without a word between them; "" else."""
    times, spoken, seconds = _training(moments)
    if not len(times) or times[-1] - times[0] < _MIN_SPANS * SPAN_S or seconds.shape[1] < 2 or not seconds.sum():
        return ""
    span = ((times - times[0]) // SPAN_S).astype(int)
    spoken, used = np.bincount(span, spoken), np.bincount(span, seconds.sum(axis=1))
    quiet = spoken < _SILENCE * spoken.mean()
    share = used[quiet].sum() / used.sum()
    if share <= MAX_SILENT_SHARE:
        return ""
    return (
        f"For {share:.0%} of the time that they computed, no bytes went between the ranks: gradients that are averaged "
        "on every step go between them all the time."
    )


def _training(moments: Sequence[Moment]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times [n], bytes [n] and CPU seconds [n, ranks] of the looks from the first that counts to the last, each since
    the look before."""
    if len(moments) < 2:
        return np.zeros(0), np.zeros(0), np.zeros((0, 0))
    times = np.array([moment.time for moment in moments[1:]])
    spoken = np.diff([moment.traffic for moment in moments])
    seconds = np.maximum(np.diff([moment.cpu_seconds for moment in moments], axis=0), 0)
    told = np.cumsum(spoken) / max(1, spoken.sum())
    during = slice(int(np.argmax(told > _ENDS)), int(np.argmax(told >= 1 - _ENDS)) + 1)
    return times[during], spoken[during], seconds[during]
