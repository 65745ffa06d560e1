"""Take the README's picture of the lab: two ranks at work in notebook 2b.

python tests/browser/picture.py docs/lab.png
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from conftest import FLAGS, NAMES, PATIENCE, Lab, Notebook
from playwright.sync_api import sync_playwright


def main(target: str) -> None:
    """Run two ranks until they are half-way; save what the browser shows then."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        lab = Lab(Path(folder) / "workspace")
        try:
            path = next(filter(None, map(shutil.which, NAMES)))
            page = playwright.chromium.launch(executable_path=path, args=FLAGS.split()).new_page()
            page.set_viewport_size({"width": 1400, "height": 900})
            page.set_default_timeout(PATIENCE)
            notebook = Notebook(page, lab.url, "2b Convert a script")
            notebook.run("import numpy")
            cell = notebook.run("copies = widgets.train(")
            cell.get_by_role("progressbar").first.wait_for()
            lab.wait_until(lambda: [percent > 55 for percent in notebook.progress(cell)] == [True, True])
            notebook.show(cell)
            page.screenshot(path=target)
        finally:
            lab.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
