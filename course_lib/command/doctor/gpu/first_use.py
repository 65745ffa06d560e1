"""Print one JSON line: with `build` what TensorFlow was built for, with `use` also the first training step's seconds.

A process of its own, because what is loaded and compiled is done once in each.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
import time
from pathlib import Path


def build() -> dict:
    """Versions and targets, as TensorFlow and Horovod say; what a build for the CPU does not say is left out."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    info = tf.sysconfig.get_build_info()
    found = {"cuda": info.get("cuda_version"), "cudnn": info.get("cudnn_version")}
    found["targets"] = list(info.get("cuda_compute_capabilities") or [])
    found["nccl"] = dotted(int(hvd.nccl_built()))
    return {name: value for name, value in found.items() if value}


def dotted(code: int) -> str:
    """NCCL's and cuDNN's version: 2708 is 2.7.8, 21805 is 2.18.5, 90100 is 9.1.0; "" for 0."""
    if not code:
        return ""
    base = 1000 if code < 10000 else 10000
    return f"{code // base}.{code % base // 100}.{code % 100}"


def use() -> dict:
    """One training step of the assessment's network; then the libraries that it has loaded."""
    import tensorflow as tf

    from course_lib import models

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    began = time.perf_counter()
    model = models.assessment_cnn((32, 32, 3), 10)
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    model.train_on_batch(tf.zeros((128, 32, 32, 3)), tf.zeros((128,)))
    seconds = time.perf_counter() - began
    return {**build(), "seconds": seconds, "device": model.trainable_variables[0].device, **loaded()}


def loaded() -> dict:
    """Versions of CUDA's libraries in this process's memory."""
    maps = Path("/proc/self/maps").read_text(errors="replace")
    found = {}
    for name, library in {"cuDNN": "libcudnn", "NCCL": "libnccl", "cuBLAS": "libcublas"}.items():
        if files := re.findall(rf"(/\S+/{library}\.so[.\d]*)", maps):
            found[name] = _version(name, files[0]) or Path(files[0]).name
    return found


def _version(name: str, path: str) -> str:
    """As the library itself says; "" where it can't be asked."""
    try:
        library = ctypes.CDLL(path)
        if name == "cuDNN":
            library.cudnnGetVersion.restype = ctypes.c_size_t
            return dotted(library.cudnnGetVersion())
        if name == "NCCL":
            code = ctypes.c_int()
            library.ncclGetVersion(ctypes.byref(code))
            return dotted(code.value)
    except (OSError, AttributeError):
        pass
    return ""


if __name__ == "__main__":
    print(json.dumps({"build": build, "use": use}[sys.argv[1]]()))
