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
        original = getattr(owner, name)
        self._originals.append((owner, name, original))
        setattr(owner, name, wrap(original))

    def undo(self) -> None:
        """Put all originals back, the last one first."""
        while self._originals:
            setattr(*self._originals.pop())
