"""Horovod ranks: start them (`launch`), follow them (`run`), log their training, read the log."""
