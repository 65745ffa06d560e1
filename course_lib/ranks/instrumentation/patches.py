"""Patches of TensorFlow, Keras and Horovod, with which this process logs the calls of an unchanged script."""

from __future__ import annotations

from collections.abc import Callable

Wrap = Callable[[Callable], Callable]  # original → replacement


class Patches:
    """Replaced functions and methods; `undo` restores the originals."""

    def __init__(self) -> None:
        self._originals: list[tuple[object, str, Callable]] = []

    def replace(self, owner: object, name: str, wrap: Wrap) -> None:
        """Replace `owner.name` by `wrap(owner.name)`."""
        self.put(owner, name, wrap(getattr(owner, name)))

    def put(self, owner: object, name: str, replacement: Callable) -> None:
        """Replace `owner.name` by `replacement`."""
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, replacement)

    def undo(self) -> None:
        """Restore all originals, in reverse order."""
        while self._originals:
            setattr(*self._originals.pop())
