"""Write an installation for learners, for images: library, grader, the files for learners, contract.toml.

python -m course_lib.command.classroom.handout FOLDER
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from course_grader.script import contract
from course_lib.authoring import released, ways
from course_lib.system.errors import CourseError
from course_lib.system.files import write
from course_lib.system.paths import ROOT


def hand_out(target: Path, root: Path = ROOT) -> None:
    """Write an installation for learners into the folder `target`, which must not exist.

    It has no masters, solutions, hidden tests, references, experiments or tests; `course lab` fills workspaces from its
    folder `handout/`. Raises CourseError (code 2) if `target` exists.
    """
    if target.exists():
        raise CourseError(f"{target} already exists: choose a folder that does not exist.", code=2)
    for package in ("course_lib", "assessment/course_grader"):
        shutil.copytree(root / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    for lessons in root.glob("labs/*/lessons"):
        shutil.copytree(lessons, target / lessons.relative_to(root), ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", ways.PATHS.name):
        shutil.copyfile(root / "labs" / name, target / "labs" / name)
    for name, content in released.course_files(root).items():
        write(target / released.HANDOUT / name, content)
    agreed = contract.CONTRACT.relative_to(ROOT)  # the Assess button needs it
    shutil.copyfile(root / agreed, target / agreed)


if __name__ == "__main__":
    try:
        hand_out(Path(sys.argv[1]))
    except CourseError as error:
        print(f"course: {error}", file=sys.stderr)
        sys.exit(error.code)
