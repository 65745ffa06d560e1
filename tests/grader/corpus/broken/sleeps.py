"""Sleeps before it does anything, much longer than anybody waits."""

import time

time.sleep(600)
#: plain
