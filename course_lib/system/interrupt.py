"""Being ended from outside: SIGTERM and SIGHUP become what Ctrl-C is, a KeyboardInterrupt, and none is lost.

With the standard library alone, because the set-up uses it before anything is installed.
"""

from __future__ import annotations

import signal
import sys

_REPEAT_DELAY_S = 0.02


def raise_on_signals() -> None:
    """Let the signals raise KeyboardInterrupt, for the rest of this process.

    Python drops what is raised in a finalizer, and with it the interrupt that happened to arrive there; such a
    one is raised again a moment later.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)
    sys.unraisablehook = _repeat


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _repeat(dropped: sys.UnraisableHookArgs) -> None:
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _REPEAT_DELAY_S)
    else:
        sys.__unraisablehook__(dropped)
