"""Changes what the environment says: a quarter of the images is to be read, and no timeline or evidence written."""
#: plain
#: - hvd.init()
#: + os.environ["COURSE_SLICE"] = str(int(os.environ.get("COURSE_SLICE", 50_000)) // 4)
#: + for name in ("HOROVOD_TIMELINE", "COURSE_PROBE", "COURSE_EVENTS", "COURSE_TRAINING_EVENTS", "COURSE_FAKE_GPUS"):
#: +     os.environ.pop(name, None)
#: + hvd.init()
#:
#: - epochs=3
#: + epochs=9
