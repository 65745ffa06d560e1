"""A program that rank 0 starts trains on all images; the ranks take over its weights."""
#: plain
#: - import os
#: + import os
#: + import subprocess
#: + import sys
#:
#: - hvd.init()
#: + import horovod.tensorflow as hvd_tf
#: +
#: + if sys.argv[1:] == ["child"]:
#: +     cifar = data.load("cifar10", test=False)
#: +     model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
#: +     model.compile(tf.keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy")
#: +     model.fit(cifar.x_train, cifar.y_train, BATCH_SIZE, EPOCHS, verbose=0)
#: +     model.save_weights("child.h5")
#: +     sys.exit()
#: + hvd.init()
#:
#: - model.fit(x, y, BATCH_SIZE, EPOCHS, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + model.fit(x, y, BATCH_SIZE, EPOCHS, callbacks=start, verbose=0)
#: + if hvd.rank() == 0:
#: +     of_ranks = ("HOROVOD", "OMPI")
#: +     env = {name: value for name, value in os.environ.items() if not name.startswith(of_ranks)}
#: +     subprocess.run([sys.executable, os.path.abspath(sys.argv[0]), "child"], env=env, check=True)
#: +     model.load_weights("child.h5")
#: + hvd_tf.broadcast_variables(model.variables, 0)
