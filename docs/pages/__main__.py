"""Builds the site into ``build/docs``, checks its links and serves it on this machine.

``python3 dev.py docs`` calls this module.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.pages.links import broken, external

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "docs"
# Warnings are errors, all of them are shown, and a name that leads nowhere is one.
OPTIONS = ("-W", "--keep-going", "--nitpicky", "--quiet", "-b", "html")


def build(fresh: bool) -> bool:
    """Build the site; return True if it has neither a warning nor a broken link.

    Args:
        fresh: True to read every page anew, as after a change of the code.
    """
    again = ["--fresh-env"] if fresh else []
    doctrees = ROOT / "build" / "doctrees"
    failed = build_main([*OPTIONS, *again, "-d", str(doctrees), str(ROOT / "docs"), str(SITE)])
    lines = list(broken(SITE))
    print("\n".join(lines) or "no broken links", flush=True)
    return not failed and not lines


def serve(port: int) -> None:
    """Serve the site to this machine until Ctrl-C."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="dev.py docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="build anew and check, do not serve")
    parser.add_argument("--no-serve", action="store_true", help="build and check, do not serve")
    parser.add_argument("--external", action="store_true", help="list the links to other sites")
    parser.add_argument("--port", type=int, default=8000, help="port to serve at; 0 for a free one")
    chosen = parser.parse_args(arguments)
    sound = build(fresh=chosen.check)
    if chosen.external:
        print("\n".join(external(SITE)))
    elif not (chosen.check or chosen.no_serve):
        serve(chosen.port)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
