"""Log which GPUs a rank keeps."""

from __future__ import annotations

import os

import tensorflow as tf
from tensorflow.python.eager import context

from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches

_AT_START = os.environ.get("CUDA_VISIBLE_DEVICES")


class Devices:
    """TensorFlow's functions on devices, which log the choice of GPUs and show some that do not exist."""

    def __init__(self, log: Log, fakes: int) -> None:
        self._log = log
        self._fakes = [tf.config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(fakes)]
        self._visible = list(self._fakes)  # of the fakes
        self._list, self._get_visible = tf.config.list_physical_devices, tf.config.get_visible_devices
        self._set_visible, self._set_growth = tf.config.set_visible_devices, tf.config.experimental.set_memory_growth

    def list_physical_devices(self, device_type: str | None = None) -> list:
        """The devices of this host and the fakes."""
        devices = list(self._list(device_type))
        return devices + self._fakes if device_type in (None, "GPU") else devices

    def get_visible_devices(self, device_type: str | None = None) -> list:
        """The visible devices of this host and the visible fakes."""
        devices = list(self._get_visible(device_type))
        return devices + self._visible if device_type in (None, "GPU") else devices

    def set_visible_devices(self, devices: list | tf.config.PhysicalDevice, device_type: str | None = None) -> None:
        """Log the choice of GPUs, and make it; with fakes, real GPUs stay as they are."""
        chosen: list[tf.config.PhysicalDevice] = [devices] if hasattr(devices, "device_type") else list(devices)
        if device_type in (None, "GPU"):
            late = {"late": True} if context.context()._initialized else {}  # real GPUs could no longer be hidden
            self._log.note("gpus", visible=[device.name for device in chosen if device.device_type == "GPU"], **late)
            self._visible = [device for device in chosen if device in self._fakes]
        if not self._fakes:
            self._set_visible(devices, device_type)
        elif device_type is None:
            self._set_visible([device for device in chosen if device not in self._fakes], None)

    def set_memory_growth(self, device: object, enable: bool) -> None:
        """Set the growth of memory, but not of a fake."""
        if device not in self._fakes:
            self._set_growth(device, enable)


def watch(log: Log, patches: Patches, fakes: int) -> None:
    """Patch TensorFlow's choice of devices; with `fakes`, the script sees so many GPUs that do not exist."""
    devices = Devices(log, fakes)
    for name in ("list_physical_devices", "get_visible_devices", "set_visible_devices", "set_memory_growth"):
        for module in (tf.config, tf.config.experimental):
            if hasattr(module, name):
                patches.put(module, name, getattr(devices, name))


def note_cuda_choice(log: Log) -> None:
    """Log the GPUs that the script has chosen by CUDA_VISIBLE_DEVICES, where it has."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and chosen != _AT_START:
        log.note("gpus", visible=[f"GPU:{name.strip()}" for name in chosen.split(",") if name.strip()])
