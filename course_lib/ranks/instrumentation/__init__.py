"""Log, inside a rank, what a Keras script does: what it initialises, reads, reduces, updates, saves.

`rank` installs this before the script starts, where the launcher asks for a record. The script needs no change, and it
may train with `Model.fit` or in a loop of its own. The log explains a run. It proves nothing: the script's own process
writes it. It has these files:

    rank-R.jsonl      one record a line: start, init, join, gpus, collective, fit, first-step, epoch, fit-end, progress,
                      digest, save, end
    rank-R.steps      int32: how many examples each training step read
    rank-R.examples   float32: the mean brightness, weighted to the centre, of each of these examples, in order
    rank-R.npz        the network's weights after training

Everything is written as it happens, so that a rank that is killed leaves its log.
"""
