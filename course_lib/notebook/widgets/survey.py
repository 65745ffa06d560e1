"""A survey on a lab, with five sliders. The answers are stored only in the learner's workspace."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from ipywidgets import HTML, Button, HBox, IntSlider, Label, VBox

from course_lib.system import files

STATEMENTS = (
    "I can do what the first cells promised.",
    "The exercises asked for ideas, not for typing.",
    "The reasons that the checks gave helped me.",
    "The stated time was enough.",
    "I would recommend this lab.",
)
LOW, MIDDLE, HIGH = 1, 3, 5  # not at all … entirely


class Survey(VBox):
    """Statements with one slider each, and a button that saves the answers. A cell that ends with the survey shows it.

    Args:
        path: file of the table: statement, answer from 1 (not at all) to 5 (entirely).
    """

    def __init__(self, path: str | Path = "survey.csv") -> None:
        self._path = Path(path)
        self._sliders = [IntSlider(value=MIDDLE, min=LOW, max=HIGH) for _ in STATEMENTS]
        self._message = HTML()
        button = Button(description="Save")
        button.on_click(self._save)
        labels = [Label(statement, layout={"width": "330px"}) for statement in STATEMENTS]
        super().__init__([*map(HBox, zip(labels, self._sliders)), button, self._message])

    def _save(self, _: Button) -> None:
        """Write the answers, replacing earlier ones, and show where they are."""
        table = io.StringIO()
        answers = [slider.value for slider in self._sliders]
        csv.writer(table).writerows([("statement", "answer"), *zip(STATEMENTS, answers)])
        name = self._path.name
        try:
            files.write(self._path, table.getvalue().encode())
        except OSError as error:  # an exception in a callback would only go to a log
            self._message.value = f"Not saved: {name} can't be written ({error.strerror})."
            return
        self._message.value = (
            f"Saved in {name}, in the folder of this notebook. Nobody else sees it unless you share the file."
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        # The text in addition to the widget is for pages without a kernel.
        text = "\n".join(f"{number}. {statement}" for number, statement in enumerate(STATEMENTS, 1))
        return {**super()._repr_mimebundle_(**options), "text/plain": text}
