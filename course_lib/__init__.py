"""The helper library of the course One Model, Many GPUs."""
