"""A lab for each user: a container of the course's image on this host's engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import docker
import lab_settings
from class_list import read_class
from dockerspawner import DockerSpawner
from jupyterhub.spawner import SpawnException
from lab_settings import LABEL, NoLab
from traitlets import Dict, Unicode

HAND_OUT = """
set -e
rm -rf /outbound/.new
cp -r --no-preserve=ownership /course/handout /outbound/.new
chmod -R u=rwX,go=rX /outbound/.new
for new in /outbound/.new/*/; do
    lab=$(basename "$new")
    rm -rf "/outbound/$lab"
    mv "$new" "/outbound/$lab"
done
rm -rf /outbound/.new
"""


class LabSpawner(DockerSpawner):
    """Starts the container `course-lab-NAME`, whose settings are those of `lab_settings`."""

    state_folder = Unicode("/srv/state", help="The class's state, as the hub sees it.").tag(config=True)
    course = Dict(help="The settings of `launch hub` (hub.json).").tag(config=True)

    _choosing_gpus = asyncio.Lock()  # held until the container exists that has the GPUs

    async def start(self) -> tuple[str, int]:
        """Start the lab; return its address once it listens. Raises SpawnException with a sentence for the learner."""
        try:
            address = await self._start()
            await self._until_it_listens(*address)
        except NoLab as error:
            refusal = SpawnException(str(error), reason="no lab", status_code=503)
            refusal.jupyterhub_message = str(error)  # the page that waits for the start shows it
            raise refusal from error
        return address

    async def _start(self) -> tuple[str, int]:
        state, name = Path(self.state_folder), self.user.name
        role = lab_settings.role_of(name, read_class(state / "class.json"))
        await asyncio.to_thread(lab_settings.make_folders, name, role, state)
        self.image = self.course["images"][role]
        async with self._choosing_gpus:
            gpus = lab_settings.free_gpus(self.course, await self._held_gpus())
            self.extra_host_config = {
                **lab_settings.host_config(name, role, state, self.course),
                "auto_remove": False,  # the log of a lab that ends at once is needed
                "device_requests": lab_settings.device_requests(self.course["engine"], gpus),
            }
            self.extra_create_kwargs = {
                "hostname": self.course["hostname"],  # a calibration contains the host's name
                "labels": {f"{LABEL}.hub-lab": name, f"{LABEL}.gpus": lab_settings.numbers(gpus)},
                "host_config": lab_settings.whole_proc(role, self.course),
                "healthcheck": {"test": ["NONE"]},  # the hub checks the lab; the image's check would also run Horovod
            }
            try:
                return await super().start()
            except docker.errors.APIError as error:
                raise NoLab(f"The lab could not be started ({error.explanation}): tell your instructor.") from error

    async def _held_gpus(self) -> set[int]:
        """Return the GPUs of all labs of the host, including those of `launch lab`."""
        if not self.course["gpus_each"]:
            return set()
        labs = await self.docker("containers", filters={"label": f"{LABEL}.gpus"})
        return {int(gpu) for lab in labs for gpu in lab["Labels"][f"{LABEL}.gpus"].split(",") if gpu}

    async def _until_it_listens(self, host: str, port: int) -> None:
        """Wait until the lab listens. Raises NoLab, with the last line of its log, if it ends before."""
        while True:
            try:
                _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), timeout=1)
                writer.close()
                return
            except (OSError, asyncio.TimeoutError):
                pass
            if await self.poll() is not None:
                lines = (await self.docker("logs", self.container_id, tail=20)).decode(errors="replace").split("\n")
                last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
                raise NoLab(f"The lab ended as soon as it had started ({last.strip()}): tell your instructor.")
            await asyncio.sleep(0.2)


def hand_out(settings: dict) -> None:
    """Copy the assignments of the learners' image to exchange/outbound: a folder for each lab, and the assessment.

    Raises SystemExit with a sentence if that fails.
    """
    engine = docker.APIClient(version="auto", timeout=120)
    limits = {"network_mode": "none", "ulimits": lab_settings.ulimits(settings)}
    bind = f"{settings['state']}/exchange/outbound:/outbound"
    try:
        container = engine.create_container(
            settings["images"]["learner"],
            ["-c", HAND_OUT],
            entrypoint=["sh"],
            user="0:0",
            host_config=engine.create_host_config(binds=[bind], **limits),
        )
        try:
            engine.start(container)
            failed = engine.wait(container)["StatusCode"]
            reason = engine.logs(container).decode(errors="replace").strip()
        finally:
            engine.remove_container(container, v=True, force=True)
    except docker.errors.APIError as error:
        failed, reason = True, error.explanation
    if failed:
        raise SystemExit(f"The assignments of {settings['images']['learner']} cannot be handed out: {reason}")


def write_jupyter_settings(state: Path, hours: float) -> None:
    """Write the file that labs mount as /etc/jupyter/jupyter_server_config.json."""
    path = state / "hub" / "jupyter_server_config.json"
    path.write_text(json.dumps(lab_settings.jupyter_settings(hours), indent=1))
    path.chmod(0o644)
