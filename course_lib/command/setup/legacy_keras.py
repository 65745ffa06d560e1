"""Keras 2 under TensorFlow 2.16 and later: `tf.keras` and `keras` are `tf_keras` in every process.

Under Keras 3, `Model.fit` with Horovod's DistributedOptimizer raises nothing and reduces nothing: each rank trains a
network of its own. TensorFlow takes `tf_keras` where TF_USE_LEGACY_KERAS says so; Horovod imports `keras` by name, so
that this name has to lead to `tf_keras` too.

The set-up links this file into the environment's site-packages, with a line in a `.pth` file that calls `put` at the
start of each Python: of kernels, ranks and scripts alike, before any of them imports TensorFlow. So `put` must be
cheap, and this file must need nothing.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

TF_KERAS, KERAS = "tf_keras", "keras"  # what is imported, and the name by which it is asked for
SEED_MODULE = "tf_keras.src.utils.tf_utils"  # draws by randint(1, 1e9): Python 3.12 refuses (tf-keras issue 803)


def needed(tensorflow: str) -> bool:
    """Whether a TensorFlow of this version ("2.17.0+nv25.2") has Keras 3 for its Keras."""
    major, minor = tensorflow.split(".")[:2]
    return (int(major), int(minor)) >= (2, 16)


def put() -> None:
    """From now on `tf.keras` is `tf_keras`, and importing `keras` or a part of it imports that of `tf_keras`."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())


class _Alias:
    """Finds and loads `keras` and `keras.…`, by importing the part of `tf_keras` of the same name."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == SEED_MODULE and sys.version_info >= (3, 12):
            return _with_integer_seeds(PathFinder.find_spec(name, path))
        if name.partition(".")[0] != KERAS:
            return None
        true = find_spec(TF_KERAS + name[len(KERAS) :])
        if true is None:
            return None
        alias = ModuleSpec(name, self, origin=true.origin, is_package=true.submodule_search_locations is not None)
        alias.submodule_search_locations = true.submodule_search_locations
        return alias

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(TF_KERAS + spec.name[len(KERAS) :])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It has run under its true name; the import system has put the alias's spec on it meanwhile.
        module.__spec__ = module.__spec__.loader_state


def _with_integer_seeds(spec: ModuleSpec | None) -> ModuleSpec | None:
    """The spec of SEED_MODULE, with a `random` in the module whose `randint` takes 1e9 too."""
    if spec is None:
        return None
    run = spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        random = module.random

        class Random(random.Random):
            def randint(self, a: float, b: float) -> int:
                return super().randint(int(a), int(b))

        module.random = ModuleType("random")
        vars(module.random).update(vars(random), Random=Random, randint=lambda a, b: random.randint(int(a), int(b)))

    spec.loader.exec_module = exec_module
    return spec
