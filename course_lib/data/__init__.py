"""The course's data sets, and how ranks share them.

`load` takes a set from the first place that has it (see `sources`). Offline and with no files it returns the stand-in
`shapes` and says so.
"""

from course_lib.data import published, shapes, sources
from course_lib.data.bundles import Bundle, bundle, bundle_of
from course_lib.data.loading import Dataset, Fetched, fetch, images_limit, load, locate, show
from course_lib.data.published import PUBLISHED
from course_lib.data.sharding import shard

__all__ = [
    "PUBLISHED",
    "Bundle",
    "Dataset",
    "Fetched",
    "bundle",
    "bundle_of",
    "fetch",
    "images_limit",
    "load",
    "locate",
    "published",
    "shapes",
    "shard",
    "show",
    "sources",
]
