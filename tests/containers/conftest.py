"""Debian roots for tests: unpacked, and told how this host reaches its package index."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from course_lib.system import paths

SETTINGS = re.compile(r"(PIP_|UV_|SSL_CERT_FILE$|REQUESTS_CA_BUNDLE$|(https?|no|all)_proxy$)", re.IGNORECASE)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_SETTINGS = (Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf")


class Debian:
    """What an empty Debian 12 is made of."""

    def __init__(self) -> None:
        self.settings = {name: value for name, value in os.environ.items() if SETTINGS.match(name)}

    def unpack(self, folder: Path) -> None:
        """Unpack the smallest Debian 12 into `folder`; the first time, fetch it with debootstrap."""
        kept = paths.cache() / "tests" / "debian-12-minbase.tar"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            include = "--include=ca-certificates"
            subprocess.run(["debootstrap", "--variant=minbase", include, "bookworm", str(folder)], check=True)
            draft = kept.with_suffix(".draft")
            subprocess.run(["tar", "-C", str(folder), "--numeric-owner", "-cf", str(draft), "."], check=True)
            draft.replace(kept)
        else:
            subprocess.run(["tar", "-C", str(folder), "--numeric-owner", "-xpf", str(kept)], check=True)

    def configure(self, root: Path) -> None:
        """Copy how this host reaches its package index: name server, certificates, pip's files.

        And write the one file that Debian's installer writes and debootstrap does not.
        """
        (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
        named = [Path(os.environ[name]) for name in ("SSL_CERT_FILE", "PIP_CERT") if name in os.environ]
        for path in {CERTIFICATES, Path("/etc/resolv.conf"), *PIP_SETTINGS, *named}:
            if path.is_file():
                target = root / path.relative_to("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                shutil.copy(path, target)

    def copy_project(self, target: Path) -> None:
        """Copy the files that git tracks or would track."""
        listing = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=paths.ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, listing.split("\0")):
            if (paths.ROOT / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(paths.ROOT / name, target / name)


@pytest.fixture(scope="session")
def debian() -> Debian:
    """Skips where no Debian root can be made."""
    if os.geteuid() != 0:
        pytest.skip("a Debian root needs root's rights")
    for tool in ("debootstrap", "git", "tar"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    return Debian()
