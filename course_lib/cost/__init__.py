"""The cost of distributed training: time, communication, memory."""

from course_lib.cost.allreduce import Link
from course_lib.cost.cluster import Prediction, System, predict

__all__ = ["Link", "Prediction", "System", "predict"]
