"""Figures of notebook 5c: memory over a step and by depth, schedules of recomputing, offloading, shared states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MultipleLocator

from course_lib import statistics
from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    WIDTH,
    Figure,
    colour,
    empty_figure,
    panel,
    style,
    subplots,
)  # fmt: skip
from labs.lab5_precision_and_memory.lessons.counted_chain import Call, fewest, halved
from labs.lab5_precision_and_memory.lessons.offload import Timeline

MB, GB = 1e6, 1e9
DASHED = (0, (4, 3))
PARTS = {"weights": PALETTE[0], "state": PALETTE[5], "gradients": PALETTE[4], "activations": PALETTE[2]}


def step(profiles: Mapping[str, pd.DataFrame], *, caption: str = "") -> Figure:
    """What is in memory over a training step: counted by kind, as areas, and measured, as a line.

    Args:
        profiles: title → as from `peaks.step`, a panel each.
    """
    with style():
        figure, axes = subplots(height=390, columns=len(profiles), caption=caption)
        for axis, (title, rows) in zip(axes, profiles.items()):
            at = np.arange(len(rows))
            parts = [rows[part] / MB for part in PARTS]
            axis.stackplot(at, parts, colors=PARTS.values(), alpha=0.55, step="mid", linewidth=0)
            axis.step(at, rows["peak"] / MB, where="mid", color=INK, linewidth=1.4)
            most = int(rows["peak"].argmax())
            axis.plot(most, rows["peak"].iloc[most] / MB, "v", color=INK)
            phases = [phase for phase in dict.fromkeys(rows["phase"]) if phase != "start"]
            axis.set_xticks([at[rows["phase"] == phase].mean() for phase in phases], phases)
            axis.tick_params(axis="x", length=0)
            axis.grid(False, axis="x")
            axis.set_xlim(0, len(rows) - 0.5)
            axis.set_title(f"{title}: at most {rows['peak'].max() / MB:.1f} MB")
        axes[0].set_ylabel("MB")
        handles = [Patch(color=ink, alpha=0.55, label=part) for part, ink in PARTS.items()]
        handles.append(Line2D([], [], color=INK, label="measured (▾ the most)"))
        figure.legend(handles=handles, loc="upper left", ncols=len(handles))
    return figure


def by_depth(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Peak memory of a densely connected network by its depth.

    Args:
        table: columns depth, and one of bytes for each way to keep its inputs.
    """
    with style():
        figure, (left, right) = subplots(height=370, columns=2, caption=caption)
        for number, way in enumerate(column for column in table if column != "depth"):
            look = {"color": PALETTE[number], "marker": MARKERS[number]}
            left.plot(table["depth"], table[way] / MB, **look, label=way)
            exponent = np.polyfit(np.log(table["depth"]), np.log(table[way]), 1)[0]
            right.loglog(table["depth"], table[way] / MB, **look)
            end = table["depth"].iloc[-1], table[way].iloc[-1] / MB
            right.annotate(f"slope {exponent:.2f}", end, (-16, 4), textcoords="offset points", ha="right")
        left.set_title("peak, MB")
        right.set_title("the same, both axes logarithmic")
        right.set_xticks(table["depth"], [f"{depth:g}" for depth in table["depth"]])
        right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        right.yaxis.set_major_formatter("{x:g}")
        right.minorticks_off()
        for axis in (left, right):
            axis.set_xlabel("layers")
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=4)
    return figure


def schedules(runs: Mapping[str, Sequence[Call]], *, caption: str = "") -> Figure:
    """Which layer is at work in which call, and which inputs are kept meanwhile: time to the right, a panel each.

    Args:
        runs: title → `Chain.calls`.
    """
    with style():
        figure, axes = subplots(height=400, columns=len(runs), caption=caption)
        for axis, (title, calls) in zip(axes, runs.items()):
            layers = 1 + max(call.layer for call in calls)
            picture = np.zeros((layers, len(calls)), int)
            for time, call in enumerate(calls):
                picture[list(call.kept), time] = 1
                picture[call.layer, time] = 2 if call.kind == "forward" else 3
            colours = ListedColormap([PAPER, "#d9d9d4", PALETTE[0], PALETTE[1]])
            axis.imshow(
                picture, cmap=colours, vmin=0, vmax=3, aspect="auto", origin="lower", interpolation="nearest",
                extent=(0, len(calls), -0.5, layers - 0.5),
            )  # fmt: skip
            axis.grid(False)
            forwards = sum(call.kind == "forward" for call in calls)
            kept = max(len(call.kept) for call in calls)
            axis.set_title(f"{title}: {forwards} forwards, {kept} kept")
            axis.set_xlabel("calls")
        axes[0].set_ylabel("layer")
        inks = {"forward": PALETTE[0], "backward": PALETTE[1], "its input is kept": "#d9d9d4"}
        figure.legend(handles=[Patch(color=ink, label=name) for name, ink in inks.items()], loc="upper left", ncols=3)
    return figure


