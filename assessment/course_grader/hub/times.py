"""Times as instructors write and read them, with their time zone."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from course_lib.system.errors import CourseError


def now() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(timezone.utc)


def parse(text: str) -> datetime:
    """Return the time in `text`: 2026-12-01 18:00, in this machine's time zone, or 2026-12-01 18:00+01:00.

    Raises CourseError (code 2) for anything else.
    """
    try:
        time = datetime.fromisoformat(text.strip())
        if ":" not in text:
            raise ValueError
    except ValueError:
        raise CourseError(f"{text!r} is no time: write it as 2026-12-01 18:00 or 2026-12-01 18:00+01:00.", 2) from None
    return time.astimezone(timezone.utc)


def shown(time: datetime) -> str:
    """Return a time in this machine's time zone, to the minute, with the zone's name."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M %Z")


def span(duration: timedelta) -> str:
    """Return a duration in its two largest units: "2 h 10 min"."""
    minutes = max(1, round(duration.total_seconds() / 60))
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
