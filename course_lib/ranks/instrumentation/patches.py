"""Functions that the probe replaced or relies on, and whether the script has put others in their place."""

from __future__ import annotations

import types
from collections.abc import Callable


class Patches:
    """What stands where, and whether it still does."""

    def __init__(self) -> None:
        self._own: dict[tuple[int, str], tuple[object, str, object]] = {}

    def put(self, owner: object, name: str, wrap: Callable[[Callable], Callable]) -> None:
        """Replace `owner.name` by what `wrap` makes of it."""
        setattr(owner, name, wrap(getattr(owner, name)))
        self.guard(owner, name)

    def guard(self, owner: object, *names: str) -> None:
        """From now on `owner` must keep what it has under these names."""
        for name in names:
            if name in vars(owner):
                self._own[id(owner), name] = (owner, name, vars(owner)[name])

    def guard_all(self, *owners: object) -> None:
        """From now on these modules or classes must keep all that they have."""
        for owner in owners:
            self.guard(owner, *(name for name in vars(owner) if name == "__init__" or not name.startswith("__")))

    def seal(self) -> Callable[[], list[str]]:
        """A function that tells what the script has replaced since it was last asked."""
        own = tuple(self._own.values())
        codes = tuple((value, value.__code__) for _, _, value in own if isinstance(value, types.FunctionType))
        number = len(own) + len(codes)
        told: set[str] = set()

        def replaced() -> list[str]:
            found = [_name(owner, name) for owner, name, value in own if vars(owner).get(name) is not value]
            found += [function.__qualname__ for function, code in codes if function.__code__ is not code]
            if len(own) + len(codes) != number:
                found.append("the probe")
            new = [name for name in dict.fromkeys(found) if name not in told]
            told.update(new)
            return new

        return replaced


def _name(owner: object, name: str) -> str:
    return f"{getattr(owner, '__qualname__', None) or owner.__name__}.{name}"
