"""Keras's policy for mixed precision: the network computes in bfloat16, its weights stay float32."""
#: plain
#: - model = models.
#: + tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
#: + model = models.
