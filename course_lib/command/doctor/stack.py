"""Print, as one JSON line, what TensorFlow and Horovod say of themselves. Run by `course_lib.command.doctor`."""

from __future__ import annotations

import importlib
import json
from importlib.util import find_spec


def describe() -> dict:
    """Versions (None where missing), controllers, NCCL, GPU names; in `faults`, what cannot be used and why."""
    faults: dict[str, str] = {}
    tensorflow = _load("TensorFlow", "tensorflow", faults)
    horovod = _load("Horovod", "horovod.tensorflow", faults) if tensorflow else None
    gpus = tensorflow.config.list_physical_devices("GPU") if tensorflow else []
    return {
        "tensorflow": tensorflow.__version__ if tensorflow else None,
        "keras": _keras_version(tensorflow, faults) if tensorflow else None,
        "horovod": importlib.import_module("horovod").__version__ if horovod else None,
        "controllers": ["gloo"] * horovod.gloo_built() + ["mpi"] * horovod.mpi_built() if horovod else [],
        "nccl": bool(horovod and horovod.nccl_built()),
        "gpus": [_gpu_name(tensorflow, gpu) for gpu in gpus],
        "faults": faults,
    }


def _load(title: str, module: str, faults: dict[str, str]) -> object | None:
    if find_spec(module.partition(".")[0]) is None:
        faults[title] = "it is not installed in this environment"
        return None
    try:
        return importlib.import_module(module)
    except Exception as error:  # whatever a broken binary raises
        if type(error).__name__ == "HorovodVersionMismatchError":
            faults[title] = f"it was built for TensorFlow {error.installed_version}, not for {error.version}"
        else:
            faults[title] = " ".join(str(error).split())[:300] or type(error).__name__
        return None


def _keras_version(tensorflow: object, faults: dict[str, str]) -> str | None:
    try:
        package = tensorflow.keras.Model.__module__.partition(".")[0]  # keras or, beside Keras 3, tf_keras
        return importlib.import_module(package).__version__
    except ImportError as error:
        faults["Keras"] = " ".join(str(error).split())[:300]
        return None


def _gpu_name(tensorflow: object, gpu: object) -> str:
    return tensorflow.config.experimental.get_device_details(gpu).get("device_name", gpu.name)


if __name__ == "__main__":
    print(json.dumps(describe()))
