"""`horovod.run` in a process of its own, so that its whole tree can be ended.

    python run_function.py FOLDER RANKS CONTROLLER [HOSTS]

FOLDER/function.pkl is called on every rank; FOLDER/results.pkl then holds what each returned, in the order of ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

MAX_REASON_LENGTH = 500  # characters: a record must stay below PIPE_BUF


def tied(function: Callable[[], Any]) -> Callable[[], Any]:
    """`function` as a rank calls it: ended with the launcher, also on another host, to which it reports a failure."""

    def call() -> Any:
        from course_lib.ranks import rank

        report = rank.prepare()
        try:
            return function()
        except Exception as error:
            # Now: the other ranks fail too when this one leaves, and may be gone first.
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:MAX_REASON_LENGTH]
            report("rank-exit", code=1, reason=reason)
            raise

    return call


def patch_launcher() -> None:
    """Let the environment set the cycle time and the response cache.

    `horovod.run` of 0.28.1 overwrites both with "(None,)", which the ranks read as 0: they wait in a busy loop.
    """
    from horovod import runner

    class Arguments(runner._HorovodArgs):
        def __init__(self) -> None:
            super().__init__()
            self.cycle_time_ms = self.cache_capacity = None

    runner._HorovodArgs = Arguments


if __name__ == "__main__":
    import horovod

    from course_lib.ranks import horovodrun

    horovodrun.patch_launcher()
    patch_launcher()
    folder = Path(sys.argv[1])
    ranks, controller, *hosts = sys.argv[2:]
    function = cloudpickle.loads((folder / "function.pkl").read_bytes())
    results = horovod.run(
        tied(function),
        num_proc=int(ranks),
        hosts=hosts[0] if hosts else None,
        disable_cache=True,
        **{f"use_{controller}": True},
    )
    (folder / "results.pkl").write_bytes(cloudpickle.dumps(results))
