"""Networks split over ranks: layers cut in width (layers), in depth (pipeline, schedules)."""
