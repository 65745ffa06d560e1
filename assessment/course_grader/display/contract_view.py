"""Show the contract to learners: its targets and limits on this host, and the points of each criterion."""

from __future__ import annotations

import html
from dataclasses import dataclass

from course_grader.display import report
from course_grader.script import contract
from course_grader.script import criteria as assessed
from course_grader.script.contract import Contract, Profile
from course_lib.ranks import launch


@dataclass(frozen=True)
class Terms:
    """A contract with one of its profiles. A cell that ends with it shows it."""

    contract: Contract
    profile: Profile
    ranks: int

    @property
    def requirements(self) -> dict[str, str]:
        """The targets and limits: name → text."""
        contract, profile = self.contract, self.profile
        data = contract.data + (f", the first {profile.images:,} images" if profile.images else "")
        max_score = sum(contract.points.values())
        memory = contract.limits.gpu_memory if launch.visible_gpus() else contract.limits.memory
        return {
            "profile": profile.name,
            "data": data,
            "ranks": str(self.ranks),
            "time limit": f"{profile.seconds:g} s",
            **({"global batch": f"at least {profile.batch:,} images an update"} if profile.batch else {}),
            **({"updates": f"at most {profile.updates:,}"} if profile.updates else {}),
            "training accuracy": f"at least {profile.train_accuracy:g}",
            "test accuracy": f"at least {profile.test_accuracy:g}",
            "to pass": f"{contract.pass_points:g} of {max_score:g} points, and all required criteria",
            "script": f"at most {contract.max_script_kb:g} KB",
            "memory": f"at most {memory:g} GB for each rank",
        }

    @property
    def criteria(self) -> list[tuple[str, float, bool]]:
        """(title, points, whether it is required to pass) for each criterion."""
        required = self.contract.required
        return [(c.title, c.max_points, c.id in required) for c in assessed.with_points(self.contract.points)]

    def __str__(self) -> str:
        lines = [f"{name + ':':<19}{text}" for name, text in self.requirements.items()]
        lines += [f"{points:3g} points  {title}{', required' * must}" for title, points, must in self.criteria]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in self.requirements.items())
        rows = "".join(
            f"<li><b>·</b><span>{html.escape(title)}{', <b>required</b>' * must}</span><b>{points:g}</b></li>"
            for title, points, must in self.criteria
        )
        return f'{report.CSS}<div class="course-report"><dl>{facts}</dl><ul>{rows}</ul></div>'


def read(profile: str | None = None) -> Terms:
    """Return the course's contract; `profile` is as in `Contract.profile`. Raises CourseError if either is invalid."""
    terms = contract.read()
    chosen = terms.profile(profile)
    return Terms(terms, chosen, chosen.ranks or launch.default_ranks())
