"""`course doctor --gpu`: test everything that the course does with GPUs on this host. `runner` runs the steps."""
