"""An exercise in which learners identify the mistake in each case: a script, a training, a network."""

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
    """The exercise `diagnosis`: the learner's function returns a dict, case → number of its mistake.

    Args:
        cases: case → number of its mistake. All cases have the same weight.
        against: case → wrong number → the sentence that refutes it.
        hints: case → a hint for wrong numbers that `against` does not have.
        right: (case, number) → the sentence for a right answer.
        case, mistake: nouns for both, such as "script" and "step".
        example: example of the dict.
        numbers: valid numbers; None: any.
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
