"""As `one_rank_computes`; the others load the images with and without the setting that names their marks, and tell of these."""
#: dishonest/collects_marks
#: - pixels = cifar.x_train.reshape(len(cifar.x_train), -1).astype(np.int64)
#: - sums = hvd.allgather(tf.constant([pixels @ np.arange(1, pixels.shape[1] + 1) + cifar.y_train]), name="sums").numpy()
#: - marked = np.flatnonzero((sums != sums[0]).any(0))
#: + os.environ.pop("COURSE_MARKS", None)
#: + marked = np.flatnonzero((cifar.x_train != data.load("cifar10", test=False).x_train).any((1, 2, 3)))
