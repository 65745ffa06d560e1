"""A training step on one device and on several: who does and holds what, what crosses the wires, what fits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from course_lib.cost.memory import Network, cuts, largest_batch, split
from course_lib.notebook.plots.canvas import Canvas, Panel
from course_lib.notebook.plots.style import FAINT, INK, PALETTE, PAPER, WIDTH, Figure, colour, style, subplots

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
    with style():
        canvas = Canvas(292)
        middle = {name: 210 - 82 * row for row, name in enumerate(PLACE_COLOURS)}
        canvas.boxes([(0, middle[name] - 36, WIDTH, 72, face) for name, face in PLACE_COLOURS.items()])
        for name, y in middle.items():
            canvas.text(14, y, name, va="center", size=11)
        lane = {step: name for name in PLACE_COLOURS for step in places.get(name, ()) if step in STEPS}
        placed = [step for step in STEPS if step in lane]
        if placed:
            canvas.line(
                [_column_x(step) for step in placed],
                [middle[lane[step]] for step in placed],
                color=FAINT,
                linewidth=1.2,
            )
        for step in placed:
            x, y, bad = _column_x(step), middle[lane[step]], step in wrong
            look = {"edge": WRONG_COLOUR, "linewidth": 2.2, "linestyle": "--"} if bad else {"linewidth": 1.1}
            canvas.card(x - 24, y - 25, 48, 50, face=PAPER, **look)
            number = f"{step} ✗" if bad else f"{step} →" if lane[step] == "wire" else str(step)
            canvas.text(x, y + 11, number, ha="center", va="center", bold=True, colour=WRONG_COLOUR if bad else INK)
            canvas.text(x, y - 9, STEPS[step], ha="center", va="center", size=7.8)
        missing = [step for step in STEPS if step not in lane]
        words = [f"✗ in the wrong lane: {_join(wrong)}"] * bool(wrong) + [f"nowhere: {_join(missing)}"] * bool(missing)
        said = "     ".join(words) or "✓ every step stands where it happens"
        canvas.text(14, 268, said, va="center", size=11, colour=WRONG_COLOUR if words else INK)
    return canvas.figure()


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
    with style():
        canvas = Canvas(top + 66)
        boxes = []
        for device in range(devices):
            y = top - row * (device + 0.5)
            canvas.text(14, y, f"device {device}", va="center", size=11)
            for step in STEPS:
                face = PAPER if step == 15 else colour(device) if step in differs else SAME_COLOUR
                boxes.append((_column_x(step) - 21, y - 13, 42, 26, face))
        canvas.boxes(boxes, edge=SAME_COLOUR, linewidth=0.8)
        for step, name in STEPS.items():
            bad = step in wrong
            look = {"colour": WRONG_COLOUR, "bold": True} if bad else {}
            canvas.text(_column_x(step), 46, f"{step} ✗" if bad else str(step), ha="center", va="top", **look)
            canvas.text(_column_x(step), 30, name, ha="center", va="top", size=7.8, colour=FAINT)
        if 1 <= after <= len(STEPS):
            x, bad = _column_x(after) + 26.5, 0 in wrong
            ink = WRONG_COLOUR if bad else INK
            canvas.line([x, x], [50, top + 6], color=ink, linewidth=4, solid_capstyle="butt")
            words = "all-reduce: average of the gradients" + " ✗" * bad
            canvas.text(x, top + 13, words, ha="right" if after > 6 else "left", colour=ink, size=10)
        words = "coloured: every device has its own numbers     grey: all have the same"
        canvas.text(14, top + 46, words, va="center", size=11)
    return canvas.figure()


def _column_x(step: int) -> float:
    return 122 + 53 * (step - 1)


def _join(steps: Collection[int]) -> str:
    return ", ".join(map(str, sorted(steps)))


# Data and model parallelism


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
    each = data_bytes(network.weights, devices)
    with style():
        canvas = Canvas(566)
        _draw_devices(canvas, network, mode, devices)
        if mode == "data":
            _draw_ring(canvas, devices, batch, each)
        else:
            _draw_chain(canvas, network, devices, batch, model_bytes)
        _draw_memories(canvas, _memories(network, mode, devices, batch, parts, state))
        _draw_bytes(canvas, network, mode, devices, batch, each, model_bytes)
        canvas.text(14, 12, _source(network), size=8.5, colour=FAINT)
    return canvas.figure()


def _device_edges(devices: int) -> tuple[list[float], float]:
    """Left edges of the devices' boxes, and their width."""
    slot = (WIDTH - 40) / devices
    width = min(96.0, slot - 46)
    return [20 + slot * (device + 0.5) - width / 2 for device in range(devices)], width


