"""Passwords of the class list, as scrypt hashes. The launcher makes random passwords, and the hub checks them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

COST, BLOCK, PARALLEL = 2**14, 8, 1  # scrypt's N, r, p: 16 MB and some hundredths of a second for each check
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # without characters that look alike: l and 1, o and 0


def new_password() -> str:
    """Return four groups of four letters and digits: 80 bits, too many to guess over the network."""
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(4)) for _ in range(4))


def hash_password(password: str) -> str:
    """Return `N$r$p$salt$hash`, with salt and hash in hexadecimal digits."""
    salt = secrets.token_bytes(16)
    return "$".join([str(COST), str(BLOCK), str(PARALLEL), salt.hex(), _scrypt(password, salt, COST, BLOCK, PARALLEL)])


def matches(password: str, stored: str) -> bool:
    """Return whether `stored` is the hash of `password`, in the same time for a wrong one."""
    cost, block, parallel, salt, hashed = stored.split("$")
    computed = _scrypt(password, bytes.fromhex(salt), int(cost), int(block), int(parallel))
    return hmac.compare_digest(computed, hashed)


def accepts(members: Mapping[str, Mapping[str, str]], name: str, password: str) -> bool:
    """Return whether the class has this name with this password. An unknown name takes as long as a wrong password.

    `members`: name → role and `scrypt`, as in class.json. A member without a hash can't log in by password.
    """
    stored = members.get(name, {}).get("scrypt")
    right = matches(password, stored or hash_password(new_password()))
    return right and stored is not None


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> str:
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=parallel, dklen=32).hex()
