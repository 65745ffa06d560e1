"""Who may log in: the names of class.json, each with the hash of a password. `containers/launch hub` writes it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyterhub.auth import Authenticator
from passwords import accepts
from traitlets import Unicode

if TYPE_CHECKING:
    from jupyterhub.handlers import BaseHandler
    from jupyterhub.user import User

WRONG_S = 1.0  # what a wrong password costs
CHECKS_AT_ONCE = 2  # each takes 16 MB and a core


def read_class(path: Path) -> dict[str, dict[str, str]]:
    """name → role ("learner" or "instructor") and scrypt (the password's hash)."""
    return json.loads(path.read_text())


class ClassList(Authenticator):
    """Names and passwords of a class. The list is read at each login: changes need no restart."""

    path = Unicode("/srv/state/class.json", help="The class list.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)

    def validate_username(self, username: str) -> bool:
        """Only names of the class are users: who was removed loses account and tokens when the hub starts again."""
        return super().validate_username(username) and username in self._members()

    async def authenticate(self, handler: BaseHandler, data: dict[str, str]) -> str | None:
        """The name, where the password is right; None, and a second later, where it is not or there is no such name."""
        name, password = data["username"].strip().lower(), data["password"].strip()
        async with self._checks:
            right = await asyncio.to_thread(accepts, self._members(), name, password)
        if right:
            return name
        await asyncio.sleep(WRONG_S)
        return None

    async def refresh_user(self, user: User, handler: BaseHandler | None = None, **_: Any) -> bool:
        """Whether a session goes on: not that of somebody who has been removed."""
        return user.name in self._members()

    def _members(self) -> dict[str, dict[str, str]]:
        return read_class(Path(self.path))
