"""A seccomp filter, for bubblewrap, that refuses system calls which no training needs.

With it no process of a sandbox can read or change another one's memory, debug it, take over its files, mount file
systems or create namespaces.
"""

from __future__ import annotations

import errno
import platform
import struct

# Machine → (its audit number in linux/audit.h, the number of `clone`, those of `_NAMES`).
_NAMES = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "perf_event_open", "bpf", "userfaultfd", "keyctl"),
    *("add_key", "request_key", "mount", "umount2", "pivot_root", "unshare", "setns"),
)
_NUMBERS = {
    "x86_64": (0xC000003E, 56, (101, 310, 311, 312, 298, 321, 323, 250, 248, 249, 165, 166, 155, 272, 308)),
    "aarch64": (0xC00000B7, 220, (117, 270, 271, 272, 241, 280, 282, 219, 217, 218, 40, 39, 41, 97, 268)),
}
_ON_ALL = {  # newer calls have one number everywhere
    "pidfd_getfd": 438, "process_madvise": 440, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "mount_setattr": 442, "open_tree_attr": 467,
}  # fmt: skip
CLONE3 = 435
CLONE_NEWUSER = 0x10000000
_OTHER_TABLE = 0x40000000  # x86_64: numbers from here on are calls of the x32 ABI
# linux/filter.h: load 32 bits, jump if equal, jump if not less, jump if a bit is set, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_CALL, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
# If `clone3`, whose arguments a filter cannot read, is missing, glibc uses `clone`, whose arguments it can.
_ENDS = {"allow": _ALLOW, "refuse": _ERROR | errno.EPERM, "missing": _ERROR | errno.ENOSYS}


def refused() -> dict[str, int]:
    """Return the refused calls: name → number on this machine; {} if its architecture is unknown.

    In addition, the filter reports `clone3` as missing, and prevents `clone` from creating a user namespace.
    """
    if platform.machine() not in _NUMBERS:
        return {}
    return {**dict(zip(_NAMES, _NUMBERS[platform.machine()][2])), **_ON_ALL}


def clone() -> int:
    """Return the number of `clone` on this machine."""
    return _NUMBERS[platform.machine()][1]


def program() -> bytes:
    """Return the filter for this machine, an array of struct sock_filter; b"" if its architecture is unknown."""
    if not refused():
        return b""
    lines = [  # (instruction, target if true, target if false, operand); "" is the next line
        (_LOAD, "", "", _MACHINE),
        (_EQUAL, "", "refuse", _NUMBERS[platform.machine()][0]),
        (_LOAD, "", "", _CALL),
        (_AT_LEAST, "refuse", "", _OTHER_TABLE),
        *[(_EQUAL, "refuse", "", number) for number in refused().values()],
        (_EQUAL, "missing", "", CLONE3),
        (_EQUAL, "", "allow", clone()),
        (_LOAD, "", "", _FIRST_ARGUMENT),
        (_ANY_BIT, "refuse", "allow", CLONE_NEWUSER),
    ]
    end = {name: len(lines) + index for index, name in enumerate(_ENDS)}
    jumps = [
        (code, *(end[name] - line - 1 if name else 0 for name in (yes, no)), operand)
        for line, (code, yes, no, operand) in enumerate(lines)
    ]
    jumps += [(_RETURN, 0, 0, code) for code in _ENDS.values()]
    return b"".join(struct.pack("HBBI", *jump) for jump in jumps)
