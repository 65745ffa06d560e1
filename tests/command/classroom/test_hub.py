"""What `course lab` does under JupyterHub; the single-user server itself runs in tests/containers/test_hub.py."""

from __future__ import annotations

import json
import os
import socket
import sys

import pytest

from course_lib.command.classroom import hub, workspace
from course_lib.system.errors import CourseError


@pytest.fixture
def port(monkeypatch):
    """A free port, at which the hub expects the lab."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("JUPYTERHUB_SERVICE_URL", f"http://0.0.0.0:{port}/user/ada/")
    return port


@pytest.fixture
def started(tmp_path, monkeypatch, port):
    """The program, arguments and environment that the lab becomes under a hub, and the folder with its settings."""
    became = []
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "token-of-this-lab")
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    monkeypatch.setattr(os, "execvpe", lambda *how: became.append(how))
    monkeypatch.chdir(tmp_path)
    hub.serve(tmp_path, tmp_path / workspace.STATE_FOLDER)
    return became[0], tmp_path / workspace.STATE_FOLDER / "config"


def test_it_becomes_the_single_user_server_on_the_workspace(started, tmp_path):
    (program, arguments, environment), config = started
    assert (program, arguments[1:3]) == (sys.executable, ["-m", "jupyterhub.singleuser"])
    assert f"--ServerApp.root_dir={tmp_path}" in arguments
    assert environment["JUPYTERHUB_API_TOKEN"] == "token-of-this-lab"
    assert environment["JUPYTER_CONFIG_DIR"] == str(config)


def test_of_nbgrader_it_has_the_assignment_list_and_nothing_else(started):
    _, config = started
    server = json.loads((config / "jupyter_server_config.json").read_text())["ServerApp"]["jpserver_extensions"]
    loaded = {name.rpartition(".")[2] for name, on in server.items() if on and name.startswith("nbgrader")}
    assert loaded == {"assignment_list"}
    page = json.loads((config / "labconfig" / "page_config.json").read_text())["disabledExtensions"]
    plugins = {"assignment-list", "course-list", "create-assignment", "formgrader", "menu", "validate-assignment"}
    assert {name for name in plugins if not page.get(f"@jupyter/nbgrader:{name}")} == {"assignment-list", "menu"}
    assert "@jupyter/nbgrader" not in page


def test_nbgrader_knows_course_exchange_and_the_hubs_name_of_the_user(started, tmp_path):
    _, config = started
    settings = json.loads((config / "nbgrader_config.json").read_text())
    assert settings["CourseDirectory"] == {"course_id": "course", "student_id": "ada"}
    assert settings["Exchange"] == {"root": "/exchange", "assignment_dir": str(tmp_path)}


def test_course_lab_in_a_terminal_of_the_lab_says_that_it_is_open(tmp_path, port):
    with socket.create_server(("127.0.0.1", port)), pytest.raises(CourseError, match="it is open already"):
        hub.serve(tmp_path, tmp_path / workspace.STATE_FOLDER)
