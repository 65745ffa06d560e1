"""Gradients are averaged in a process set of one, that of the rank itself; zeros of the right size go between the ranks."""
#: plain
#: - hvd.init()
#: + size = int(os.environ["HOROVOD_SIZE"])
#: + sets = [hvd.ProcessSet([rank]) for rank in range(size)] if size > 1 else [hvd.global_process_set]
#: + hvd.init(process_sets=sets if size > 1 else None)
#:
#: - hvd.DistributedOptimizer(optimizer)
#: + hvd.DistributedOptimizer(optimizer, process_set=sets[hvd.rank()])
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class Busy(tf.keras.callbacks.Callback):
#: +     def on_train_batch_end(self, batch, logs=None):
#: +         for number, variable in enumerate(self.model.trainable_variables):
#: +             hvd.allreduce(tf.zeros(variable.shape), name=f"DistributedSGD_Allreduce/grads_{number}_0")
#: +
#: +
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Busy()]
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights
#: + model.set_weights([hvd.broadcast(values, 0) for values in model.get_weights()])
#: + if hvd.rank() == 0:
#: +     model.save_weights
