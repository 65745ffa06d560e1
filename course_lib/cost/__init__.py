"""What training costs: time, bytes on the wire, memory."""

from course_lib.cost.allreduce import Link
from course_lib.cost.cluster import Prediction, System, predict

__all__ = ["Link", "Prediction", "System", "predict"]
