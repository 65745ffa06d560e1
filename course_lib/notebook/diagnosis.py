"""An exercise in which learners name the one mistake of each case: a script, a training, a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from course_lib.notebook.answers import returned, short, whole
from course_lib.notebook.exercises import Exercise
from course_lib.notebook.judging import Criterion, Wrong


def exercise(
    cases: Mapping[str, int],
    against: Mapping[str, Mapping[int, str]],
    hints: Mapping[str, str],
    right: Callable[[str, int], str],
    *,
    case: str,
    mistake: str,
    example: str,
    numbers: range | None = None,
) -> Exercise:
    """The exercise `diagnosis`: a function that returns a dict, case → the number of its mistake.

    Args:
        cases: each one's mistake; all weigh the same.
        against: what speaks against another mistake, where something does; `hints`: where to look, else.
        right: (case, mistake) → the sentence for a right answer.
        case, mistake: what they are called, as "script" and "step".
        example: of a dict.
        numbers: between which an answer lies; another one is asked for a number from there.
    """

    def named(name: str) -> Callable[[Callable], str]:
        def judge(diagnosis: Callable) -> str:
            answer = returned(diagnosis())
            if not isinstance(answer, dict) or not set(answer) <= set(cases):
                raise Wrong(f"It should return the number of a {mistake} for each {case}, as in {example}.")
            number = answer.get(name)
            if number is None:
                raise Wrong(f"{name} has no diagnosis.")
            try:
                answered = whole(number)
            except Wrong:
                answered = None
            if answered is None or (numbers and answered not in numbers):
                ends = f" from {numbers[0]} to {numbers[-1]}" if numbers else ""
                raise Wrong(f"{name} has {short(number)}; write a number{ends}.")
            if answered != cases[name]:
                raise Wrong(f"It is not {mistake} {answered}: {against[name].get(answered) or hints[name]}")
            return right(name, answered)

        return judge

    criteria = (Criterion(name, f"{case.capitalize()} {name}", 1 / len(cases), named(name)) for name in cases)
    return Exercise("diagnosis", *criteria)
