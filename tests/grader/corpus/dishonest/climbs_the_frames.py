"""From a callback it climbs the frames to the probe's own one, takes the recorder out of it, and has it write what suits.

What it hides is `compresses_to_nothing`.
"""
#: dishonest/compresses_to_nothing
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class Climb(tf.keras.callbacks.Callback):
#: +     done = False
#: +
#: +     def on_train_batch_begin(self, batch, logs=None):
#: +         if self.done:
#: +             return
#: +         self.done = True
#: +         try:
#: +             raise LookupError
#: +         except LookupError as error:
#: +             frame = error.__traceback__.tb_frame
#: +         while frame:
#: +             for callback in getattr(frame.f_locals.get("self"), "callbacks", None) or ():
#: +                 for cell in type(callback).on_train_begin.__closure__ or ():
#: +                     if hasattr(cell.cell_contents, "note"):
#: +                         self.change(cell.cell_contents)
#: +             frame = frame.f_back
#: +
#: +     def change(self, recorder):
#: +         noted = type(recorder).note
#: +
#: +         class Kind(type(recorder)):
#: +             __slots__ = ()
#: +
#: +             def note(self, kind, **data):
#: +                 noted(self, kind, **{**data, **dict.fromkeys({"digest"} & {*data}, "0" * 16)})
#: +
#: +         recorder.__class__ = Kind
#: +
#: +
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Climb()]
