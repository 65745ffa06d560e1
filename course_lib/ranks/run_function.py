"""`horovod.run` in a separate process, so that its process tree can be ended.

    python run_function.py FOLDER RANKS CONTROLLER [HOSTS]

Every rank calls the function in FOLDER/function.pkl; the results go to FOLDER/results.pkl, in rank order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

MAX_REASON_LENGTH = 500  # characters: a record must stay below PIPE_BUF


def tied(function: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap `function` for a rank: the rank ends with the launcher, also on another host, and reports a failure."""

    def call() -> Any:
        from course_lib.ranks import rank

        report = rank.prepare()
        try:
            return function()
        except Exception as error:
            # Report now: the other ranks fail when this one ends, and may end earlier.
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:MAX_REASON_LENGTH]
            report("rank-exit", code=1, reason=reason)
            raise

    return call


def patch_launcher() -> None:
    """Make `horovod.run` respect the environment variables for the cycle time and the response cache.

    In Horovod 0.28.1 it sets both to "(None,)", which the ranks read as 0; a cycle time of 0 is a busy loop.
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
