"""A figure under sliders: a plain function draws, controls give it its arguments.

A notebook that runs without a front end calls the function once, with the controls' first values.
"""

from __future__ import annotations

import gc
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
from IPython.display import display

from course_lib.notebook.plots.style import WIDTH, Figure

_WIDE = {"description_width": "initial"}
SHARPNESS = 1.2  # less to draw and to encode than in figures that stand still
_LAYOUT = {"width": "430px"}


@dataclass(frozen=True)
class Control:
    """What the reader moves: `shown` is put on the page, `value` has the argument that is drawn with."""

    shown: ipywidgets.Widget
    value: ipywidgets.Widget


def slider(
    label: str, low: float, high: float, value: float, *, step: float | None = None, log: bool = False
) -> Control:
    """A slider from `low` to `high`; over whole numbers if all it is given are; with `log`, over powers of ten.

    Args:
        label: what is set, with its unit.
        low, high, value: the ends and the first value; with `log` the ends are exponents of ten.
        step: of the value, or of the exponent; by default a hundredth of the way, or 1.
    """
    options = {"description": label, "style": _WIDE, "layout": _LAYOUT, "value": value, "min": low, "max": high}
    if not log and all(isinstance(number, int) for number in (low, high, value, step or 1)):
        made = ipywidgets.IntSlider(step=step or 1, **options)
    else:
        kind = ipywidgets.FloatLogSlider if log else ipywidgets.FloatSlider
        made = kind(step=step or (high - low) / 100, readout_format=".3g", **options)
    return Control(made, made)


def choice(label: str, options: Sequence[Any] | Mapping[str, Any]) -> Control:
    """Buttons of which one is pressed, at first the first. `options`: values, or label → value."""
    pairs = list(options.items()) if isinstance(options, Mapping) else [(str(option), option) for option in options]
    made = ipywidgets.ToggleButtons(
        options=pairs, description=label, style={**_WIDE, "button_width": "auto"}, layout={"width": "auto"}
    )
    return Control(made, made)


def animation(label: str, frames: int, *, interval: int = 120, start: int | None = None) -> Control:
    """A play button and a slider over the frames 0 … frames − 1.

    Args:
        interval: milliseconds between two frames; the kernel needs about 50 to draw one.
        start: the frame that is shown first; by default the last one.
    """
    last = frames - 1
    first = last if start is None else start
    play = ipywidgets.Play(value=first, min=0, max=last, interval=interval, show_repeat=True)
    place = ipywidgets.IntSlider(value=first, min=0, max=last, description=label, style=_WIDE, layout=_LAYOUT)
    ipywidgets.jslink((play, "value"), (place, "value"))
    return Control(ipywidgets.HBox([play, place]), place)


def explore(draw: Callable[..., Figure], **controls: Control) -> None:
    """Show what `draw` returns, under one control for each of its arguments, and draw anew when one is moved.

    Args:
        draw: takes the controls' values by name; should answer within 100 ms (`benchmarks/notebooks.py`).
    """
    picture = ipywidgets.Image(format="png", layout={"max_width": f"{WIDTH}px"})
    trouble = ipywidgets.HTML()

    def redraw(*_: object) -> None:
        values = {name: control.value.value for name, control in controls.items()}
        picture.value = draw(**values).png(SHARPNESS)

    def moved(*_: object) -> None:
        # An exception in a widget's callback would end in a log that nobody reads.
        try:
            redraw()
            trouble.value = ""
        except Exception as error:
            trouble.value = f"<b>{html.escape(type(error).__name__)}</b>: {html.escape(str(error))}"

    redraw()  # what is wrong at the start is the cell's own error
    # A figure is full of cycles, so that every tenth redraw or so would look through all that the libraries have
    # loaded, for 0.2 s and more: what lives now is exempt from that, until the next widget is made.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    for control in controls.values():
        control.value.observe(moved, "value")
    box = ipywidgets.VBox([*(control.shown for control in controls.values()), trouble, picture])
    # The picture beside the widget is for pages without a kernel: exported notebooks and feedback.
    display(
        {**box._repr_mimebundle_(), "image/png": bytes(picture.value)},
        metadata={"image/png": {"width": WIDTH}},
        raw=True,
    )
