"""A training step on one device and on several: who does and holds what, what crosses the wires, what fits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import FancyBboxPatch, Patch

from course_lib.cost.memory import Network, cuts, largest_batch, split
from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    PALETTE,
    PAPER,
    WIDTH,
    Figure,
    colour,
    diagram,
    log_axis,
    panel,
    style,
    subplots,
)  # fmt: skip

STEPS = {
    1: "read",
    2: "trans-\nport",
    3: "pre-\nprocess",
    4: "queue",
    5: "trans-\nport",
    6: "layer 1",
    7: "layer 2",
    8: "output",
    9: "loss",
    10: "back 3",
    11: "back 2",
    12: "back 1",
    13: "opti-\nmizer",
    14: "update",
    15: "return",
}
PLACE_COLOURS = {"host": "#dcebf5", "wire": "#f0f0ec", "device": "#f8e6d4"}  # top to bottom
PART_COLOURS = {"weights": PALETTE[0], "gradients": PALETTE[5], "state": PALETTE[3], "activations": PALETTE[4]}
PART_LABELS = {"state": "optimizer state"}
MODES = {"data": ("data parallelism", PALETTE[2], "-"), "model": ("model parallelism", PALETTE[1], "--")}
DEVICE_MEMORIES_GB = {16: "P100", 24: "P40", 80: "A100"}
SAME_COLOUR, EMPTY_COLOUR, WRONG_COLOUR = "#9a9a96", "#ececea", PALETTE[1]
BATCH_SIZES = 2 ** np.arange(14)
_CENTRED = {"ha": "center", "va": "center"}
STRIP_BOTTOM, STRIP_HEIGHT = 372, 112  # pixels, of the strips of layers and images

DataBytes = Callable[[int, int], float]
ModelBytes = Callable[[Sequence[int], int], float]
Parts = Callable[[int, int, int, int], Mapping[str, float]]


def size(number: float) -> str:
    """Bytes in three digits, with a unit: 12345678 → "12.3 MB". 1 GB = 10⁹ bytes."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if number >= 0.9995 * 10**power:  # 999.9 kB would become "1000 kB"
            value = number / 10**power
            digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f} {unit}"
    return f"{number:.0f} B"


# The fifteen steps


def lanes(places: Mapping[str, Collection[int]], wrong: Collection[int] = ()) -> Figure:
    """The fifteen steps of one training step in the lanes where they happen, joined in their order.

    Args:
        places: "host", "wire" and "device" → numbers of the steps.
        wrong: steps that stand in a wrong lane; they are marked.
    """
    middle = {name: 210 - 82 * row for row, name in enumerate(PLACE_COLOURS)}
    lane = {step: name for name in PLACE_COLOURS for step in places.get(name, ()) if step in STEPS}
    placed = [step for step in STEPS if step in lane]
    missing = [step for step in STEPS if step not in lane]
    mistakes = [f"✗ in the wrong lane: {_join(wrong)}"] * bool(wrong) + [f"nowhere: {_join(missing)}"] * bool(missing)
    verdict = "     ".join(mistakes) or "✓ every step stands where it happens"
    with style():
        figure, axis = diagram(292)
        axis.text(14, 268, verdict, va="center", fontsize=11, color=WRONG_COLOUR if mistakes else INK)
        for name, face in PLACE_COLOURS.items():
            axis.axhspan(middle[name] - 36, middle[name] + 36, color=face)
            axis.text(14, middle[name], name, va="center", fontsize=11)
        axis.plot([_column_x(step) for step in placed], [middle[lane[step]] for step in placed], color=FAINT, lw=1.2)
        for step in placed:
            x, y = _column_x(step), middle[lane[step]]
            look, ink, number = {"edgecolor": INK, "linewidth": 1.1}, INK, str(step)
            if step in wrong:
                look, ink = {"edgecolor": WRONG_COLOUR, "linewidth": 2.2, "linestyle": "--"}, WRONG_COLOUR
                number = f"{step} ✗"
            elif lane[step] == "wire":
                number = f"{step} →"
            corners = "round,pad=0,rounding_size=5"
            axis.add_patch(
                FancyBboxPatch((x - 24, y - 25), 48, 50, boxstyle=corners, facecolor=PAPER, zorder=2, **look)
            )
            axis.text(x, y + 11, number, fontsize=9.5, fontweight="bold", color=ink, **_CENTRED)
            axis.text(x, y - 9, STEPS[step], fontsize=7.8, **_CENTRED)
    return figure


