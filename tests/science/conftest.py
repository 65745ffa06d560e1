"""Properties may take their time: on a busy machine an example's duration says nothing."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("science", deadline=None)
settings.load_profile("science")
