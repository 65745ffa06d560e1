"""The output of ranks and launcher during a run: parse it, recognise known errors, find out which rank waits."""
