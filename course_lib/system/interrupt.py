"""Turn SIGTERM and SIGHUP into a KeyboardInterrupt, as Ctrl-C does.

Only the standard library: the set-up uses this module before anything is installed.
"""

from __future__ import annotations

import signal
import sys

_REPEAT_DELAY_S = 0.02


def raise_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt in this process.

    Python ignores exceptions in finalizers. An interrupt that arrives in a finalizer is therefore raised again after
    _REPEAT_DELAY_S.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # a signal stays ignored, as under nohup
            signal.signal(number, _interrupt)
    sys.unraisablehook = _repeat


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _repeat(dropped: sys.UnraisableHookArgs) -> None:
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _REPEAT_DELAY_S)
    else:
        sys.__unraisablehook__(dropped)
