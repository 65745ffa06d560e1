"""Six reports on measurements of this course, each with at most one trick in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib import statistics

RECORDED = Path(__file__).parent.parent / "recorded"
TRICKS = {
    "none": "nothing is wrong",
    "threshold": "a bound that the other side just misses",
    "normaliser": "divided by what flatters",
    "best run": "the best of many runs against typical ones",
    "baseline": "the other side was not tuned",
    "start": "not the same seconds are counted on both sides",
}
ROOM = 0.04  # relative: means and medians differ a little


@dataclass(frozen=True)
class Report:
    """A claim, its data, the trick in it, and between which two numbers the factor lies without the trick."""

    claim: str
    table: pd.DataFrame
    trick: str = field(repr=False)  # a learner may print a report
    low: float = field(repr=False)
    high: float = field(repr=False)

    def _repr_html_(self) -> str:
        return f"<p><b>{self.claim}</b></p>{self.table._repr_html_()}"


@lru_cache
def measurements() -> pd.DataFrame:
    """The recorded table of `course reproduce reports`."""
    return pd.read_csv(RECORDED / "reports.csv", comment="#")


@lru_cache
def trainings() -> pd.DataFrame:
    """Twenty recorded runs of one training (`course reproduce spread`): ten are called ours, ten theirs."""
    table = pd.read_csv(RECORDED / "spread.csv", comment="#")
    table = table[table["beside"] == "no"].reset_index(drop=True)
    return table.assign(side=np.where(table["seed"] < 10, "ours", "theirs"))


def reports() -> dict[str, Report]:
    """The reports by their letters."""
    made = (_start, _none, _threshold, _best_run, _baseline, _normaliser)
    found = {letter: make() for letter, make in zip("ABCDEF", made)}
    return {letter: replace(one, claim=f"{letter}. {one.claim}") for letter, one in found.items()}


def within(bound: float, side: str, serving: pd.DataFrame) -> float:
    """The most images a second that a side answers within `bound` ms (99th percentile); 0 where it can't."""
    kept = serving[(serving["side"] == side) & (serving["ms"] <= bound)]["images_per_s"]
    return float(kept.max()) if len(kept) else 0.0


def _between(*factors: float) -> tuple[float, float]:
    return min(factors) * (1 - ROOM), max(factors) * (1 + ROOM)


def _typical(values: pd.Series, ways: tuple[Callable, ...] = (np.mean, np.median)) -> list[float]:
    return [float(way(values.dropna())) for way in ways]


def _forever(values: pd.Series) -> float:
    """The median where a run that never came to its end took forever."""
    return float(values.fillna(np.inf).median())


def _start() -> Report:
    table = trainings()[["side", "seed", "start_s", "to_target_s"]]
    total = table["start_s"] + table["to_target_s"]
    ours, theirs = (table["side"] == side for side in ("ours", "theirs"))
    short, long = _forever(table[ours]["to_target_s"]), _forever(total[theirs])
    claim = f"Ours trains to the target in {short:.1f} s, theirs takes {long:.1f} s: {long / short:.1f} times as fast."
    factors = [b / a for a, b in zip(_typical(total[ours]), _typical(total[theirs]))]
    factors += [b / a for a, b in zip(*(_typical(table[side]["to_target_s"]) for side in (ours, theirs)))]
    factors += [_forever(total[theirs]) / _forever(total[ours])]
    shown = table.rename(columns={"start_s": "until the first step, s", "to_target_s": "from there to the target, s"})
    return Report(claim, shown.set_index(["side", "seed"]), "start", *_between(*factors))


