"""Collectives on simulated ranks: all-reduce algorithms as plans (`plans`), and programs that exchange messages
(`simulated`)."""

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
