"""Takes the picture of the explorer for docs/explore.md; needs Chromium. Run from the repository's root."""

import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, ".")
from tests.analysis.browser import Browser, find_browser

VIEW = {"model": "english", "text": "Mary saw a man in the park with a telescope", "t": 5}


def main() -> None:
    """Serve the automata that ship, open the page, take the picture."""
    path, problem = find_browser()
    if path is None:
        sys.exit(problem)
    command = [sys.executable, "-m", "ndstack", "explore", "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(path, Path(folder))
        try:
            browser.resize(1400, 1320)
            browser.open(f"{server.stdout.readline().split()[0]}#{urlencode(VIEW)}")
            browser.until("typeof view === 'object' && view && document.querySelector('#tree svg')")
            browser.picture(Path("docs/pictures/explore.png"))
        finally:
            browser.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
