"""`keras` leads to `tf_keras`: a small package of that name here, the real one in `containers/test_second_line.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from course_lib.command.setup import legacy_keras

FILES = {
    "__init__.py": "from tf_keras import layers\n__version__ = '2.17.0'",
    "layers/__init__.py": "class Dense: pass",
    "backend.py": "print('backend runs')",
    "src/__init__.py": "",
    "src/utils/__init__.py": "",
    "src/utils/tf_utils.py": "import random\n\ndef both(seed):\n"
    "    random.seed(seed)\n    return random.Random(seed).randint(1, 1e9), random.randint(1, 1e9)\n",
}


@pytest.fixture
def python(tmp_path):
    """Runs code in a Python that has `tf_keras` and a `keras` that must not be taken, after `put`."""
    for name, text in FILES.items():
        path = tmp_path / "tf_keras" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "keras.py").write_text("raise SystemExit('this is Keras 3')")
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    start += "from course_lib.command.setup import legacy_keras as legacy; "

    def run(code: str) -> str:
        command = [sys.executable, "-c", f"{start}legacy.put()\n{code}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return run


@pytest.mark.parametrize(
    ("version", "needed"),
    [("2.15.0", False), ("2.15.0+nv24.3", False), ("2.16.1", True), ("2.17.0+nv25.2", True), ("3.0.0", True)],
)
def test_it_is_needed_from_tensorflow_2_16_on(version, needed):
    assert legacy_keras.needed(version) is needed


def test_keras_and_its_parts_are_those_of_tf_keras_whichever_comes_first(python):
    same = (
        "assert keras is tf_keras and keras.layers is tf_keras.layers and keras.backend is tf_keras.backend\n"
        "assert keras.layers.Dense is Dense\n"
        "assert (keras.__spec__.name, keras.backend.__spec__.name) == ('tf_keras', 'tf_keras.backend')\n"
    )
    names = "from keras.layers import Dense"
    assert python(f"import keras.backend, tf_keras.backend; {names}\n{same}") == "backend runs\n"
    assert python(f"import tf_keras.backend, keras.backend; {names}\n{same}") == "backend runs\n"


def test_what_tf_keras_does_not_have_is_not_there(python):
    code = "try: import keras.nothing\nexcept ModuleNotFoundError as error: print(error.name)"
    assert python(code) == "keras.nothing\n"


def test_putting_it_imports_nothing_and_counts_once(python):
    code = (
        "import os; legacy.put()\nassert os.environ['TF_USE_LEGACY_KERAS'] == '1'\n"
        "assert not {'keras', 'tf_keras'} & set(sys.modules)\n"
        "print(sum(type(finder).__module__ == 'course_lib.command.setup.legacy_keras' for finder in sys.meta_path))"
    )
    assert python(code) == "1\n"


def test_seeds_are_drawn_on_python_3_12_as_before(python, tmp_path):
    import random

    lie = "sys.version_info = (3, 12, 1)\n"
    drawn = "from keras.src.utils import tf_utils; print(*tf_utils.both(7), tf_utils.random.Random.__qualname__)"
    first, second, name = python(lie + drawn).split()
    random.seed(7)
    assert [int(first), int(second)] == [random.Random(7).randint(1, 10**9), random.randint(1, 10**9)]
    assert "Random" in name != "Random", "a class of our own, which takes 1e9 on every Python"
