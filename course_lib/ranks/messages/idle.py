"""A rank that waits reports where its script stands, so that the launcher can say who waits for whom.

Horovod's own stall inspector names the missing ranks with MPI only: over Gloo, 0.28.1 is silent.
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
BUSY_SHARE = 0.2  # of a core: a rank that computes takes more, one that waits in a collective over Gloo 0.02
IDLE_INTERVALS = 4  # after which a rank counts as waiting
_KERAS = {"fit": "a training step of fit", "evaluate": "evaluate", "predict": "predict"}


def watch(report: Callable[..., None]) -> None:
    """Start a thread that calls `report("place", call=…, script=…, line=…)` once this rank waits, with the values of
    `place`, and `report("place")` once it computes again."""
    sleep, cpu_seconds, main = time.sleep, time.process_time, threading.main_thread().ident or 0

    def follow() -> None:
        idle, before = 0, cpu_seconds()
        reported: dict[str, str | int] = {}
        while True:
            sleep(INTERVAL_S)
            now = cpu_seconds()
            idle = _idle_intervals(idle, now - before)
            before = now
            # The frame is in no variable here: it would keep the script's arrays alive.
            current = place(sys._current_frames().get(main)) if idle == IDLE_INTERVALS else reported if idle else {}
            if current != reported:
                report("place", **current)
                reported = current

    threading.Thread(target=follow, daemon=True).start()


def _idle_intervals(idle: int, used: float) -> int:
    """How many intervals this rank has waited, `idle` before one in which it used so many CPU seconds.

    On a busy machine a rank that computes uses little, but then its threads wait for a core. So does Horovod's, now and
    then, in a rank that waits.
    """
    if used >= BUSY_SHARE * INTERVAL_S:
        return 0
    return max(idle - 1, 0) if _wants_a_core() else min(idle + 1, IDLE_INTERVALS)


def _wants_a_core() -> bool:
    """Whether a thread of this process but the calling one runs, waits for a core or reads from a disk (Linux)."""
    own = str(threading.get_native_id())
    for thread in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            if thread.parent.name != own and thread.read_text().rpartition(")")[2].split()[0] in ("R", "D"):
                return True
    return False


def place(frame: FrameType | None) -> dict[str, str | int]:
    """Where a thread stands, given its innermost frame: `call`, what it waits in ("" where that is no collective and
    nothing of Keras), and `line` of `script` (0 and "": not in the script)."""
    main = getattr(sys.modules["__main__"], "__file__", "")
    call = horovod = ""
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file == main:
            return {"call": call or horovod, "script": Path(file).name, "line": frame.f_lineno}
        if "/horovod/" in file:
            horovod = f"Horovod's {name}()"  # the outermost is the one that the script has called
            if "callbacks" in file:
                call = type(frame.f_locals.get("self")).__name__
        elif file.endswith("/keras/src/engine/training.py"):
            call = call or _KERAS.get(name, "")
        frame = frame.f_back
    return {"call": call or horovod, "script": "", "line": 0}
