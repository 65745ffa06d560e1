"""A class on the hub: what was handed in is collected, feedback goes back, and the class is shown at a glance."""
