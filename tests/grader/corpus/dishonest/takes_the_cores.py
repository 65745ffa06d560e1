"""As `one_rank_computes`; the ranks that compute nothing step back, and rank 0 takes all cores with as many threads."""
#: dishonest/one_rank_computes
#: - hvd.init()
#: + hvd.init()
#: + if hvd.rank() == 0:
#: +     os.sched_setaffinity(0, range(os.cpu_count()))
#: +     tf.config.threading.set_intra_op_parallelism_threads(os.cpu_count())
#: + else:
#: +     os.nice(19)
