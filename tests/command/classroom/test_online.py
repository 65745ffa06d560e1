"""The course in VS Code, Codespaces and Binder: what their files say agrees with the course. None of them runs here."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from course_lib.system.paths import ROOT


def test_the_dev_container_is_the_learners_image():
    text = (ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    container = json.loads(re.sub(r"^//.*$", "", text, flags=re.MULTILINE))
    build = container["build"]
    dockerfile = (ROOT / ".devcontainer" / build["dockerfile"]).read_text(encoding="utf-8")
    assert (ROOT / ".devcontainer" / build["context"]).resolve() == ROOT
    assert re.search(rf"^FROM \w+ AS {build['target']}$", dockerfile, re.MULTILINE)
    for instruction, value in (
        ("USER", container["remoteUser"]),
        ("WORKDIR", container["workspaceFolder"]),
        ("EXPOSE", container["forwardPorts"][0]),
    ):
        assert re.search(rf"^{instruction} {value}$", dockerfile, re.MULTILINE)
    assert f"target={container['workspaceFolder']}," in container["workspaceMount"]
    assert f"JUPYTER_RUNTIME_DIR={container['workspaceFolder']}/.course/runtime" in container["postAttachCommand"]


def test_binder_finds_executable_scripts_and_nothing_else():
    scripts = sorted((ROOT / "binder").iterdir())
    assert [path.name for path in scripts] == ["postBuild", "start"]  # the names that repo2docker knows
    assert all(os.access(path, os.X_OK) and path.read_text().startswith("#!/bin/bash\n") for path in scripts)
    assert "\n./course setup\n" in scripts[0].read_text()


@pytest.mark.slow
def test_binders_command_opens_the_course_on_a_workspace(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base, token = f"http://127.0.0.1:{port}/user/one-2f3/", "token-of-binder"
    options = [f"--{app}.{option}" for app in ("NotebookApp", "ServerApp") for option in (
        "base_url=/user/one-2f3/", f"token={token}", "trust_xheaders=True")]  # fmt: skip
    # BinderHub's chart looks for JupyterLab in `python3`, then becomes it.
    code = "import os, sys, jupyterlab; os.execvp('jupyter-lab', sys.argv)"
    command = ["python3", "-c", code, "--ip=127.0.0.1", f"--port={port}", *options]
    server = subprocess.Popen([ROOT / "binder/start", *command], cwd=tmp_path)
    try:
        request = urllib.request.Request(f"{base}api/contents/Welcome.md", headers={"Authorization": f"token {token}"})
        content = json.loads(answer(request, server))["content"]
        assert content == (tmp_path / "workspace/Welcome.md").read_text(encoding="utf-8")
        page = urllib.request.urlopen(f"{base}?token={token}", timeout=60)
        assert page.url.startswith(f"{base}lab/tree/Welcome.md")
    finally:
        server.terminate()
        server.wait(60)


def answer(request: urllib.request.Request, server: subprocess.Popen) -> bytes:
    """What the server answers, once it does."""
    while server.poll() is None:
        try:
            return urllib.request.urlopen(request, timeout=60).read()
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the server ended")