def _none() -> Report:
    table = measurements().query("kind == 'step'").pivot(index="run", columns="side", values="ms")
    more, half = statistics.paired(np.log(table["theirs"]), np.log(table["ours"]))
    factor, low, high = (float(np.exp(value)) for value in (more, more - half, more + half))
    claim = (
        f"A step of theirs takes {factor:.2f} times as long as one of ours (95 %: {low:.2f} to {high:.2f}; ten runs "
        "each, in turns)."
    )
    ratios = table["theirs"] / table["ours"]
    spread = [factor, *_typical(ratios), table["theirs"].mean() / table["ours"].mean()]
    return Report(claim, table, "none", *_between(*spread, table["theirs"].median() / table["ours"].median()))


def _threshold() -> Report:
    table = measurements().query("kind == 'serving'")

    def ahead(ms: float) -> float:
        return within(ms, "ours", table) / within(ms, "theirs", table)

    bounds = np.sort(table["ms"].to_numpy())
    best = {side: within(np.inf, side, table) for side in ("ours", "theirs")}
    bounds = np.array([ms for ms in bounds if all(within(ms, side, table) > best[side] / 10 for side in best)])
    bound = max(bounds[:-2], key=ahead)
    ours, theirs = within(bound, "ours", table), within(bound, "theirs", table)
    shown = np.ceil(bound * 100) / 100
    claim = (
        f"Within {shown:.2f} ms (99th percentile) ours answers {ours:,.0f} images a second, theirs {theirs:,.0f}: "
        f"{ours / theirs:.1f} times as many."
    )

    def has_room(ms: float) -> bool:
        """Whether neither side just misses a larger batch."""
        return all(within(1.1 * ms, side, table) == within(ms, side, table) for side in best)

    further = [ms for ms in bounds if ms >= 1.1 * bound and has_room(ms)] or [bounds[-1]]
    factors = [ahead(ms) for ms in further]
    columns = {"setting": "images in a batch", "ms": "99th percentile, ms", "images_per_s": "images a second"}
    shown_table = table.rename(columns=columns)[["side", *columns.values()]].set_index(["side", "images in a batch"])
    return Report(claim, shown_table, "threshold", *_between(*factors))


def _best_run() -> Report:
    table = trainings().pivot_table(index=trainings()["seed"] % 10, columns="side", values="to_target_s", dropna=False)
    best, typical = float(table["theirs"].min()), _forever(table["ours"])
    claim = (
        f"Theirs needs {best:.2f} s to the target where ours needs {typical:.2f} s: {typical / best:.2f} times as fast."
    )
    factors = [a / b for a, b in zip(_typical(table["ours"]), _typical(table["theirs"]))]
    factors.append(_forever(table["ours"]) / _forever(table["theirs"]))
    # Both sides are the same training: whoever sees that says 1.
    return Report(claim, table.rename_axis("run"), "best run", *_between(*factors, 1.0))


def _baseline() -> Report:
    table = measurements().query("kind == 'rate'").pivot(index="setting", columns="side", values="steps").astype(int)
    usual = 0.1
    ours, theirs = int(table["ours"].min()), int(table["theirs"][usual])
    claim = (
        f"With momentum (ours) the loss falls to 0.7 in {ours} steps, without (theirs, at the usual rate of {usual:g}) "
        f"in {theirs}: {theirs / ours:.0f} times as fast."
    )
    return Report(claim, table.rename_axis("rate"), "baseline", *_between(table["theirs"].min() / ours))


def _normaliser() -> Report:
    table = measurements().query("kind == 'cores'")
    rate = table.groupby(["side", "setting"])["images_per_s"].median()
    each = rate["ours", 1] / (rate["theirs", 2] / 2)
    claim = f"Ours trains {each:.2f} times as many images a second for each core."
    shown = table.pivot(index="run", columns=["side", "setting"], values="images_per_s").round(0)
    shown.columns = [f"{side}, images a second on {cores:g} core{'s' * (cores > 1)}" for side, cores in shown.columns]
    means = table.groupby(["side", "setting"])["images_per_s"].mean()
    factors = [of["ours", 1] / of["theirs", count] for of in (rate, means) for count in (1, 2)]
    return Report(claim, shown, "normaliser", *_between(*factors))
