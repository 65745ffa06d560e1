"""Horovod ranks: start them (`launch`), follow their events (`run`), log their training, read the log."""
