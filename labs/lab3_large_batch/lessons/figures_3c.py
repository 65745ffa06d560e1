"""Notebook 3c: batch norm's moving averages, ghost batches, ranks, decay, and gradient noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from course_lib import statistics
from course_lib.notebook.plots.style import FAINT, MARKERS, PALETTE, WIDTH, Figure, style, subplots

DASHED = (0, (4, 3))
MIN_SEEDS = 3  # for an interval


def moving_averages(
    curves: Mapping[float, pd.DataFrame], estimated: Mapping[float, float], *, caption: str = ""
) -> Figure:
    """Validation accuracy by batch norm's momentum, and how much of the moving averages is still their start.

    Args:
        curves: momentum → columns updates, accuracy.
        estimated: momentum → accuracy at the end, when the statistics are estimated anew.
    """
    with style():
        figure, (left, right) = subplots(height=380, columns=2, caption=caption)
        for number, (momentum, curve) in enumerate(curves.items()):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            left.plot(curve["updates"], 100 * curve["accuracy"], **look, markersize=5, label=f"momentum {momentum:g}")
            left.plot(
                curve["updates"].iloc[-1], 100 * estimated[momentum], **look, markersize=12, markerfacecolor="none",
                markeredgewidth=1.6,
            )  # fmt: skip
            updates = np.arange(curve["updates"].iloc[-1] + 1)
            right.plot(updates, momentum**updates, color=PALETTE[number])
        left.set_title("validation accuracy, % (open: estimated anew)")
        left.set_ylim(0, 100)
        right.set_title("share of their start in the averages: momentumᵗ")
        right.set_ylim(0, 1)
        for axis in (left, right):
            axis.set_xlabel("updates t")
        figure.legend(loc="upper left", ncols=len(curves))
    return figure


def spread(ghosts: Sequence[int], measured: Sequence[float], *, caption: str = "") -> Figure:
    """How much an example's normalised values change with its companions, by the size of the ghost batch, log-log.

    Args:
        ghosts: sizes. measured: the standard deviation of the same values over many batches, one for each size.
    """
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        axis.loglog(ghosts, measured, "o-", color=PALETTE[0], label="your ghost_batch_norm")
        line = measured[len(measured) // 2] * np.sqrt(ghosts[len(ghosts) // 2] / np.array(ghosts, float))
        axis.loglog(ghosts, line, color=FAINT, linestyle=DASHED, linewidth=1.2, label="in proportion to 1 / √ghost")
        axis.set_xticks(ghosts, [f"{ghost:,}" for ghost in ghosts])
        axis.minorticks_off()
        _plain_ticks(axis)
        axis.set_xlabel("examples in a ghost batch")
        axis.set_ylabel("standard deviation")
        axis.set_title("How much the normalised values of one example vary over 200 batches")
        figure.legend(loc="upper left", ncols=2)
        figure.subplots_adjust(left=72 / WIDTH)
    return figure


def variances_of_ranks(shares: pd.DataFrame, far: pd.DataFrame, *, caption: str = "") -> Figure:
    """The variance of a batch that lies on several ranks; and its error where the values lie far from zero, log-log.

    Args:
        shares: columns b (examples on each rank), yours (synchronised), own (mean of the ranks' own variances).
        far: columns ratio (mean over standard deviation), yours, E[x²] − μ² (relative errors).
    """
    with style():
        figure, (left, right) = subplots(height=360, columns=2, caption=caption)
        sizes = shares["b"].to_numpy(float)
        left.plot(sizes, shares["yours"], "o-", color=PALETTE[0], label="your synchronised_statistics")
        left.plot(sizes, shares["own"], "s", color=PALETTE[1], label="mean of the ranks' own variances")
        fine = np.geomspace(sizes.min(), sizes.max(), 100)
        line = shares["yours"].iloc[-1] * (fine - 1) / fine
        left.plot(fine, line, color=FAINT, linestyle=DASHED, linewidth=1.2, label="(b − 1) / b")
        left.set_xscale("log")
        left.set_xticks(sizes, [f"{size:g}" for size in sizes])
        left.minorticks_off()
        left.set_ylim(0, 1.15)
        left.set_xlabel("examples on each rank, b")
        left.set_title(f"variance of {sizes.max():g} examples on ranks")
        right.loglog(far["ratio"], far["yours"], "o-", color=PALETTE[0])
        right.loglog(far["ratio"], far["E[x²] − μ²"], "^:", color=PALETTE[2], label="E[x²] − μ²")
        right.axhline(1, color=FAINT, linestyle=DASHED, linewidth=1.2)
        right.annotate("as large as the variance", (far["ratio"].min(), 1.3), color=FAINT)
        right.set_xlabel("mean over standard deviation, μ / σ")
        right.set_title("relative error of the variance, float32")
        handles, labels = left.get_legend_handles_labels()
        more, names = right.get_legend_handles_labels()
        figure.legend(handles + more, labels + names, loc="upper left", ncols=4)
        figure.subplots_adjust(wspace=0.22)
    return figure


def by_setting(
    panels: Mapping[str, pd.DataFrame], *, x: str, y: str, hue: str | None = None, note: str = "", caption: str = ""
) -> Figure:
    """A dot for each seed, and their mean, by a setting; of three seeds or more with its 95 % interval (Student's t).

    Args:
        panels: title → one row for each run; x, y, hue: its columns. Settings stand in the order of the rows. y is an
            accuracy as a share of 1; it is drawn in %.
        note: put before the caption.
    """
    with style():
        seeds = max(table.groupby([x, hue] if hue else x)[y].count().max() for table in panels.values())
        marks = "dots: seeds; " + ("bars: mean, 95 % (Student's t)" if seeds >= MIN_SEEDS else "large: their mean")
        caption = " · ".join(part for part in (note, marks, caption) if part)
        figure, axes = subplots(height=380, columns=len(panels), caption=caption)
        kinds = list(dict.fromkeys(kind for table in panels.values() for kind in table[hue])) if hue else [""]
        for axis, (title, table) in zip(axes, panels.items()):
            settings = list(dict.fromkeys(table[x]))
            for number, kind in enumerate(kinds):
                rows = table[table[hue] == kind] if hue else table
                shift = 0.24 * (number - (len(kinds) - 1) / 2)
                _draw_seeds(axis, rows, x, y, settings, shift, number, kind)
            axis.set_xticks(range(len(settings)), settings)
            axis.set_xlim(-0.6, len(settings) - 0.4)
            axis.grid(False, axis="x")
            axis.set_title(title)
        axes[0].set_ylabel(f"{y}, %")
        if hue:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=len(kinds))
        figure.subplots_adjust(left=84 / WIDTH, wspace=0.2, top=1 - (62 if hue else 36) / 380)
    return figure


def _draw_seeds(
    axis: Axes, rows: pd.DataFrame, x: str, y: str, settings: list, shift: float, number: int, label: str
) -> None:
    look = {"color": PALETTE[number], "linestyle": "none"}
    for place, setting in enumerate(settings):
        values = 100 * rows.loc[rows[x] == setting, y].dropna()
        if len(values) == 0:
            continue
        axis.plot([place + shift] * len(values), values, marker=".", alpha=0.5, **look)
        error = statistics.mean(values)[1] if len(values) >= MIN_SEEDS else 0
        first = {"label": label} if label and place == 0 else {}
        axis.errorbar(
            [place + shift + 0.09], [values.mean()], error, marker=MARKERS[number], capsize=3, markersize=6, **look,
            **first,
        )  # fmt: skip


def ghosts(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `normalisation`: test accuracy by size of the ghost batch, in both regimes."""
    rows = table.query("part == 'ghost' and use == 'result'")
    panels = {}
    for regime, part in rows.groupby("regime"):
        large = part["batch"].max()
        of = part["ghost"].where(part["ghost"] > 0, large)
        part = part.assign(of=of).sort_values(["batch", "of", "seed"], ascending=[True, False, True])
        names = [
            f"B = {batch:,}" if ghost == 0 else f"ghosts\nof {ghost:g}"
            for batch, ghost in zip(part["batch"], part["ghost"])
        ]
        panels[f"{regime}: B = {large:,}"] = part.assign(setting=names)
    return by_setting(panels, x="setting", y="test accuracy", caption=caption)


def across_ranks(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `normalisation`: batch norm of each rank's own share and of both together."""
    rows = table.query("part == 'ranks'")
    words = {"per rank": "each rank its own share", "synchronised": "all ranks together"}
    return by_setting(
        {
            f"{batch:,} examples on two ranks, {batch // 2:,} on each": part.assign(
                statistics=part["statistics"].map(words), scored=[f"rank {rank:g}'s network" for rank in part["rank"]]
            )
            for batch, part in rows.groupby("batch")
        },
        x="scored",
        y="test accuracy",
        hue="statistics",
        caption=caption,
    )


def both_sides(table: pd.DataFrame, part: str) -> pd.DataFrame:
    """Points of test accuracy by which one setting is ahead of another, at equal tuning and at equal rate, as text.

    Each mean is over the seeds, run by run, with its 95 % interval (Student's t); "–" where a pair has not run.

    Args:
        table: of the recorded experiment `normalisation`.
        part: "ghost" (ghost batches, less batch norm) or "decay" (all, kernels only and none, for each λ).
    """
    rows = table[(table["use"] != "tuning") & (table["part"] != "ranks") & (table["batch"] > 64)]
    setting = ["regime", "ghost", "decay", "decayed"]
    rows = rows.drop_duplicates([*setting, "rate", "seed"])
    runs = 100 * rows.set_index([*setting, "rate", "seed"])["test accuracy"].sort_index()
    known = set(runs.index.droplevel("seed"))
    best = rows[rows["use"] == "result"].groupby(setting)["rate"].first()

    def ahead(ours: tuple, one: float, theirs: tuple, other: float) -> str:
        if (*ours, one) not in known or (*theirs, other) not in known:
            return "–"
        return "{:+.1f} ± {:.1f}".format(*statistics.paired(runs.loc[(*ours, one)], runs.loc[(*theirs, other)]))

    found = {}
    for name, ours, theirs in _compared(best.index, part):
        mine, other = best[ours], best[theirs]
        found[name] = {
            "best η": f"{mine:g}, {other:g}",
            "each at its best η": ahead(ours, mine, theirs, other),
            "both at the first one's η": ahead(ours, mine, theirs, mine),
            "both at the second one's η": ahead(ours, other, theirs, other),
        }
    return pd.DataFrame(found).T


def _compared(settings: pd.Index, part: str) -> Iterator[tuple[tuple[str, str], tuple, tuple]]:
    """Of each comparison its name, and both settings: regime, ghost, decay, decayed."""
    for regime in settings.unique("regime"):
        none = (regime, 0, 0.0, "none")
        if part == "ghost":
            for ghost in sorted({ghost for where, ghost, *_ in settings if where == regime and ghost}):
                yield (regime, f"ghosts of {ghost:g}, less batch norm"), (regime, ghost, 0.0, "none"), none
            continue
        for decay in sorted({decay for where, _, decay, _ in settings if where == regime and decay}):
            kernels, every = ((regime, 0, decay, which) for which in ("kernels", "all"))
            yield (regime, f"λ = {decay:g}: kernels only, less all"), kernels, every
            yield (regime, f"λ = {decay:g}: all, less none"), every, none
            yield (regime, f"λ = {decay:g}: kernels only, less none"), kernels, none


def decays(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `normalisation`: decay of all variables and of the kernels only."""
    rows = table.query("part == 'decay' and use == 'result'").sort_values(["decayed", "decay", "seed"])
    words = {"all": "½ λ Σ w² over all variables", "kernels": "over the kernels only: not bias, γ, β"}
    plain = table.query("part == 'ghost' and use == 'result' and ghost == 0")
    plain = plain[plain["batch"] == plain.groupby("regime")["batch"].transform("max")].groupby("regime")[
        "test accuracy"
    ]
    figure = by_setting(
        {
            regime: part.assign(decayed=part["decayed"].map(words), λ=[f"λ = {decay:g}" for decay in part["decay"]])
            for regime, part in rows.groupby("regime")
        },
        x="λ",
        y="test accuracy",
        hue="decayed",
        note="each at the rate chosen for it, out of six; dashed: mean without decay",
        caption=caption,
    )
    for axis in figure.axes:
        axis.axhline(
            100 * plain.mean()[axis.get_title(loc="left")], color=FAINT, linestyle=DASHED, linewidth=1.2, zorder=1
        )
    return figure


def noisy_training(table: pd.DataFrame, caption: str = "") -> Figure:
    """The recorded experiment `gradient_noise`: test accuracy of a large batch made as noisy as smaller ones."""
    rows = table.query("part == 'training' and use == 'result'")
    panels = {}
    for regime, part in rows.groupby("regime"):
        large = part["batch"].max()
        part = part.sort_values(["batch", "base", "seed"], ascending=[True, False, True])
        names = [
            f"B = {batch:,}" if batch == base else f"as noisy\nas {base:g}"
            for batch, base in zip(part["batch"], part["base"])
        ]
        panels[f"{regime}: B = {large:,}"] = part.assign(noise=names)
    return by_setting(panels, x="noise", y="test accuracy", caption=caption)


def variances(table: pd.DataFrame, base: int, caption: str = "") -> Figure:
    """The total variance of a batch's gradient by its size, without and with multiplicative noise, log-log.

    Args:
        table: columns batch, noise (bool), variance, statistics (what batch norm uses: a panel for each).
        base: the batch size that the noise imitates.
    """
    panels = dict(list(table.groupby("statistics", sort=False)))
    with style():
        figure, axes = subplots(height=380, columns=len(panels), caption=caption)
        for axis, (statistics, rows) in zip(axes, panels.items()):
            _draw_variances(axis, rows, base)
            axis.set_title(f"batch norm uses {statistics}")
        axes[0].set_ylabel("total variance of the gradient")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="upper left", ncols=4)
        figure.subplots_adjust(left=76 / WIDTH, wspace=0.2)
    return figure


def kept(table: pd.DataFrame, base: int, spectra: Mapping[str, np.ndarray], *, caption: str = "") -> Figure:
    """The total variance by batch size as in `variances`, and the variance along the main directions of C.

    Args:
        table: of `variances`, with one kind of statistics.
        spectra: name → variances along the first, second, … main direction; the first is drawn as a line.
    """
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        _draw_variances(left, table, base)
        left.set_title("total variance, by batch size")
        for number, (name, values) in enumerate(spectra.items()):
            look = {"color": FAINT} if number == 0 else {"color": PALETTE[number - 1], "marker": MARKERS[number - 1]}
            line = "-" if number == 0 else "none"
            right.semilogy(np.arange(1, len(values) + 1), values, linestyle=line, markersize=5, label=name, **look)
        right.set_xlabel("main direction of C, by rank")
        right.set_title("variance along a direction")
        right.legend(loc="upper right")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=4)
        figure.subplots_adjust(left=76 / WIDTH, wspace=0.22)
    return figure


def _draw_variances(axis: Axes, rows: pd.DataFrame, base: int) -> None:
    sizes = np.array(sorted(rows["batch"].unique()), float)
    noisy = rows["noise"].astype(bool)
    start = rows.loc[(rows["batch"] == sizes[0]) & ~noisy, "variance"].iloc[0]
    axis.loglog(sizes, start * sizes[0] / sizes, color=FAINT, linestyle=DASHED, linewidth=1.2, label="∝ 1/M")
    axis.axhline(start * sizes[0] / base, color=FAINT, linestyle=":", linewidth=1.4, label=f"of a batch of {base}")
    for number, (group, label) in enumerate(
        ((rows[~noisy], "all weights 1"), (rows[noisy], f"z ~ N(1, M/{base} − 1)"))
    ):
        look = {"color": PALETTE[number], "marker": MARKERS[number], "linestyle": "none"}
        axis.loglog(group["batch"], group["variance"], **look, label=label)
    axis.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
    axis.minorticks_off()
    _plain_ticks(axis)
    axis.set_xlabel("examples in a batch, M")


def _plain_ticks(axis: Axes) -> None:
    """1, 2 and 5 on a log axis, in plain text."""
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