def shares(differs: Collection[int], after: int, wrong: Collection[int] = (), *, devices: int = 4) -> Figure:
    """The fifteen steps on several devices: coloured where each has numbers of its own, grey where all have the same.

    Args:
        differs: steps whose numbers differ from device to device.
        after: the step after which the gradients are averaged over all devices.
        wrong: steps that were judged wrongly; they are marked. 0 marks the all-reduce.
        devices: how many of them to show.
    """
    row = 34
    top = 52 + row * devices
    columns = [(_column_x(step) - 21, 42) for step in STEPS]
    with style():
        figure, axis = diagram(top + 66)
        explanation = "coloured: every device has its own numbers     grey: all have the same"
        axis.text(14, top + 46, explanation, va="center", fontsize=11)
        for device in range(devices):
            y = top - row * (device + 0.5)
            faces = [PAPER if n == 15 else colour(device) if n in differs else SAME_COLOUR for n in STEPS]
            axis.text(14, y, f"device {device}", va="center", fontsize=11)
            axis.broken_barh(columns, (y - 13, 26), facecolors=faces, edgecolor=SAME_COLOUR, linewidth=0.8)
        for step, name in STEPS.items():
            bad = step in wrong
            ink, weight = (WRONG_COLOUR, "bold") if bad else (INK, "normal")
            number = f"{step} ✗" if bad else str(step)
            axis.text(_column_x(step), 46, number, ha="center", va="top", fontsize=9.5, color=ink, fontweight=weight)
            axis.text(_column_x(step), 30, name, ha="center", va="top", fontsize=7.8, color=FAINT)
        if 1 <= after <= len(STEPS):
            x, bad = _column_x(after) + 26.5, 0 in wrong
            ink, side = WRONG_COLOUR if bad else INK, "right" if after > 6 else "left"
            axis.plot([x, x], [50, top + 6], color=ink, linewidth=4, solid_capstyle="butt")
            label = "all-reduce: average of the gradients" + " ✗" * bad
            axis.text(x, top + 13, label, ha=side, color=ink, fontsize=10)
    return figure


def _column_x(step: int) -> float:
    return 122 + 53 * (step - 1)


def _join(steps: Collection[int]) -> str:
    return ", ".join(map(str, sorted(steps)))


# Data and model parallelism


@dataclass(frozen=True)
class Exchange:
    """A step of a network on several devices, by the functions that a learner wrote; see `exchange`."""

    network: Network
    mode: str
    devices: int
    batch: int
    data_bytes: DataBytes
    model_bytes: ModelBytes

    @property
    def sent_by_each(self) -> float:
        """Bytes that each device sends in a data-parallel step."""
        return self.data_bytes(self.network.weights, self.devices)

    @property
    def cuts(self) -> Sequence[int]:
        """Numbers of an image that cross each cut between two devices."""
        return cuts(self.network, self.devices)

    def edges(self) -> tuple[list[float], float]:
        """Left edges of the devices' boxes, and their width, in pixels."""
        slot = (WIDTH - 40) / self.devices
        width = min(96.0, slot - 46)
        return [20 + slot * (device + 0.5) - width / 2 for device in range(self.devices)], width

    def gaps(self) -> list[tuple[float, float]]:
        """Ends of the spaces between the boxes, in pixels."""
        left, width = self.edges()
        return [(a + width, b) for a, b in zip(left, left[1:])]


