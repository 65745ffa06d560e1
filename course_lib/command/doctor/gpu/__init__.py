"""`course doctor --gpu`: does what the course says of GPUs hold on this host? `runner` runs the steps one by one."""