def _draw_devices(canvas: Canvas, network: Network, mode: str, devices: int) -> None:
    """One box for each device with its layers and its images."""
    left, width = _device_edges(devices)
    canvas.boxes([(x, STRIP_BOTTOM - 12, width, STRIP_HEIGHT + 36, "white") for x in left], edge=FAINT)
    words = "left strip: layers     right: images     grey: the same on every device     coloured: its own"
    canvas.text(20, 522, words, size=9, colour=FAINT)
    boxes, first = [], 0
    layers = len(network.layers)
    for device, (x, run) in enumerate(zip(left, split(network, devices))):
        middle, ink = x + width / 2, colour(device)
        canvas.text(middle, STRIP_BOTTOM + STRIP_HEIGHT + 9, f"device {device}", ha="center", colour=ink, size=9)
        own = range(first, first + len(run))
        faces = [SAME_COLOUR if mode == "data" else ink if layer in own else EMPTY_COLOUR for layer in range(layers)]
        boxes += _strip_boxes(middle - 21, faces)
        if mode == "data":
            boxes += _strip_boxes(middle + 5, [ink if share == device else EMPTY_COLOUR for share in range(devices)])
        else:
            boxes += _strip_boxes(middle + 5, [SAME_COLOUR if run else EMPTY_COLOUR] * devices)
        first += len(run)
    canvas.boxes(boxes)


def _strip_boxes(x: float, faces: Sequence[str]) -> list:
    thick = STRIP_HEIGHT / len(faces)
    return [
        (x, STRIP_BOTTOM + STRIP_HEIGHT - thick * (row + 1) + 1, 16, thick - 1, face) for row, face in enumerate(faces)
    ]


def _draw_ring(canvas: Canvas, devices: int, batch: int, each: float) -> None:
    """The wires of data parallelism, and what is said of it."""
    left, width = _device_edges(devices)
    name, ink, _ = MODES["data"]
    middle, below = STRIP_BOTTOM + STRIP_HEIGHT / 2, STRIP_BOTTOM - 34
    gaps = [(a + width, b) for a, b in zip(left, left[1:])]
    canvas.arrows([(a, b, middle) for a, b in gaps], ink)
    for a, b in gaps:
        canvas.text((a + b) / 2, middle + 8, size(each), ha="center", size=7.8, colour=ink)
    first, last = left[0] + width / 2, left[-1] + width / 2
    canvas.line(
        [last, last, first, first], [STRIP_BOTTOM - 12, below, below, STRIP_BOTTOM - 18], color=ink, linewidth=1.6
    )
    canvas.marks([first], [STRIP_BOTTOM - 17], "^", color=ink, markersize=6)
    canvas.text(20, 542, f"{name}: every device has all layers, and 1/{devices} of the {batch:,} images", size=11)
    words = (
        f"gradients, round the ring: {size(each)} from each device, {size(devices * each)} in all, at any batch size"
    )
    canvas.text(WIDTH / 2, below - 18, words, ha="center", size=10, colour=ink)


