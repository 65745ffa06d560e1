"""The hub of a class: who may log in, what each user gets, and what continues when the hub ends.

`containers/launch hub` writes the settings into hub.json and starts this in a separate container, where no user's code
runs: the container has the engine's socket, and anything that can use the socket is root on the host.
"""

import json
import runpy
import sys
from pathlib import Path

HERE, STATE = Path(__file__).resolve().parent, Path("/srv/state")
SLOTS_PORT = 8002
sys.path.insert(0, str(HERE))

import lab_settings  # noqa: E402
import spawner  # noqa: E402
from class_list import ClassList  # noqa: E402

settings = json.loads((STATE / "hub.json").read_text())
c = get_config()  # noqa: F821

for folder in ("hub", "exchange/outbound", "exchange/inbound", "exchange/feedback", "workspaces"):
    (STATE / folder).mkdir(parents=True, exist_ok=True)
spawner.write_jupyter_settings(STATE, settings["hours"])
spawner.hand_out(settings)

# Where it listens: the proxy for browsers, the hub's API for labs on the engine's network.
c.JupyterHub.bind_url = "http://:8000"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.hub_connect_ip = settings["connect"]
c.ConfigurableHTTPProxy.command = ["node", f"{HERE}/node_modules/configurable-http-proxy/bin/configurable-http-proxy"]
# With a domain, each user's lab has its own host name, so that a page of one lab can't act in another.
if settings["domain"]:
    c.JupyterHub.subdomain_host = settings["domain"]

# What it stores. Labs continue without the hub, and a hub that starts again finds them.
c.JupyterHub.db_url = f"sqlite:///{STATE}/hub/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(STATE / "hub/jupyterhub_cookie_secret")
c.JupyterHub.cleanup_servers = False

# Who may log in. No user is an admin: an admin's browser could reach every learner's lab.
c.JupyterHub.authenticator_class = ClassList
c.Authenticator.allow_all = True  # everyone whom the class list accepts
c.Authenticator.delete_invalid_users = True  # a removed user loses all tokens
c.Authenticator.auth_refresh_age = 60  # seconds until a removed user's session ends
c.Authenticator.auth_refresh_strict = True  # and until the tokens are refused
c.Authenticator.refresh_pre_spawn = True

# What a user gets: the container that `lab_settings` describes.
c.JupyterHub.spawner_class = spawner.LabSpawner
c.LabSpawner.state_folder = str(STATE)
c.LabSpawner.course = settings
c.LabSpawner.name_template = "course-lab-{raw_username}"
c.LabSpawner.network_name = settings["network"]
c.LabSpawner.cmd = ["course-start"]  # the image's command, as without a hub
c.LabSpawner.pull_policy = "never"
c.LabSpawner.remove = True  # all work is in the mounts
c.LabSpawner.environment = {"COURSE_DATA_DIR": "/data"} if settings["data"] else {}
if settings["timezone"]:
    c.LabSpawner.environment["TZ"] = settings["timezone"]  # `course collect --deadline` reads and prints local times
c.Spawner.default_url = "/lab/tree/Welcome.md"
c.Spawner.start_timeout = 600  # a lab on GPUs first checks itself
c.Spawner.http_timeout = 60

# The queue for the cores of assessments; it identifies a lab by the lab's token. Labs leave these cores free even if
# the engine can't bind them. A lab on GPUs has its own cores.
if not settings["gpus_each"]:
    c.JupyterHub.services = [
        {
            "name": "slots",
            "command": [sys.executable, f"{HERE}/slots.py", f"{STATE}/hub.json", "--port", str(SLOTS_PORT)],
        }
    ]
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["self", "access:services!service=slots"]},
        {"name": "server", "scopes": ["users:activity!user", "access:servers!server", "access:services!service=slots"]},
    ]
    c.LabSpawner.environment["COURSE_SLOTS"] = f"http://{settings['connect']}:{SLOTS_PORT}"
    c.LabSpawner.cmd = ["taskset", "-c", lab_settings.numbers(settings["cores"]["labs"]), "course-start"]

# How the pages look.
c.JupyterHub.template_paths = [str(HERE / "templates")]

# Logins other than the class list; each file documents its settings.
if settings["login"]:
    runpy.run_path(str(HERE / "logins" / f"{settings['login']}.py"), {"c": c, "settings": settings, "state": STATE})
