"""Notices from low-level modules to listeners. A rank registers a listener that reports to its launcher."""

from __future__ import annotations

from collections.abc import Callable

listeners: list[Callable[..., None]] = []


def notify(kind: str, **values: object) -> None:
    """Call each listener with `kind` and `values`."""
    for listener in listeners:
        listener(kind, **values)
