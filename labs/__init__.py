"""The labs: notebooks, and in each lab's folder `lessons/` what they import."""
