"""As `copied_checkpoint`, with the functions that TensorFlow has for files."""
#: honest/copied_checkpoint
#: - shutil.copy("best.h5", os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: + tf.io.gfile.rename("best.h5", os.environ.get("COURSE_WEIGHTS", "weights.h5"), overwrite=True)
