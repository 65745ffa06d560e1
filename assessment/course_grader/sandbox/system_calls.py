"""The system calls that no training makes, refused to the ranks: a filter for seccomp, as bubblewrap takes it.

Without them no process of a rank reads or changes the memory of another one, looks at it with a debugger, takes over
its files, or makes namespaces of its own.
"""

from __future__ import annotations

import errno
import platform
import struct

# Machine → (its audit number in linux/audit.h, call → number in the kernel's tables).
_NAMES = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "perf_event_open", "bpf", "userfaultfd", "keyctl"),
    *("add_key", "request_key", "mount", "umount2", "pivot_root", "unshare", "setns"),
    *("pidfd_getfd", "process_madvise", "io_uring_setup", "io_uring_enter", "io_uring_register"),
)
_NUMBERS = {
    "x86_64": (0xC000003E, (101, 310, 311, 312, 298, 321, 323, 250, 248, 249, 165, 166, 155, 272, 308)),
    "aarch64": (0xC00000B7, (117, 270, 271, 272, 241, 280, 282, 219, 217, 218, 40, 39, 41, 97, 268)),
}
_ON_ALL = (438, 440, 425, 426, 427)  # those of the last line have one number everywhere
_OTHER_TABLE = 0x40000000  # x86_64: numbers from here on are those of its 32-bit calls
# linux/filter.h: load a word, jump if equal, jump if not less, return.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


def calls() -> dict[str, int]:
    """The calls that are refused, with their numbers on this machine; {} on one whose numbers are not known here."""
    if platform.machine() not in _NUMBERS:
        return {}
    return dict(zip(_NAMES, (*_NUMBERS[platform.machine()][1], *_ON_ALL)))


def program() -> bytes:
    """The filter for this machine, an array of struct sock_filter; b"" where the machine is not known here."""
    refused = calls()
    if not refused:
        return b""
    audit = _NUMBERS[platform.machine()][0]
    last = len(refused) + 5  # the line that refuses, after the one that allows
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 0, last - 2, audit), (_LOAD, 0, 0, 0), (_AT_LEAST, last - 4, 0, _OTHER_TABLE)]
    lines += [(_EQUAL, last - 5 - i, 0, number) for i, number in enumerate(refused.values())]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
