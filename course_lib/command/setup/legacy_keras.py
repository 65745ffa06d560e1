"""Keras 2 with TensorFlow 2.16 and later: `tf.keras` and `keras` are `tf_keras` in every process.

With Keras 3, `Model.fit` with Horovod's DistributedOptimizer raises no error and reduces no gradients: each rank trains
its own network. TensorFlow uses `tf_keras` if TF_USE_LEGACY_KERAS is set. Horovod imports `keras` by name, so this name
must refer to `tf_keras` too.

The set-up links this file into the environment's site-packages, with a `.pth` file whose line calls `put` at the start
of each Python process (kernels, ranks, scripts), before TensorFlow is imported. So `put` must be fast, and this file
must import only the standard library.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

TF_KERAS, KERAS = "tf_keras", "keras"  # the imported package, and its alias
SEED_MODULE = "tf_keras.src.utils.tf_utils"  # calls randint(1, 1e9), an error in Python 3.12 (tf-keras issue 803)


def needed(tensorflow: str) -> bool:
    """Whether this version of TensorFlow, such as "2.17.0+nv25.2", uses Keras 3."""
    major, minor = tensorflow.split(".")[:2]
    return (int(major), int(minor)) >= (2, 16)


def put() -> None:
    """Make `tf.keras` use `tf_keras`, and imports of `keras` and its submodules import `tf_keras`."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())


class _Alias:
    """Finder and loader of `keras` and `keras.…`, which imports the same submodule of `tf_keras`."""

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
        # The module has already been executed under its own name; restore its spec, which the import system replaced.
        module.__spec__ = module.__spec__.loader_state


def _with_integer_seeds(spec: ModuleSpec | None) -> ModuleSpec | None:
    """The spec of SEED_MODULE; after loading, the module's `random` has a `randint` that accepts floats."""
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