def exchange(
    network: Network,
    mode: str,
    devices: int,
    batch: int,
    *,
    data_bytes: DataBytes,
    model_bytes: ModelBytes,
    parts: Parts,
    state: int = 1,
) -> Figure:
    """Devices that train one network: what each holds, what crosses the wires in a step, which way is cheaper.

    Args:
        network: see `cost.memory.NETWORKS`.
        mode: "data" (all hold the network, each its own images) or "model" (each holds some layers; same images).
        devices: 2 to 8.
        batch: images of a step, over all devices together.
        data_bytes: (weights, devices) → bytes that each device sends in a data-parallel step.
        model_bytes: (numbers at the cuts, batch) → bytes over all cuts in a model-parallel step, both ways.
        parts: (weights, activations, batch, state) → bytes of weights, gradients, state, activations.
        state: numbers that the optimizer keeps for each weight.

    Raises:
        ValueError: for another mode.
    """
    if mode not in MODES:
        raise ValueError(f'mode is "data" or "model", not {mode!r}.')
    scene = Exchange(network, mode, devices, batch, data_bytes, model_bytes)
    with style():
        figure, axis = diagram(566, _source(network))
        _draw_devices(axis, scene)
        (_draw_ring if mode == "data" else _draw_chain)(axis, scene)
        _draw_memories(panel(figure, 84, 74, 330, 176), _memories(network, mode, devices, batch, parts, state))
        _draw_bytes(panel(figure, 530, 74, 346, 176), scene)
    return figure


def _draw_devices(axis: Axes, scene: Exchange) -> None:
    """One box for each device with its layers and its images."""
    left, width = scene.edges()
    boxes = [(x, width) for x in left]
    axis.broken_barh(boxes, (STRIP_BOTTOM - 12, STRIP_HEIGHT + 36), facecolor="white", edgecolor=FAINT)
    legend = "left strip: layers     right: images     grey: the same on every device     coloured: its own"
    axis.text(20, 522, legend, fontsize=9, color=FAINT)
    layers, first = len(scene.network.layers), 0
    for device, (x, run) in enumerate(zip(left, split(scene.network, scene.devices))):
        middle, ink = x + width / 2, colour(device)
        axis.text(middle, STRIP_BOTTOM + STRIP_HEIGHT + 9, f"device {device}", ha="center", color=ink, fontsize=9)
        own = range(first, first + len(run))
        if scene.mode == "data":
            layer_faces = [SAME_COLOUR] * layers
            image_faces = [ink if share == device else EMPTY_COLOUR for share in range(scene.devices)]
        else:
            layer_faces = [ink if layer in own else EMPTY_COLOUR for layer in range(layers)]
            image_faces = [SAME_COLOUR if run else EMPTY_COLOUR] * scene.devices
        _draw_strip(axis, middle - 21, layer_faces)
        _draw_strip(axis, middle + 5, image_faces)
        first += len(run)


def _draw_strip(axis: Axes, x: float, faces: Sequence[str]) -> None:
    """Boxes below each other."""
    thick = STRIP_HEIGHT / len(faces)
    bottoms = STRIP_BOTTOM + STRIP_HEIGHT - thick * np.arange(1, len(faces) + 1) + 1
    _draw_boxes(axis, [(x, y, 16, thick - 1) for y in bottoms], faces)