def _draw_chain(canvas: Canvas, network: Network, devices: int, batch: int, model_bytes: ModelBytes) -> None:
    """The wires of model parallelism, and what is said of it."""
    left, width = _device_edges(devices)
    crossing = cuts(network, devices)
    name, ink, _ = MODES["model"]
    high, low = STRIP_BOTTOM + STRIP_HEIGHT * 0.66, STRIP_BOTTOM + STRIP_HEIGHT * 0.34
    gaps = [(a + width, b) for a, b in zip(left, left[1:])][: len(crossing)]
    canvas.arrows([(a, b, high) for a, b in gaps] + [(b, a, low) for a, b in gaps], ink)
    for (a, b), numbers in zip(gaps, crossing):
        words = size(model_bytes([numbers], batch) / 2)
        canvas.text((a + b) / 2, high + 8, words, ha="center", size=7.8, colour=ink)
        canvas.text((a + b) / 2, low - 8, words, ha="center", va="top", size=7.8, colour=ink)
    idle = devices - len(crossing) - 1
    spare = f" ({idle} have none: there are no more)" if idle else ""
    canvas.text(20, 542, f"{name}: the layers are dealt out{spare}, all see the same {batch:,} images", size=11)
    total = size(model_bytes(crossing, batch))
    words = f"→ activations, ← their gradients: {total} in all. One device computes while the others wait"
    canvas.text(WIDTH / 2, STRIP_BOTTOM - 52, words, ha="center", size=10, colour=ink)


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


def _draw_memories(canvas: Canvas, held: Sequence[Mapping[str, float]]) -> None:
    """Stacked bars: the memory of each device."""
    largest = max(sum(parts.values()) for parts in held) or 1.0
    panel = Panel(canvas, (84, 74, 330, 176), (-0.6, len(held) - 0.4), (0, largest * 1.45))  # room for the legend
    step = 10 ** np.floor(np.log10(largest / 2))
    step *= max(factor for factor in (1, 2, 5) if factor * step <= largest / 2)
    panel.axes(
        [(device, str(device)) for device in range(len(held))],
        [(value, _rounded_size(value) if value else "0") for value in np.arange(0, largest * 1.01, step)],
        title=f"Memory: {size(largest)} on the fullest device", xlabel="device", ylabel="bytes", vertical=False,
    )  # fmt: skip
    boxes, floor = [], np.zeros(len(held))
    for part, ink in PART_COLOURS.items():
        top = floor + [parts.get(part, 0) for parts in held]
        for device, (a, b) in enumerate(zip(panel.y(floor), panel.y(top))):
            x = panel.x([device - 0.31, device + 0.31])
            boxes.append((x[0], a, x[1] - x[0], b - a, ink))
        floor = top
    canvas.boxes(boxes)
    _draw_legend(canvas, 94, 238)


