"""Links of the built pages: those within the site must lead somewhere, the others are listed."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """A page's links and the ids that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the id and the link of an element."""
        del tag
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def read_pages(site: Path) -> dict[Path, Page]:
    """Return the pages of a site by path."""
    paths = sorted(site.rglob("*.html"))
    return {path.resolve(): Page(path.read_text("utf-8")) for path in paths}


def broken(site: Path) -> Iterator[str]:
    """Return a line for each link within a site that leads to no file, or to no id of its page."""
    pages = read_pages(site)
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            missing = not target.exists()
            anchor = unquote(parts.fragment)
            if missing or (anchor and target in pages and anchor not in pages[target].ids):
                yield f"{path.relative_to(site.resolve())}: {link} leads nowhere"


def external(site: Path) -> list[str]:
    """Return the addresses outside a site that its pages link to, sorted."""
    links = {link for page in read_pages(site).values() for link in page.links}
    return sorted(link for link in links if urlsplit(link).scheme in ("http", "https"))