def _draw_boxes(axis: Axes, boxes: Sequence[tuple[float, float, float, float]], faces: str | Sequence[str]) -> None:
    """Boxes of (left, bottom, width, height), as one artist: a slider has no time for each by itself."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
    axis.add_collection(PolyCollection(corners, facecolors=faces, linewidths=0, zorder=2))


def _draw_arrows(axis: Axes, arrows: Sequence[tuple[float, float]], y: float, ink: str) -> None:
    """Arrows at one height, all in the same direction: (from, to)."""
    head = ">" if all(end > start for start, end in arrows) else "<"
    tips = [end - 4 if head == ">" else end + 4 for _, end in arrows]
    xs = np.ravel([(start, tip, np.nan) for (start, _), tip in zip(arrows, tips)])
    axis.plot(xs, np.full(len(xs), y), head + "-", color=ink, linewidth=1.6, markersize=6, markevery=slice(1, None, 3))


def _draw_ring(axis: Axes, scene: Exchange) -> None:
    """The wires of data parallelism, and what is said of it."""
    left, width = scene.edges()
    name, ink, _ = MODES["data"]
    middle, below = STRIP_BOTTOM + STRIP_HEIGHT / 2, STRIP_BOTTOM - 34
    each = scene.sent_by_each
    _draw_arrows(axis, scene.gaps(), middle, ink)
    for start, end in scene.gaps():
        axis.text((start + end) / 2, middle + 8, size(each), ha="center", fontsize=7.8, color=ink)
    first, last = left[0] + width / 2, left[-1] + width / 2
    way_back = [last, last, first, first], [STRIP_BOTTOM - 12, below, below, STRIP_BOTTOM - 18]
    axis.plot(*way_back, color=ink, linewidth=1.6)
    axis.plot(first, STRIP_BOTTOM - 17, "^", color=ink, markersize=6)
    title = f"{name}: every device has all layers, and 1/{scene.devices} of the {scene.batch:,} images"
    axis.text(20, 542, title, fontsize=11)
    total = f"{size(each)} from each device, {size(scene.devices * each)} in all"
    note = f"gradients, round the ring: {total}, at any batch size"
    axis.text(WIDTH / 2, below - 18, note, ha="center", fontsize=10, color=ink)


def _draw_chain(axis: Axes, scene: Exchange) -> None:
    """The wires of model parallelism, and what is said of it."""
    name, ink, _ = MODES["model"]
    high, low = STRIP_BOTTOM + STRIP_HEIGHT * 0.66, STRIP_BOTTOM + STRIP_HEIGHT * 0.34
    gaps = scene.gaps()[: len(scene.cuts)]
    _draw_arrows(axis, gaps, high, ink)
    _draw_arrows(axis, [(end, start) for start, end in gaps], low, ink)
    for (start, end), numbers in zip(gaps, scene.cuts):
        one_way, middle = size(scene.model_bytes([numbers], scene.batch) / 2), (start + end) / 2
        axis.text(middle, high + 8, one_way, ha="center", fontsize=7.8, color=ink)
        axis.text(middle, low - 8, one_way, ha="center", va="top", fontsize=7.8, color=ink)
    idle = scene.devices - len(scene.cuts) - 1
    spare = f" ({idle} have none: there are no more)" if idle else ""
    title = f"{name}: the layers are dealt out{spare}, all see the same {scene.batch:,} images"
    axis.text(20, 542, title, fontsize=11)
    total = size(scene.model_bytes(scene.cuts, scene.batch))
    note = f"→ activations, ← their gradients: {total} in all. One device computes while the others wait"
    axis.text(WIDTH / 2, STRIP_BOTTOM - 52, note, ha="center", fontsize=10, color=ink)


def _memories(
    network: Network, mode: str, devices: int, batch: int, parts: Parts, state: int
) -> list[Mapping[str, float]]:
    """What each device holds, by part."""
    if mode == "data":
        return [parts(network.weights, network.activations, -(-batch // devices), state)] * devices
    held = []
    for device, run in enumerate(split(network, devices)):
        weights = sum(layer.weights for layer in run)
        activations = sum(layer.activations for layer in run) + (network.image if device == 0 else 0)
        held.append(parts(weights, activations, batch, state))
    return held


def _draw_memories(axis: Axes, held: Sequence[Mapping[str, float]]) -> None:
    """Stacked bars: the memory of each device."""
    devices, floor = range(len(held)), np.zeros(len(held))
    for part, ink in PART_COLOURS.items():
        amounts = np.array([parts.get(part, 0) for parts in held], float)
        _draw_boxes(axis, [(device - 0.31, floor[device], 0.62, amounts[device]) for device in devices], ink)
        floor += amounts
    largest = floor.max() or 1.0
    axis.set(xlim=(-0.6, len(held) - 0.4), ylim=(0, largest * 1.45), xlabel="device", ylabel="bytes")  # room: legend
    axis.set_title(f"Memory: {size(largest)} on the fullest device")
    axis.set_xticks(devices)
    axis.locator_params(axis="y", nbins=4)
    axis.yaxis.set_major_formatter(lambda value, _: _rounded_size(value) if value else "0")
    axis.grid(False, axis="x")
    patches = [Patch(color=ink, label=PART_LABELS.get(part, part)) for part, ink in PART_COLOURS.items()]
    axis.legend(handles=patches, loc="upper left", ncols=2, handlelength=1, borderaxespad=0)


def _draw_bytes(axis: Axes, scene: Exchange) -> None:
    """Bytes of a step over all wires against the batch, for both modes, and where they meet."""
    whole = scene.devices * scene.sent_by_each
    lines = {
        "data": np.full(len(BATCH_SIZES), whole, float),
        "model": np.array([scene.model_bytes(scene.cuts, int(number)) for number in BATCH_SIZES], float),
    }
    equal = _largest_batch(lambda number: scene.model_bytes(scene.cuts, number), whole)
    for name, values in lines.items():
        label, ink, dashes = MODES[name]
        axis.plot(BATCH_SIZES, values, dashes, color=ink, linewidth=3.2 if name == scene.mode else 1.6, label=label)
    here = whole if scene.mode == "data" else scene.model_bytes(scene.cuts, scene.batch)
    axis.plot(scene.batch, here, "o", color=MODES[scene.mode][1], markersize=9)
    if equal and equal <= BATCH_SIZES[-1]:
        axis.plot(equal, whole, "D", color=INK, markerfacecolor=PAPER)
    _byte_axes(axis, BATCH_SIZES[::3], [*lines["data"], *lines["model"]], room=1)
    axis.set(xlabel="batch size B (images in a step, all devices)", ylabel="bytes in a step")
    meet = f"equal at a batch of about {equal:,}" if equal else "no batch makes them equal"
    axis.set_title(f"Wires: {meet}")
    axis.legend(loc="upper left", borderaxespad=0)


def _largest_batch(bytes_of: Callable[[int], float], limit: float) -> int | None:
    """As `largest_batch`; None where the bytes do not grow: a learner's function may forget the batch."""
    try:
        return largest_batch(bytes_of, limit)
    except ValueError:
        return None


