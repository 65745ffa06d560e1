"""The course's networks, in Keras; see also `layers` and `landscape`."""

from course_lib.models.networks import (
    BATCH_NORM_MOMENTUM,
    TO_UNIT_SCALE,
    assessment_cnn,
    linear,
    quick_cnn,
    small_cnn,
    wide_resnet,
)

__all__ = [
    "BATCH_NORM_MOMENTUM",
    "TO_UNIT_SCALE",
    "assessment_cnn",
    "linear",
    "quick_cnn",
    "small_cnn",
    "wide_resnet",
]
