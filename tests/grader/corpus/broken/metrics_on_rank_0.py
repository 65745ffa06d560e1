"""Rank 0 alone averages its metrics at the end of an epoch; rank 1 is in the next one."""
#: plain
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + if hvd.rank() == 0:
#: +     start.append(hvd.callbacks.MetricAverageCallback())