def _byte_axes(axis: Axes, batches: Sequence[int], values: Sequence[float], room: int = 0) -> None:
    """Log axes: batches to the right; upwards bytes by powers of ten around the values, and `room` more."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = int(np.floor(np.log10(min(positive)))), int(np.ceil(np.log10(max(positive))))
    log_axis(axis, "x", batches)
    log_axis(axis, "y", {10.0**power: _rounded_size(10.0**power) for power in range(low, high + 1)})
    axis.set(xlim=(0.8, BATCH_SIZES[-1] * 1.25), ylim=(10.0**low, 10.0 ** (high + room)))


def _rounded_size(number: float) -> str:
    return size(number).replace(".00", "").replace(".0", "")


def _source(network: Network) -> str:
    return f"{network.name}: {network.source} · {network.weights:,} weights · 4 bytes a number · 1 GB = 10⁹ bytes"


# Memory


def memory(network: Network, batch: int, *, parts: Parts, state: int = 1) -> Figure:
    """What training takes on one device: each part against the batch, the whole beside what devices have.

    Args:
        network, parts, state: as for `exchange`.
        batch: images of a step: the parts of this one are stacked above.
    """

    def whole(number: int) -> float:
        return sum(parts(network.weights, network.activations, number, state).values())

    now = parts(network.weights, network.activations, batch, state)
    table = [parts(network.weights, network.activations, int(number), state) for number in BATCH_SIZES]
    amounts = {part: np.array([row.get(part, 0) for row in table], float) for part in PART_COLOURS}
    total = sum(amounts.values())
    with style():
        figure, page = diagram(500, _source(network))
        _draw_parts(page, now, f"B = {batch:,}: {size(whole(batch))}")
        axis = panel(figure, 84, 74, 560, 296)
        # Dashes of their own phase keep equal lines visible: weights and gradients take the same.
        for place, (part, ink) in enumerate(PART_COLOURS.items()):
            dashes = "-" if part == "activations" else (5 * place, (5, 10))
            axis.plot(BATCH_SIZES, amounts[part], color=ink, linestyle=dashes, linewidth=2.4, label=part)
        axis.plot(BATCH_SIZES, total, color=INK, linewidth=1.4, label="all together")
        axis.axvline(batch, color=INK, linewidth=1)
        axis.plot(batch, whole(batch), "o", color=INK, markersize=9)
        _byte_axes(axis, BATCH_SIZES[::2], [*amounts["weights"], *amounts["activations"], *total, 80e9])
        axis.set(xlabel="batch size B (images)", ylabel="bytes")
        page.text(660, 372, "largest batch that fits", va="center", fontsize=11)
        for place, (limit, name) in enumerate(DEVICE_MEMORIES_GB.items()):
            most = _largest_batch(whole, limit * 1e9)
            answer = "any" if most is None else f"{most:,}" if most else "not one image"
            axis.axhline(limit * 1e9, color=FAINT, linestyle=":", linewidth=1.2)
            label_y = 301 + 22 * place
            line_y = 74 + 296 * axis.transLimits.transform(axis.transScale.transform((1, limit * 1e9)))[1]
            page.plot([644, 656], [line_y, label_y], ":", color=FAINT, linewidth=1.2)
            page.text(660, label_y, f"{limit} GB ({name}): {answer}", va="center", fontsize=9.5)
            if most and most <= BATCH_SIZES[-1]:
                axis.plot(most, limit * 1e9, "o", color=INK, markersize=5)
        page.plot([660, 686], [244, 244], color=INK, linewidth=1.4)
        page.text(694, 244, "all together", va="center", fontsize=9.5)
    return figure


def _draw_parts(page: Axes, parts: Mapping[str, float], title: str) -> None:
    """One bar of the whole width, divided into the parts, with a legend that has their sizes."""
    page.text(14, 474, title, va="center", fontsize=11)
    total = sum(parts.values()) or 1.0
    widths = [(WIDTH - 28) * parts.get(part, 0) / total for part in PART_COLOURS]
    starts = 14 + np.cumsum([0, *widths[:-1]])
    page.broken_barh(list(zip(starts, widths)), (434, 24), facecolors=list(PART_COLOURS.values()))
    labels = [f"{PART_LABELS.get(part, part)}: {size(parts.get(part, 0))}" for part in PART_COLOURS]
    patches = [Patch(color=ink, label=label) for ink, label in zip(PART_COLOURS.values(), labels)]
    page.legend(handles=patches, loc="upper left", bbox_to_anchor=(0, 430 / 500), ncols=4, columnspacing=4)


def measured(rows: Sequence[Mapping[str, float]], lines: Mapping[str, float], *, caption: str = "") -> Figure:
    """Measured growth of a process's memory with the batch, beside predictions.

    Args:
        rows: `batch` (the first is the smallest) and `peak`, in bytes.
        lines: label → predicted bytes for each image.
        caption: what it was measured with.
    """
    batch, peak = (np.array([row[key] for row in rows], float) for key in ("batch", "peak"))
    growth = (peak - peak[0]) / 1e6
    with style():
        figure, (axis,) = subplots(height=360, caption=caption)
        figure.subplots_adjust(left=70 / WIDTH, top=1 - 34 / 360)
        for (label, slope), dashes, ink in zip(lines.items(), ("-", "--", ":"), (PALETTE[0], PALETTE[2], PALETTE[3])):
            axis.plot(batch, slope * (batch - batch[0]) / 1e6, dashes, color=ink, label=f"predicted: {label}")
        axis.plot(batch, growth, "o", color=INK, markersize=8, label="measured", clip_on=False)
        axis.legend(loc="upper left")
        axis.set_xlabel("batch size B (images)")
        axis.set_ylabel(f"MB more than at B = {batch[0]:.0f}")
        axis.set_xticks(batch)
        axis.set_xlim(0, batch[-1] * 1.03)
        axis.set_ylim(0)
    return figure
