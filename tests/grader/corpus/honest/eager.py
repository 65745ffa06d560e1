"""A loop without any compiled step, which saves after each epoch."""
#: honest/custom_loop
#: - @tf.function
#: - def step
#: + def step
#:
#: -         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: -
#: - if hvd.rank() == 0:
#: -     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: +         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: +         model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
