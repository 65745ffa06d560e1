"""What training costs: time, bytes on the wire, memory."""

from course_lib.cost.cluster import Link, Prediction, System, predict

__all__ = ["Link", "Prediction", "System", "predict"]
