"""login.json, which an operator writes for a login of `logins/`: addresses and keys that only the hub may read."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any


def read_login(state: Path, required: Collection[str]) -> dict[str, Any]:
    """Return the settings in STATE/login.json. Ends the hub with a sentence if it is missing, damaged or incomplete."""
    path = state / "login.json"
    try:
        settings = json.loads(path.read_text())
    except FileNotFoundError:
        raise SystemExit(
            f"There is no login.json in the class's state folder: write it, with {', '.join(required)}."
        ) from None
    except (OSError, ValueError) as error:
        raise SystemExit(f"login.json in the class's state folder cannot be read ({error}): correct it.") from None
    if missing := [name for name in required if not (isinstance(settings, dict) and settings.get(name))]:
        raise SystemExit(f"login.json in the class's state folder lacks {', '.join(missing)}: add it.")
    return settings
