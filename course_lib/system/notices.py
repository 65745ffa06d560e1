"""What a module reports to whoever listens, so that it need not know them: a rank sends it to its launcher."""

from __future__ import annotations

from collections.abc import Callable

listeners: list[Callable[..., None]] = []


def notify(kind: str, **values: object) -> None:
    """Call each listener with `kind` and `values`."""
    for listener in listeners:
        listener(kind, **values)
