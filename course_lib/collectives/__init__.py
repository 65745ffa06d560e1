"""Collectives on simulated ranks: all-reduce algorithms as plans, and programs that send messages (`simulated`)."""

from course_lib.collectives.plans import (
    Plan,
    Round,
    Trace,
    chunks,
    double_tree,
    doubling,
    halving,
    hierarchical,
    hybrid,
    ring,
    run,
    sharded,
    trace,
)

__all__ = [
    "Plan",
    "Round",
    "Trace",
    "chunks",
    "double_tree",
    "doubling",
    "halving",
    "hierarchical",
    "hybrid",
    "ring",
    "run",
    "sharded",
    "trace",
]
