"""The lab when JupyterHub starts it: JupyterHub's single-user server on the workspace, with the Assignment List.

The hub sets the variables JUPYTERHUB_* and mounts nbgrader's exchange at /exchange: outbound, inbound and feedback of
the course named `course`, each only as far as this user may read or write it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from course_lib.command.classroom import lab
from course_lib.system.errors import CourseError
from course_lib.system.files import write

EXCHANGE = "/exchange"
COURSE = "course"  # nbgrader's name of the course
# Of nbgrader's plugins the Assignment List stays, and the menu, without which it does not open.
NOT_FOR_LEARNERS = ("course-list", "create-assignment", "formgrader", "validate-assignment")


def starts_this() -> bool:
    """Whether a hub has started this process."""
    return "JUPYTERHUB_API_TOKEN" in os.environ


def serve(directory: Path, state: Path) -> NoReturn:
    """Replace this process by the hub's single-user server on `directory`; its settings and state are in `state`.

    Raises CourseError if it runs already, for example if this is a terminal of the lab itself.
    """
    try:
        lab.check_port(urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"]).port)
    except CourseError:
        raise CourseError("This is the lab: it is open already, in your browser.") from None
    lab.put_settings(state)
    _show_assignments(directory, state / "config", os.environ["JUPYTERHUB_USER"])
    command = [
        *(sys.executable, "-m", "jupyterhub.singleuser"),
        f"--ServerApp.root_dir={directory}",
        f"--LabApp.app_settings_dir={state / 'app'}",
    ]
    lab.become(command, state, state)


def _show_assignments(directory: Path, config: Path, user: str) -> None:
    """Turn the Assignment List on, which the course's own settings turn off."""
    server, page = config / "jupyter_server_config.json", config / "labconfig" / "page_config.json"
    settings = json.loads(server.read_text())
    settings["ServerApp"]["jpserver_extensions"]["nbgrader.server_extensions.assignment_list"] = True
    write(server, json.dumps(settings, indent=1).encode())
    settings = json.loads(page.read_text())
    del settings["disabledExtensions"]["@jupyter/nbgrader"]
    settings["disabledExtensions"].update({f"@jupyter/nbgrader:{plugin}": True for plugin in NOT_FOR_LEARNERS})
    write(page, json.dumps(settings, indent=1).encode())
    nbgrader = {
        "CourseDirectory": {"course_id": COURSE, "student_id": user},
        "Exchange": {"root": EXCHANGE, "assignment_dir": str(directory)},
    }
    write(config / "nbgrader_config.json", json.dumps(nbgrader, indent=1).encode())
