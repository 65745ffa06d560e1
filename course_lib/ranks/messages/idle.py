"""A waiting rank reports the current line of its script, so that the launcher can say which rank waits for which.

Horovod's stall inspector names the missing ranks only with MPI; over Gloo, Horovod 0.28.1 reports nothing.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

INTERVAL_S = 1.0
BUSY_SHARE = 0.2  # of a core: a rank that computes uses more, one that waits in a collective over Gloo uses 0.02
IDLE_INTERVALS = 4  # a rank counts as waiting after so many idle intervals
_KERAS = {"fit": "a training step of fit", "evaluate": "evaluate", "predict": "predict"}


def watch(report: Callable[..., None]) -> None:
    """Start a thread that reports when this rank starts and stops waiting.

    It calls `report("place", call=…, script=…, line=…)`, with the values of `place`, when the rank waits, and
    `report("place")` when it computes again.
    """
    sleep, cpu_seconds, main = time.sleep, time.process_time, threading.main_thread().ident or 0

    def follow() -> None:
        idle, before = 0, cpu_seconds()
        reported: dict[str, str | int] = {}
        while True:
            sleep(INTERVAL_S)
            now = cpu_seconds()
            idle = _idle_intervals(idle, now - before)
            before = now
            # No variable here refers to the frame, which would keep the script's arrays alive.
            current = place(sys._current_frames().get(main)) if idle == IDLE_INTERVALS else reported if idle else {}
            if current != reported:
                report("place", **current)
                reported = current

    threading.Thread(target=follow, daemon=True).start()


def _idle_intervals(idle: int, used: float) -> int:
    """The new count of idle intervals, after `idle` before and an interval with `used` CPU seconds.

    On a busy machine a rank that computes uses little CPU time, but then its threads wait for a core. A thread of
    Horovod sometimes waits for a core in a waiting rank too, so this lowers the count only by one.
    """
    if used >= BUSY_SHARE * INTERVAL_S:
        return 0
    return max(idle - 1, 0) if _wants_a_core() else min(idle + 1, IDLE_INTERVALS)


def _wants_a_core() -> bool:
    """Whether another thread of this process runs, waits for a core or reads from a disk (Linux only)."""
    own = str(threading.get_native_id())
    for thread in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            if thread.parent.name != own and thread.read_text().rpartition(")")[2].split()[0] in ("R", "D"):
                return True
    return False


def place(frame: FrameType | None) -> dict[str, str | int]:
    """The current position of a thread, given its innermost frame.

    Returns:
        call: the collective or Keras function that the thread is in; "" for another function.
        script, line: file name and line of the script; "" and 0 if the thread is not in the script.
    """
    main = getattr(sys.modules["__main__"], "__file__", "")
    call = horovod = ""
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file == main:
            return {"call": call or horovod, "script": Path(file).name, "line": frame.f_lineno}
        if "/horovod/" in file:
            horovod = f"Horovod's {name}()"  # the outermost function is the one that the script called
            if "callbacks" in file:
                call = type(frame.f_locals.get("self")).__name__
        elif file.endswith("/keras/src/engine/training.py"):
            call = call or _KERAS.get(name, "")
        frame = frame.f_back
    return {"call": call or horovod, "script": "", "line": 0}
