"""Optimizers for large batches: LARS, LARC, LAMB and NovoGrad; see also `schedules`."""

from course_lib.optimizers.layer_wise import LAMB, LARC, LARS, NovoGrad

__all__ = ["LAMB", "LARC", "LARS", "NovoGrad"]