def trade(points: Mapping[str, tuple[int, int]], layers: int, *, caption: str = "") -> Figure:
    """Forward calls against arrays kept, both axes logarithmic; as lines the fewest, and those of halves.

    Args:
        points: name → (kept, forwards).
        layers: of the chain.
    """
    kept = np.arange(1, layers)
    curves = {"the fewest possible": fewest, "always half-way": halved}
    with style():
        figure, (axis,) = subplots(height=390, caption=caption)
        for number, (name, forwards) in enumerate(curves.items()):
            look = {"color": INK if number == 0 else FAINT, "linestyle": "-" if number == 0 else DASHED}
            axis.plot(kept, [forwards(layers, int(arrays)) for arrays in kept], **look, linewidth=1.5, label=name)
        for number, (name, place) in enumerate(points.items()):
            axis.plot(*place, MARKERS[number], color=PALETTE[number], markersize=9, label=name)
        axis.set(xscale="log", yscale="log", xlabel="arrays kept", ylabel="forward calls")
        for which, limits in ((axis.xaxis, (1, layers)), (axis.yaxis, (0.8 * layers, layers**2 / 2))):
            ticks = [base * 10**power for power in range(5) for base in (1, 2, 5)]
            which.set_ticks([t for t in ticks if limits[0] <= t <= limits[1]])
            which.set_major_formatter("{x:,.0f}")
        axis.minorticks_off()
        axis.set_ylim(0.8 * layers, 0.6 * layers**2)
        axis.legend(loc="upper right")
        axis.set_title(f"The backward pass of a chain of {layers} layers")
        figure.subplots_adjust(left=72 / WIDTH, top=1 - 40 / 390)
    return figure


_LANES = {"computes": ("forward", "backward"), "to the host": ("out",), "from the host": ("back",)}
_WORK = {"forward": PALETTE[0], "backward": PALETTE[1], "transfer": PALETTE[2]}


def offload(step: Timeline, names: Sequence[str], *, caption: str = "") -> Figure:
    """A step with moved inputs over time: who is at work, and the activations on the device.

    Args:
        names: of the layers.
    """
    height, end = 430, 1e3 * step.seconds
    with style():
        figure = empty_figure(height, caption)
        lanes, memory = panel(figure, 116, 246, 752, 110), panel(figure, 116, 70, 752, 140)
        for place, kinds in enumerate(_LANES.values()):
            spans = [span for span in step.spans if span.kind in kinds]
            bars = [(1e3 * span.start, max(end / 752, 1e3 * (span.end - span.start))) for span in spans]
            inks = [_WORK.get(span.kind, _WORK["transfer"]) for span in spans]
            lanes.broken_barh(bars, (place - 0.39, 0.78), facecolors=inks, edgecolor=PAPER, linewidth=0.7)
        lanes.set_yticks(range(len(_LANES)), list(_LANES))
        lanes.tick_params(axis="y", length=0)
        lanes.set_ylim(len(_LANES) - 0.5, -0.5)
        lanes.grid(False, axis="y")
        times, sizes = np.append(1e3 * step.memory[:, 0], end), np.append(step.memory[:, 1], step.memory[-1, 1])
        memory.step(times, sizes / GB, where="post", color=INK, linewidth=1.5)
        memory.set(ylim=(0, 1.12 * step.peak / GB), xlabel="milliseconds", ylabel="activations, GB")
        for axis in (lanes, memory):
            axis.set_xlim(0, end)
        moved = sum(span.kind == "out" for span in step.spans)
        title = f"{moved} of {len(names)} inputs moved: {end:,.0f} ms, at most {step.peak / GB:.2f} GB"
        figure.text(14 / WIDTH, 404 / height, title, fontsize=11)
        handles = [Patch(color=ink, label=kind) for kind, ink in _WORK.items()]
        figure.legend(handles=handles, loc="upper left", ncols=3, bbox_to_anchor=(0, 398 / height))
    return figure


