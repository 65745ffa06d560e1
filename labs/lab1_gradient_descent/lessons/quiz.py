"""A quiz that explains: choosing an answer shows at once whether it is right, and why.

Behind the buttons stands `Quiz.answer`. Without a front end the notebook shows the questions as text.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

import ipywidgets
from IPython.display import display

_STYLE = "<style>" + Path(__file__).with_name("quiz.css").read_text(encoding="utf-8") + "</style>"


@dataclass(frozen=True)
class Choice:
    """An answer that can be chosen, and the explanation that follows the choice."""

    text: str
    explanation: str
    right: bool = False


@dataclass(frozen=True)
class Question:
    """A question of which exactly one choice is right."""

    text: str
    choices: tuple[Choice, ...]

    def __post_init__(self) -> None:
        assert sum(choice.right for choice in self.choices) == 1, self.text


class Quiz:
    """Questions below each other; a cell that ends with the quiz shows it. It is not graded."""

    def __init__(self, *questions: Question) -> None:
        self.questions = questions

    def answer(self, question: int, choice: int) -> tuple[bool, str]:
        """(is it right, why): both counted from 0."""
        chosen = self.questions[question].choices[choice]
        return chosen.right, chosen.explanation

    def __str__(self) -> str:
        lines = []
        for number, question in enumerate(self.questions, 1):
            lines.append(f"{number}. {question.text}")
            lines += [f"   {letter}) {choice.text}" for letter, choice in zip("abcdefgh", question.choices)]
        return "\n".join(lines)

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        boxes = [self._box(number) for number in range(len(self.questions))]
        box = ipywidgets.VBox([ipywidgets.HTML(_STYLE), *boxes])
        # The text beside the widget is for pages without a kernel: exported notebooks and feedback.
        bundle = {**box._repr_mimebundle_(), "text/html": self._page(), "text/plain": str(self)}
        display(bundle, raw=True)

    def _box(self, number: int) -> ipywidgets.VBox:
        """One question: its text, a button for each choice, and the place for the explanation."""
        question = self.questions[number]
        title = ipywidgets.HTML(f"<b>{number + 1}.</b> {html.escape(question.text)}")
        title.add_class("course-quiz-question")
        message = ipywidgets.HTML()
        message.add_class("course-quiz-answer")
        buttons = []

        def choose(choice: int) -> None:
            right, why = self.answer(number, choice)
            for place, button in enumerate(buttons):
                for name in ("right", "wrong"):
                    button.remove_class(f"course-quiz-{name}")
                if place == choice:
                    button.add_class(f"course-quiz-{'right' if right else 'wrong'}")
            mark, word = ("✓", "Right.") if right else ("✗", "No.")
            message.value = f"<b>{mark} {word}</b> {html.escape(why)}"

        for place, choice in enumerate(question.choices):
            button = ipywidgets.Button(description=choice.text, layout={"width": "auto", "height": "auto"})
            button.add_class("course-quiz-choice")
            button.on_click(lambda _, place=place: choose(place))
            buttons.append(button)
        box = ipywidgets.VBox([title, *buttons, message])
        box.add_class("course-quiz")
        return box

    def _page(self) -> str:
        items = "".join(
            f"<li><p>{html.escape(question.text)}</p><ol type='a'>"
            + "".join(f"<li>{html.escape(choice.text)}</li>" for choice in question.choices)
            + "</ol></li>"
            for question in self.questions
        )
        return f"<ol>{items}</ol>"
