"""The class: the operator's file with names, and class.json with roles and hashes of passwords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from containers.hub.passwords import hash_password, new_password
from containers.launcher.text import plural, print_table
from course_lib.system.errors import CourseError

LEARNER, INSTRUCTOR = "learner", "instructor"
NAME_PATTERN = r"[a-z][a-z0-9._-]{0,31}"
NAME_ADVICE = (
    "a name begins with a small letter, has up to 32 small letters, digits, '.', '_' and '-', and is not that of a lab"
)
ASSIGNMENT_PATTERN = r"assessment|lab[0-9]+_.*"  # `course grade` takes such a folder for the work, not for a learner


def read_names(path: Path) -> dict[str, str]:
    """Return name → role of a class's file: a line each, `name` or `name instructor`; `#` begins a comment.

    Raises CourseError (code 2), with the line's number, for a line that is something else.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file in UTF-8"
        raise CourseError(f"--class {path} cannot be read: {reason}.", 2) from None
    roles: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        entry = line.partition("#")[0].split()
        if not entry:
            continue
        name, *role = entry
        if not valid_name(name):
            raise CourseError(f"{path}, line {number}: {name} is not a valid name: {NAME_ADVICE}.", 2)
        if role not in ([], [LEARNER], [INSTRUCTOR]):
            raise CourseError(f"{path}, line {number}: a line is `name` or `name instructor`.", 2)
        if name in roles:
            raise CourseError(f"{path}, line {number}: {name} is there twice: give each a name of their own.", 2)
        roles[name] = role[0] if role else LEARNER
    if not roles:
        raise CourseError(f"{path} has no names: write one on each line.", 2)
    return roles


def valid_name(name: str) -> bool:
    """Return whether a name can be a user's: it is part of folders', containers' and hosts' names."""
    return bool(re.fullmatch(NAME_PATTERN, name)) and not re.fullmatch(ASSIGNMENT_PATTERN, name)


def require_name(name: str) -> str:
    """Return the name. Raises CourseError (code 2) if it is not valid."""
    if not valid_name(name):
        raise CourseError(f"{name} is not a valid name: {NAME_ADVICE}.", 2)
    return name


def with_passwords(names: Iterable[str]) -> dict[str, str]:
    """Return name → a new password."""
    return {name: new_password() for name in names}


def updated(
    members: Mapping[str, dict[str, str]], roles: Mapping[str, str], passwords: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the members of class.json with these roles and new passwords; others stay as they are."""
    hashes = {name: hash_password(password) for name, password in passwords.items()}
    known = {name: member["scrypt"] for name, member in members.items()}
    changed = {name: {"role": role, "scrypt": hashes.get(name, known.get(name, ""))} for name, role in roles.items()}
    return {**members, **changed}


def print_passwords(roles: Mapping[str, str], passwords: Mapping[str, str]) -> None:
    """Print names, roles and new passwords; no file contains the passwords."""
    print_table([("NAME", "ROLE", "PASSWORD"), *((name, roles[name], word) for name, word in passwords.items())])


def count(roles: Iterable[str]) -> str:
    """Return how many learners and instructors there are, in words."""
    roles = list(roles)
    return f"{plural(roles.count(LEARNER), LEARNER)} and {plural(roles.count(INSTRUCTOR), INSTRUCTOR)}"