def shares(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """Bytes for each weight on a rank, by number of ranks and stage: stacked bars.

    Args:
        table: columns ranks, stage, weights, gradients, state (bytes for each weight).
    """
    with style():
        figure, axes = subplots(height=370, columns=table["stage"].nunique(), caption=caption)
        for axis, (stage, rows) in zip(axes, table.groupby("stage")):
            bottom, at = np.zeros(len(rows)), np.arange(len(rows))
            for part in ("weights", "gradients", "state"):
                axis.bar(at, rows[part], 0.7, bottom, color=PARTS[part], alpha=0.75)
                bottom += rows[part].to_numpy()
            for place, height in zip(at, bottom):
                axis.text(place, height + 0.25, f"{height:.3g}", ha="center", fontsize=9)
            axis.set_xticks(at, [f"{ranks:g}" for ranks in rows["ranks"]])
            axis.set_ylim(0, 18.5)
            axis.set_xlim(-0.8, len(rows) - 0.2)
            axis.grid(False, axis="x")
            axis.set_xlabel("ranks")
            axis.set_title(f"stage {stage}" if stage else "nothing shared out")
            axis.yaxis.set_major_locator(MultipleLocator(4))
            if axis is not axes[0]:
                axis.set_yticklabels([])
        axes[0].set_ylabel("bytes for each weight")
        figure.subplots_adjust(left=60 / WIDTH)
        handles = [Patch(color=PARTS[part], alpha=0.75, label=part) for part in ("weights", "gradients", "state")]
        figure.legend(handles=handles, loc="upper left", ncols=3)
    return figure


def rates(table: pd.DataFrame, *, caption: str = "") -> Figure:
    """LARS's rate of each layer on each rank, over the rate of the serial run, by where the norms are taken.

    Args:
        table: columns place, rank, layer, ratio (NaN where a rank has nothing of the layer).
    """
    places = list(dict.fromkeys(table["place"]))
    layers = list(dict.fromkeys(table["layer"]))
    with style():
        figure, axes = subplots(height=370, columns=len(places), caption=caption)
        for axis, place in zip(axes, places):
            axis.axhline(1, color=INK, linewidth=1.2)
            rows = table[table["place"] == place]
            for rank, mine in rows.groupby("rank"):
                at = [layers.index(layer) + 0.14 * (rank - (rows["rank"].nunique() - 1) / 2) for layer in mine["layer"]]
                axis.plot(at, mine["ratio"], MARKERS[rank], color=colour(rank))
            axis.set_xticks(range(len(layers)), layers)
            axis.set_ylim(0, max(1.9, 1.1 * table["ratio"].max()))
            axis.yaxis.set_major_locator(MultipleLocator(0.5))
            axis.grid(False, axis="x")
            axis.set_title(place)
        axes[0].set_ylabel("rate, over the serial run's")
        figure.subplots_adjust(left=66 / WIDTH)
        ranks = sorted(table["rank"].unique())
        handles = [
            Line2D([], [], color=colour(rank), marker=MARKERS[rank], linestyle="", label=f"rank {rank}")
            for rank in ranks
        ]
        figure.legend(handles=handles, loc="upper left", ncols=len(handles))
    return figure


def recompute(table: pd.DataFrame, counted: pd.DataFrame, *, caption: str = "") -> Figure:
    """The recorded experiment `recompute`: peak memory and seconds of a step, with and without recomputing, by depth.

    Args:
        table: columns depth, recompute, run, megabytes, processor seconds.
        counted: columns depth, recompute, megabytes.
    """
    caption = f"dots: runs; bars: mean, 95 % interval (t); dashed: counted · {caption}"
    with style():
        figure, (left, right) = subplots(height=390, columns=2, caption=caption)
        for number, (again, label) in enumerate(((False, "everything kept"), (True, "each block recomputed"))):
            rows = table[table["recompute"] == again]
            look = {"color": PALETTE[number]}
            plan = counted[counted["recompute"] == again]
            left.plot(plan["depth"], plan["megabytes"], linestyle=DASHED, linewidth=1.3, **look)
            for axis, column in ((left, "megabytes"), (right, "processor seconds")):
                axis.plot(rows["depth"] - 0.5, rows[column], ".", alpha=0.5, **look)
                found = [(depth, *statistics.mean(runs)) for depth, runs in rows.groupby("depth")[column]]
                depths, means, halves = np.array(found).T
                axis.errorbar(
                    depths + 0.5, means, halves, marker=MARKERS[number], capsize=3, label=label, linewidth=1.3, **look
                )
        left.set_title("peak of a step, MB beyond one image's")
        right.set_title("processor seconds of a step")
        for axis in (left, right):
            axis.set_xlabel("depth")
            axis.set_ylim(0, None)
            axis.set_xticks(sorted(table["depth"].unique()))
        figure.legend(*left.get_legend_handles_labels(), loc="upper left", ncols=2)
    return figure
