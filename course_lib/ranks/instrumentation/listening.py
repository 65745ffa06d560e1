"""Listen to what the script asks of Python that training does not need (PEP 578: a hook that nothing can remove).

What TensorFlow, Horovod and other packages do is theirs; told is what the script does itself or has the standard
library do, and of programs, signals and connections also what it has packages do. It proves nothing: somebody should
look at it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading

from course_lib.ranks import environment
from course_lib.ranks.instrumentation.recorder import Recorder

MOST = 20  # things that are told
_BY_ANYONE = {  # event → in words, also where the standard library does it for the script
    "gc.get_objects": "searches the interpreter's objects",
    "gc.get_referents": "searches the interpreter's objects",
    "gc.get_referrers": "searches the interpreter's objects",
    "os.exec": "becomes another program",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.kill": "sends a signal",
    "os.killpg": "sends a signal",
    "os.posix_spawn": "starts a program",
    "os.system": "starts a program",
    "pty.spawn": "starts a program",
    "signal.pthread_kill": "sends a signal",
    "socket.bind": "opens a connection",
    "socket.connect": "opens a connection",
    "subprocess.Popen": "starts a program",
    "sys.settrace": "traces the interpreter",
    "sys.setprofile": "traces the interpreter",
}
_BY_SCRIPT = {  # what the standard library does for harmless ends too
    "code.__new__": "makes code",
    "mmap.__new__": "maps memory",
    "object.__delattr__": "changes a function",
    "object.__getattr__": "looks into a function or a frame",
    "object.__setattr__": "changes a function",
    "sys._current_frames": "looks at the frames of functions",
    "sys._getframe": "looks at the frames of functions",
    "sys.addaudithook": "listens to the interpreter",
}
# What nobody but the script needs, also in a thread of TensorFlow's, where no line of the script is to be found.
_PROGRAMS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen")
_FOREIGN_FOLDERS = ("/proc/", "/sys/")  # files that training does not read


def watch(recorder: Recorder, script: str) -> None:
    """Record what the file `script` does from now on."""
    own = os.path.abspath(script)
    libraries = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))
    packages = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("purelib", "platlib"))
    frame_of, told, here = sys._getframe, set(), threading.local()
    names = frozenset([*_BY_ANYONE, *_BY_SCRIPT, "open"])
    # The hook outlives the module's own names, when Python shuts down.
    by_anyone, by_script, programs, foreign, most = _BY_ANYONE, _BY_SCRIPT, _PROGRAMS, _FOREIGN_FOLDERS, MOST
    marks = os.environ.get(environment.MARKS)
    thread, main = threading.get_ident, threading.get_ident()

    def line_of_script(direct: bool, through: bool) -> int | None:
        """The line of the script that asks for this, itself or by way of the standard library, and `through` packages
        too, unless they are being imported; 0 in a thread without the script, None where it is not the script."""
        frame = frame_of(3)
        while frame is not None:
            name = frame.f_code.co_filename
            if name in (own, "<string>"):
                return frame.f_lineno
            frozen = name.startswith("<frozen")
            if direct or (frozen and through and "importlib" in name):
                return None
            if not (frozen or through or (name.startswith(libraries) and not name.startswith(packages))):
                return None
            frame = frame.f_back
        return None if thread() == main else 0

    def listen(event: str, args: tuple) -> None:
        if not (event in names or event.startswith("ctypes.")) or len(told) >= most or getattr(here, "busy", False):
            return
        here.busy = True  # what is done to find the script's line is heard too
        try:
            note(event, args)
        finally:
            here.busy = False

    def note(event: str, args: tuple) -> None:
        if event == "open":
            path = args[0] if isinstance(args[0], str) else ""
            if not path.startswith(foreign) and path != marks:
                return
            what = f"opens {path[:60]}"
        else:
            what = by_anyone.get(event) or by_script.get(event) or "calls machine code"
        line = line_of_script(direct=event in by_script, through=event in by_anyone)
        if line is None or (not line and event not in programs):
            return
        if (line, what) not in told:
            told.add((line, what))
            recorder.note("look", line=line, what=what)

    sys.addaudithook(listen)
