"""Make class.json for the hub on a cluster, and print first passwords. In the project's folder:

    python3 -m containers.kubernetes.make_class names.txt class.json

Members of an existing class.json keep their passwords. A name that names.txt does not have is removed.
"""

import json
import os
import sys
from pathlib import Path

from containers.launcher.hub import class_list
from course_lib.system.errors import CourseError


def main(names: Path, target: Path) -> None:
    """Write `target` for the names in the class's file."""
    roles = class_list.read_names(names)
    known = json.loads(target.read_text()) if target.exists() else {}
    passwords = class_list.with_passwords(name for name in roles if name not in known)
    remaining = {name: member for name, member in known.items() if name in roles}
    members = class_list.updated(remaining, roles, passwords)
    target.touch(mode=0o600)
    target.write_text(json.dumps(members, indent=1))
    os.chmod(target, 0o600)
    class_list.print_passwords(roles, passwords)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Usage: python3 -m containers.kubernetes.make_class names.txt class.json")
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (CourseError, OSError, ValueError) as error:
        sys.exit(f"make_class: {error}")
