"""Five sliders on how a lab went, kept as a table in the learner's workspace and nowhere else.

Behind the button stands `Survey.save`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import ipywidgets
from IPython.display import display

from course_lib.system import files

STATEMENTS = (
    "I can do what the first cells promised.",
    "The exercises asked for ideas, not for typing.",
    "The reasons that the checks gave helped me.",
    "The stated time was enough.",
    "I would recommend this lab.",
)
LOW, MIDDLE, HIGH = 1, 3, 5  # not at all … entirely


class Survey:
    """Statements with a slider each; a cell that ends with the survey shows it.

    Args:
        path: the table that "Save" writes: statement, answer from 1 (not at all) to 5 (entirely).
    """

    def __init__(self, path: str | Path = "survey.csv", statements: Sequence[str] = STATEMENTS) -> None:
        self.path, self.statements = Path(path), tuple(statements)

    def save(self, answers: Sequence[int]) -> str:
        """Write the answers, in the order of the statements, over those of before; say where, in a sentence."""
        table = io.StringIO()
        csv.writer(table).writerows([("statement", "answer"), *zip(self.statements, answers)])
        files.write(self.path, table.getvalue().encode())
        return f"Saved in {self.path.name}, in the folder of this notebook. Nobody else gets it unless you hand it on."

    def __str__(self) -> str:
        return "\n".join(f"{number}. {statement}" for number, statement in enumerate(self.statements, 1))

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        # The text beside the widget is for pages without a kernel.
        display({**self._box()._repr_mimebundle_(), "text/plain": str(self)}, raw=True)

    def _box(self) -> ipywidgets.VBox:
        """The sliders, the button, and the place for what was saved."""
        sliders = [ipywidgets.IntSlider(value=MIDDLE, min=LOW, max=HIGH) for _ in self.statements]
        message = ipywidgets.HTML()
        button = ipywidgets.Button(description="Save")

        def save(_: ipywidgets.Button) -> None:
            try:
                message.value = self.save([slider.value for slider in sliders])
            except OSError as error:  # of a callback it would end in a log that nobody reads
                message.value = f"Not saved: {self.path.name} can't be written ({error.strerror})."

        button.on_click(save)
        rows = [
            ipywidgets.HBox([ipywidgets.Label(statement, layout={"width": "330px"}), slider])
            for statement, slider in zip(self.statements, sliders)
        ]
        return ipywidgets.VBox([*rows, button, message])
