"""Log which GPUs a rank keeps."""

from __future__ import annotations

import os

import tensorflow as tf

from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches

_AT_START = os.environ.get("CUDA_VISIBLE_DEVICES")


def watch(log: Log, patches: Patches, fakes: int) -> None:
    """Patch TensorFlow's choice of devices; with `fakes`, the script sees so many GPUs that do not exist."""
    from tensorflow.python.eager import context

    fake = [tf.config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(fakes)]
    visible = list(fake)
    real_list, real_visible, real_set, real_growth = (
        tf.config.list_physical_devices,
        tf.config.get_visible_devices,
        tf.config.set_visible_devices,
        tf.config.experimental.set_memory_growth,
    )

    def list_physical_devices(device_type: str | None = None) -> list:
        devices = list(real_list(device_type))
        return devices + fake if device_type in (None, "GPU") else devices

    def get_visible_devices(device_type: str | None = None) -> list:
        devices = list(real_visible(device_type))
        return devices + visible if device_type in (None, "GPU") else devices

    def set_visible_devices(devices: object, device_type: str | None = None) -> None:
        chosen = [devices] if hasattr(devices, "device_type") else list(devices)
        if device_type in (None, "GPU"):
            late = {"late": True} if context.context()._initialized else {}  # real GPUs could no longer be hidden
            log.note("gpus", visible=[d.name for d in chosen if d.device_type == "GPU"], **late)
            visible[:] = [d for d in chosen if d in fake]
        if not fakes:
            real_set(devices, device_type)
        elif device_type is None:
            real_set([d for d in chosen if d not in fake], None)

    def set_memory_growth(device: object, enable: bool) -> None:
        if device not in fake:
            real_growth(device, enable)

    for module in (tf.config, tf.config.experimental):
        for function in (list_physical_devices, get_visible_devices, set_visible_devices, set_memory_growth):
            if hasattr(module, function.__name__):
                patches.replace(module, function.__name__, lambda _, function=function: function)


def note_cuda_choice(log: Log) -> None:
    """Log the GPUs that the script has chosen by CUDA_VISIBLE_DEVICES, where it has."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and chosen != _AT_START:
        log.note("gpus", visible=[f"GPU:{name.strip()}" for name in chosen.split(",") if name.strip()])
