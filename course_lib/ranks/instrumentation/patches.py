"""Patches of TensorFlow, Keras and Horovod: how this process follows what a script does without changing the script."""

from __future__ import annotations

from collections.abc import Callable

Wrap = Callable[[Callable], Callable]  # original → what stands in its place


class Patches:
    """Functions and methods that were replaced; `undo` puts the originals back."""

    def __init__(self) -> None:
        self._originals: list[tuple[object, str, Callable]] = []

    def replace(self, owner: object, name: str, wrap: Wrap) -> None:
        """Put what `wrap` makes of `owner.name` in its place."""
        self.put(owner, name, wrap(getattr(owner, name)))

    def put(self, owner: object, name: str, replacement: Callable) -> None:
        """Put `replacement` in the place of `owner.name`."""
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, replacement)

    def undo(self) -> None:
        """Put all originals back, the last one first."""
        while self._originals:
            setattr(*self._originals.pop())
