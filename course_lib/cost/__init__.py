"""What training costs: time, bytes on the wire, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.cost.cluster import Link, Prediction, System, predict

__all__ = ["Link", "Prediction", "System", "predict"]


def __getattr__(name: str) -> Any:
    """The cluster model when it is asked for: the other modules need nothing of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from course_lib.cost import cluster

    return getattr(cluster, name)
