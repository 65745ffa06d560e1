"""Who may log in: the names of class.json, each with the hash of a password. `containers/launch hub` writes it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub.auth import Authenticator
from jupyterhub.orm import User as UserRow
from passwords import accepts
from sqlalchemy.orm import object_session
from traitlets import Unicode

if TYPE_CHECKING:
    from jupyterhub.handlers import BaseHandler
    from jupyterhub.user import User

WRONG_S = 1.0  # what a wrong password costs
CHECKS_AT_ONCE = 2  # each takes 16 MB and a core


def read_class(path: Path) -> dict[str, dict[str, str]]:
    """name → role ("learner" or "instructor") and scrypt (the password's hash)."""
    return json.loads(path.read_text())


def read_removed(path: Path) -> list[str]:
    """Return the names of removed.json, which the operator has removed from the class."""
    return json.loads(path.read_text()) if path.exists() else []


class ClassList(Authenticator):
    """Names and passwords of a class. The list is read at each login, so changes need no restart.

    A session belongs to a password: the hub compares a browser's cookie with a value that depends on the password's
    hash.
    """

    path = Unicode("/srv/state/class.json", help="The class list.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)

    def validate_username(self, username: str) -> bool:
        """Return whether the class has this name. A removed user loses account and tokens when the hub starts again."""
        return super().validate_username(username) and username in self._members()

    async def authenticate(self, handler: BaseHandler, data: dict[str, str]) -> str | None:
        """Return the name if the password is right; for a wrong password or an unknown name, None after a second."""
        name, password = data["username"].strip().lower(), data["password"].strip()
        async with self._checks:
            right = await asyncio.to_thread(accepts, self._members(), name, password)
        if right:
            if user := handler.find_user(name):
                self._end_older_sessions(user.orm_user)
            return name
        await asyncio.sleep(WRONG_S)
        return None

    def add_user(self, user: User | UserRow) -> None:
        """Do what the hub does at the first login, and for each user when it starts."""
        super().add_user(user)
        self._end_older_sessions(getattr(user, "orm_user", user))

    async def refresh_user(self, user: User, handler: BaseHandler | None = None, **_: Any) -> bool:
        """Return whether a session goes on. It ends if the user has been removed or has a new password."""
        return user.name in self._members() and not self._end_older_sessions(user.orm_user)

    def _end_older_sessions(self, user: UserRow) -> bool:
        """End sessions and tokens of an older password than that of the class list; return whether there was one."""
        password = self._members()[user.name].get("scrypt", "")
        cookie_id = hashlib.sha256(f"{user.name} {password}".encode()).hexdigest()
        if user.cookie_id == cookie_id:
            return False
        user.cookie_id = cookie_id
        user.api_tokens.clear()
        object_session(user).commit()
        return True

    def _members(self) -> dict[str, dict[str, str]]:
        return read_class(Path(self.path))
