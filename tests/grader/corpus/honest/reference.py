"""The reference solution."""
#: reference
