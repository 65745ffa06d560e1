"""The course as learners may hold it, for images: the library, what the lab hands out, and the contract's file.

python -m course_lib.classroom.handout FOLDER
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from course_lib.assess import contract
from course_lib.classroom import ROOT, workspace
from course_lib.errors import CourseError
from course_lib.files import write


def hand_out(target: Path, root: Path = ROOT) -> None:
    """Write the learner's course into the folder `target`, which must not exist yet.

    It has no masters, solutions, hidden tests, references, experiments and tests: `course lab` fills workspaces from
    its folder `handout/`. Raises CourseError (code 2) where `target` exists.
    """
    if target.exists():
        raise CourseError(f"{target} exists already; name a folder that does not.", code=2)
    shutil.copytree(root / "course_lib", target / "course_lib", ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in workspace.course_files(root).items():
        write(target / workspace.HANDOUT / name, content)
    agreed = contract.CONTRACT.relative_to(ROOT)  # the Assess button needs it
    (target / agreed).parent.mkdir()
    shutil.copyfile(root / agreed, target / agreed)


if __name__ == "__main__":
    hand_out(Path(sys.argv[1]))
