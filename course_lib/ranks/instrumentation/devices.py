"""Log which GPUs a rank makes visible."""

from __future__ import annotations

import os

import tensorflow as tf
from tensorflow.python.eager import context

from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches

_AT_START = os.environ.get("CUDA_VISIBLE_DEVICES")


class Devices:
    """Replacements of TensorFlow's device functions: they log the choice of GPUs, and list fake GPUs if asked to."""

    def __init__(self, log: Log, fakes: int) -> None:
        self._log = log
        self._fakes = [tf.config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(fakes)]
        self._visible = list(self._fakes)  # visible fakes
        self._list, self._get_visible = tf.config.list_physical_devices, tf.config.get_visible_devices
        self._set_visible, self._set_growth = tf.config.set_visible_devices, tf.config.experimental.set_memory_growth

    def list_physical_devices(self, device_type: str | None = None) -> list:
        """The devices of this host and the fake GPUs."""
        devices = list(self._list(device_type))
        return devices + self._fakes if device_type in (None, "GPU") else devices

    def get_visible_devices(self, device_type: str | None = None) -> list:
        """The visible devices of this host and the visible fake GPUs."""
        devices = list(self._get_visible(device_type))
        return devices + self._visible if device_type in (None, "GPU") else devices

    def set_visible_devices(self, devices: list | tf.config.PhysicalDevice, device_type: str | None = None) -> None:
        """Log and apply the choice of GPUs; with fake GPUs, the real GPUs do not change."""
        chosen: list[tf.config.PhysicalDevice] = [devices] if hasattr(devices, "device_type") else list(devices)
        if device_type in (None, "GPU"):
            late = {"late": True} if context.context()._initialized else {}  # too late to hide real GPUs
            self._log.note("gpus", visible=[device.name for device in chosen if device.device_type == "GPU"], **late)
            self._visible = [device for device in chosen if device in self._fakes]
        if not self._fakes:
            self._set_visible(devices, device_type)
        elif device_type is None:
            self._set_visible([device for device in chosen if device not in self._fakes], None)

    def set_memory_growth(self, device: object, enable: bool) -> None:
        """Set memory growth; ignore fake GPUs."""
        if device not in self._fakes:
            self._set_growth(device, enable)


def watch(log: Log, patches: Patches, fakes: int) -> None:
    """Patch TensorFlow's device functions; the script sees `fakes` GPUs that do not exist."""
    devices = Devices(log, fakes)
    for name in ("list_physical_devices", "get_visible_devices", "set_visible_devices", "set_memory_growth"):
        for module in (tf.config, tf.config.experimental):
            if hasattr(module, name):
                patches.put(module, name, getattr(devices, name))


def note_cuda_choice(log: Log) -> None:
    """Log the script's choice of GPUs, if it has changed CUDA_VISIBLE_DEVICES."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and chosen != _AT_START:
        log.note("gpus", visible=[f"GPU:{name.strip()}" for name in chosen.split(",") if name.strip()])
