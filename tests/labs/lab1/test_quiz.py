from __future__ import annotations

import ipywidgets
import pytest

from labs.lab1_gradient_descent.lessons import quiz
from labs.lab1_gradient_descent.lessons.quiz_1d import DATA_AND_MODEL_PARALLELISM


@pytest.fixture
def small():
    return quiz.Quiz(
        quiz.Question(
            "Is 1 < 2?", (quiz.Choice("No", "Count again."), quiz.Choice("Yes", "It is smaller by <1>.", True))
        )
    )


def test_an_answer_is_judged_and_explained(small):
    assert small.answer(0, 0) == (False, "Count again.")
    assert small.answer(0, 1) == (True, "It is smaller by <1>.")


def test_a_question_has_exactly_one_right_choice():
    with pytest.raises(AssertionError, match="Well"):
        quiz.Question("Well?", (quiz.Choice("a", "…"), quiz.Choice("b", "…")))


def test_without_a_front_end_the_questions_are_text_and_no_answer_is_told(small, monkeypatch):
    shown = []
    monkeypatch.setattr(quiz, "display", lambda bundle, raw: shown.append(bundle))
    small._ipython_display_()
    assert shown[0]["text/plain"] == "1. Is 1 < 2?\n   a) No\n   b) Yes"
    assert "Is 1 &lt; 2?" in shown[0]["text/html"]
    assert "Count again" not in shown[0]["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in shown[0]


def test_a_click_shows_the_explanation_and_marks_the_choice(small):
    box = small._box(0)
    no, yes = (child for child in box.children if isinstance(child, ipywidgets.Button))
    said = box.children[-1]
    no.click()
    assert said.value == "<b>✗ No.</b> Count again."
    assert "course-quiz-wrong" in no._dom_classes
    yes.click()
    assert said.value == "<b>✓ Right.</b> It is smaller by &lt;1&gt;."
    assert "course-quiz-wrong" not in no._dom_classes
    assert "course-quiz-right" in yes._dom_classes


def test_the_quiz_of_1d_explains_every_choice():
    questions = DATA_AND_MODEL_PARALLELISM.questions
    assert 6 <= len(questions) <= 8
    for number, question in enumerate(questions):
        answers = [DATA_AND_MODEL_PARALLELISM.answer(number, choice) for choice in range(len(question.choices))]
        assert len(answers) >= 3
        assert all(len(why) > 30 for _, why in answers)
    # The right choice is not always at the same place.
    assert len({[choice.right for choice in question.choices].index(True) for question in questions}) > 1