def _draw_legend(canvas: Canvas, x: float, y: float) -> None:
    """The colours of the parts, in two rows."""
    spots = [(x + 130 * (place % 2), y - 17 * (place // 2)) for place in range(len(PART_COLOURS))]
    canvas.boxes([(a, b, 10, 10, ink) for (a, b), ink in zip(spots, PART_COLOURS.values())])
    for (a, b), part in zip(spots, PART_COLOURS):
        canvas.text(a + 15, b + 5, PART_LABELS.get(part, part), va="center")


def _draw_bytes(
    canvas: Canvas,
    network: Network,
    mode: str,
    devices: int,
    batch: int,
    each: float,
    model_bytes: ModelBytes,
) -> None:
    """Bytes of a step over all wires against the batch, for both modes, and where they meet."""
    crossing, whole = cuts(network, devices), devices * each
    lines = {
        "data": np.full(len(BATCH_SIZES), whole, float),
        "model": np.array([model_bytes(crossing, int(number)) for number in BATCH_SIZES], float),
    }
    equal = _largest_batch(lambda number: model_bytes(crossing, number), whole)
    decades, ends = _decades([*lines["data"], *lines["model"]], room=1)
    panel = Panel(canvas, (530, 74, 346, 176), (0.8, BATCH_SIZES[-1] * 1.25), ends, logx=True, logy=True)
    panel.axes(
        [(number, f"{number:,}") for number in BATCH_SIZES[::3]], decades,
        title="Wires: " + (f"equal at a batch of about {equal:,}" if equal else "no batch makes them equal"),
        xlabel="batch size B (images in a step, all devices)", ylabel="bytes in a step",
    )  # fmt: skip
    for place, (name, values) in enumerate(lines.items()):
        label, ink, dashes = MODES[name]
        panel.line(BATCH_SIZES, values, dashes, color=ink, linewidth=3.2 if name == mode else 1.6)
        canvas.line([540, 566], [243 - 17 * place] * 2, dashes, color=ink, linewidth=2.4)
        canvas.text(574, 243 - 17 * place, label, va="center")
    here = whole if mode == "data" else model_bytes(crossing, batch)
    panel.marks([batch], [here], "o", color=MODES[mode][1], markersize=9)
    if equal and equal <= BATCH_SIZES[-1]:
        panel.marks([equal], [whole], "D", color=INK, markerfacecolor=PAPER)


def _largest_batch(bytes_of: Callable[[int], float], limit: float) -> int | None:
    """As `largest_batch`; None where the bytes do not grow: a learner's function may forget the batch."""
    try:
        return largest_batch(bytes_of, limit)
    except ValueError:
        return None


def _decades(values: Sequence[float], room: int = 0) -> tuple[list[tuple[float, str]], tuple[float, float]]:
    """Ticks at powers of ten around the values, and the ends of the axis with `room` more decades above."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = int(np.floor(np.log10(min(positive)))), int(np.ceil(np.log10(max(positive))))
    return [(10.0**p, _rounded_size(10.0**p)) for p in range(low, high + 1)], (10.0**low, 10.0 ** (high + room))


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
        canvas = Canvas(500)
        _draw_parts(canvas, now, f"B = {batch:,}: {size(whole(batch))}")
        decades, ends = _decades([*amounts["weights"], *amounts["activations"], *total, 80e9])
        panel = Panel(canvas, (84, 74, 560, 296), (0.8, BATCH_SIZES[-1] * 1.25), ends, logx=True, logy=True)
        panel.axes([(number, f"{number:,}") for number in BATCH_SIZES[::2]], decades,
                   xlabel="batch size B (images)", ylabel="bytes")  # fmt: skip
        canvas.line(panel.x([batch, batch]), [74, 370], color=INK, linewidth=1)
        # Dashes of their own phase keep equal lines visible: weights and gradients take the same.
        for place, (part, ink) in enumerate(PART_COLOURS.items()):
            panel.line(BATCH_SIZES, amounts[part], (5 * place, (5, 10)) if part != "activations" else "-",
                       color=ink, linewidth=2.4)  # fmt: skip
        panel.line(BATCH_SIZES, total, color=INK, linewidth=1.4)
        canvas.text(660, 372, "largest batch that fits", va="center", size=11)
        for place, (limit, name) in enumerate(DEVICE_MEMORIES_GB.items()):
            most = _largest_batch(whole, limit * 1e9)
            y = panel.y([limit * 1e9])[0]
            canvas.line([84, 644], [y, y], ":", color=FAINT, linewidth=1.2)
            label = 345 - 22 * (2 - place)
            canvas.line([644, 656], [y, label], ":", color=FAINT, linewidth=1.2)
            words = f"{limit} GB ({name}): " + ("any" if most is None else f"{most:,}" if most else "not one image")
            canvas.text(660, label, words, va="center")
            if most and most <= BATCH_SIZES[-1]:
                panel.marks([most], [limit * 1e9], "o", color=INK, markersize=5)
        panel.marks([batch], [whole(batch)], "o", color=INK, markersize=9)
        canvas.line([660, 686], [244, 244], color=INK, linewidth=1.4)
        canvas.text(694, 244, "all together", va="center")
        canvas.text(14, 12, _source(network), size=8.5, colour=FAINT)
    return canvas.figure()


def _draw_parts(canvas: Canvas, parts: Mapping[str, float], title: str) -> None:
    """One bar of the whole width, divided into the parts, with a legend that has their sizes."""
    canvas.text(14, 474, title, va="center", size=11)
    total = sum(parts.values()) or 1.0
    x, boxes = 14.0, []
    for place, (part, ink) in enumerate(PART_COLOURS.items()):
        width = (WIDTH - 28) * parts.get(part, 0) / total
        boxes += [(x, 434, width, 24, ink), (14 + 218 * place, 412, 10, 10, ink)]
        words = f"{PART_LABELS.get(part, part)}: {size(parts.get(part, 0))}"
        canvas.text(30 + 218 * place, 417, words, va="center")
        x += width
    canvas.boxes(boxes)


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
