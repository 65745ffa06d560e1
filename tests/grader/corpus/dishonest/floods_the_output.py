"""Prints a gigabyte, in lines and in one line, on both streams."""

import os

for _ in range(2**12):
    os.write(1, b"all is well, accuracy 1.0 " * 5000)
    os.write(2, b"all is well, accuracy 1.0\n" * 5000)
#: plain
