"""A figure under sliders: the controls set the arguments of a plain function, which draws the figure.

In a notebook without a front end the function is called once, with the controls' initial values.
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
SHARPNESS = 1.2  # lower than for static figures, so that drawing and encoding take less time
_LAYOUT = {"width": "430px"}


@dataclass(frozen=True)
class Control:
    """A control: `shown` is the widget on the page, `value` the widget with the value of the argument."""

    shown: ipywidgets.Widget
    value: ipywidgets.Widget


def slider(
    label: str, low: float, high: float, value: float, *, step: float | None = None, log: bool = False
) -> Control:
    """A slider from `low` to `high`.

    The values are integers if low, high, value and step are integers.

    Args:
        label: name and unit of the value.
        low, high: the ends; with `log`, exponents of ten.
        value: initial value.
        step: step of the value, or of the exponent; default: 1 for integers, else a hundredth of the range.
        log: use a logarithmic scale.
    """
    options = {"description": label, "style": _WIDE, "layout": _LAYOUT, "value": value, "min": low, "max": high}
    if not log and all(isinstance(number, int) for number in (low, high, value, step or 1)):
        made = ipywidgets.IntSlider(step=step or 1, **options)
    else:
        kind = ipywidgets.FloatLogSlider if log else ipywidgets.FloatSlider
        made = kind(step=step or (high - low) / 100, readout_format=".3g", **options)
    return Control(made, made)


def choice(label: str, options: Sequence[Any] | Mapping[str, Any]) -> Control:
    """Buttons to choose one of some values; at first the first. `options`: values, or label → value."""
    pairs = list(options.items()) if isinstance(options, Mapping) else [(str(option), option) for option in options]
    made = ipywidgets.ToggleButtons(
        options=pairs, description=label, style={**_WIDE, "button_width": "auto"}, layout={"width": "auto"}
    )
    return Control(made, made)


def animation(label: str, frames: int, *, interval: int = 120, start: int | None = None) -> Control:
    """A play button and a slider over the frames 0 … frames − 1.

    Args:
        interval: milliseconds between two frames; the kernel needs about 50 to draw one.
        start: the first frame to show; default: the last one.
    """
    last = frames - 1
    first = last if start is None else start
    play = ipywidgets.Play(value=first, min=0, max=last, interval=interval, show_repeat=True)
    place = ipywidgets.IntSlider(value=first, min=0, max=last, description=label, style=_WIDE, layout=_LAYOUT)
    ipywidgets.jslink((play, "value"), (place, "value"))
    return Control(ipywidgets.HBox([play, place]), place)


def explore(draw: Callable[..., Figure], **controls: Control) -> None:
    """Show the figure of `draw` under its controls, and redraw it when a control changes.

    Args:
        draw: takes the controls' values as keyword arguments; should return within 100 ms (`benchmarks/notebooks.py`).
        controls: argument of `draw` → control.
    """
    picture = ipywidgets.Image(format="png", layout={"max_width": f"{WIDTH}px"})
    trouble = ipywidgets.HTML()

    def redraw(*_: object) -> None:
        values = {name: control.value.value for name, control in controls.items()}
        picture.value = draw(**values).png(SHARPNESS)

    def moved(*_: object) -> None:
        # An exception in a widget's callback would only go to a log.
        try:
            redraw()
            trouble.value = ""
        except Exception as error:
            trouble.value = f"<b>{html.escape(type(error).__name__)}</b>: {html.escape(str(error))}"

    redraw()  # an exception at the start is raised in the cell
    # A figure has many reference cycles, so about every tenth redraw would start a full garbage collection, which takes
    # 0.2 s or more because of the objects of the libraries. `freeze` excludes all existing objects.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    for control in controls.values():
        control.value.observe(moved, "value")
    box = ipywidgets.VBox([*(control.shown for control in controls.values()), trouble, picture])
    # The image in addition to the widget is for pages without a kernel: exported notebooks and feedback.
    display(
        {**box._repr_mimebundle_(), "image/png": bytes(picture.value)},
        metadata={"image/png": {"width": WIDTH}},
        raw=True,
    )
