"""Print versions and properties of TensorFlow and Horovod as one line of JSON, for `course_lib.command.doctor`."""

from __future__ import annotations

import importlib
import json
from importlib.util import find_spec

NOTHING = {
    **dict.fromkeys(("tensorflow", "keras", "horovod"), None),  # versions
    **dict.fromkeys(("cuda", "cudnn", "nccl"), None),  # versions for which they were built
    "targets": [],  # GPU architectures with kernels in TensorFlow: "sm_75", "compute_80"
    "controllers": [],  # of Horovod
    "gpus": [],  # names of the GPUs that TensorFlow sees
    "faults": {},  # library that can't be used → reason
}


def describe() -> dict:
    """The report on TensorFlow and Horovod; `NOTHING` has its keys and the values of a missing library."""
    faults: dict[str, str] = {}
    tensorflow = _load("TensorFlow", "tensorflow", faults)
    horovod = _load("Horovod", "horovod.tensorflow", faults) if tensorflow else None
    stack = {**NOTHING, "faults": faults}
    if tensorflow:
        build = tensorflow.sysconfig.get_build_info()
        stack["tensorflow"], stack["keras"] = tensorflow.__version__, _keras_version(tensorflow, faults)
        stack["cuda"], stack["cudnn"] = build.get("cuda_version"), build.get("cudnn_version")
        stack["targets"] = list(build.get("cuda_compute_capabilities") or ())
        stack["gpus"] = [_gpu_name(tensorflow, gpu) for gpu in tensorflow.config.list_physical_devices("GPU")]
    if horovod:
        stack["horovod"] = importlib.import_module("horovod").__version__
        stack["controllers"] = ["gloo"] * horovod.gloo_built() + ["mpi"] * horovod.mpi_built()
        stack["nccl"] = dotted(int(horovod.nccl_built()))
    return stack


def dotted(code: int) -> str | None:
    """NCCL's version from its version code: 2708 → 2.7.8, 21805 → 2.18.5, 0 → None."""
    base = 1000 if code < 10000 else 10000
    return f"{code // base}.{code % base // 100}.{code % 100}" if code else None


def _load(title: str, module: str, faults: dict[str, str]) -> object | None:
    if find_spec(module.partition(".")[0]) is None:
        faults[title] = "it is not installed in this environment"
        return None
    try:
        return importlib.import_module(module)
    except Exception as error:  # a broken binary can raise anything
        if type(error).__name__ == "HorovodVersionMismatchError":
            faults[title] = f"it was built for TensorFlow {error.installed_version}, not for {error.version}"
        else:
            faults[title] = " ".join(str(error).split())[:300] or type(error).__name__
        return None


def _keras_version(tensorflow: object, faults: dict[str, str]) -> str | None:
    try:
        package = tensorflow.keras.Model.__module__.partition(".")[0]  # keras, or tf_keras if Keras 3 is installed
        return importlib.import_module(package).__version__
    except ImportError as error:
        faults["Keras"] = " ".join(str(error).split())[:300]
        return None


def _gpu_name(tensorflow: object, gpu: object) -> str:
    return tensorflow.config.experimental.get_device_details(gpu).get("device_name", gpu.name)


if __name__ == "__main__":
    print(json.dumps(describe()))
