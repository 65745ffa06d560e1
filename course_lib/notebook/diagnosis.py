"""An exercise in which learners name the one mistake of each patient: a script, a training, a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from course_lib.notebook.answers import returned, short, whole
from course_lib.notebook.exercises import Exercise
from course_lib.notebook.judging import Criterion, Wrong


def exercise(
    patients: Mapping[str, int],
    against: Mapping[str, Mapping[int, str]],
    hints: Mapping[str, str],
    right: Callable[[str, int], str],
    *,
    patient: str,
    mistake: str,
    example: str,
    numbers: range | None = None,
) -> Exercise:
    """The exercise `diagnosis`: a function that returns a dict, patient → the number of its mistake.

    Args:
        patients: each one's mistake; all weigh the same.
        against: what speaks against another mistake, where something does; `hints`: where to look, else.
        right: (patient, mistake) → the sentence for a right answer.
        patient, mistake: what they are called, as "script" and "step".
        example: of a dict.
        numbers: between which an answer lies; another one is asked for a number from there.
    """

    def named(name: str) -> Callable[[Callable], str]:
        def judge(diagnosis: Callable) -> str:
            answer = returned(diagnosis())
            if not isinstance(answer, dict) or not set(answer) <= set(patients):
                raise Wrong(f"It should return the number of a {mistake} for each {patient}, as in {example}.")
            number = answer.get(name)
            if number is None:
                raise Wrong(f"{name} has no diagnosis.")
            try:
                found = whole(number)
            except Wrong:
                found = None
            if found is None or (numbers and found not in numbers):
                ends = f" from {numbers[0]} to {numbers[-1]}" if numbers else ""
                raise Wrong(f"{name} has {short(number)}; write a number{ends}.")
            if found != patients[name]:
                raise Wrong(f"It is not {mistake} {found}: {against[name].get(found) or hints[name]}")
            return right(name, found)

        return judge

    criteria = (Criterion(name, f"{patient.capitalize()} {name}", 1 / len(patients), named(name)) for name in patients)
    return Exercise("diagnosis", *criteria)
