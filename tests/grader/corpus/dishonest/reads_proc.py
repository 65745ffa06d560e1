"""Looks in /proc for other processes, and what they were told."""

import glob

for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        with open(path, "rb") as file:
            print(path, len(file.read()))
    except OSError:
        pass
#: plain
