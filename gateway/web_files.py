"""The files that the demo serves: the page, and the project's own documents to try it on."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from schema.errors import SettingInvalid

_PROJECT = Path(__file__).resolve().parent.parent
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}
# Short enough for every file system: one that is asked for a longer name answers with an error of its own.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_HEADING = re.compile(r"^#\s+(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file as it is now."""

    content: bytes
    media_type: str

    @property
    def etag(self) -> str:
        """Changes with the content."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'


@dataclass(frozen=True, slots=True)
class Document:
    """A text of the project."""

    name: str
    title: str
    text: str


class WebFiles:
    """Reads from disk each time, so that a change shows at the next reload."""

    def __init__(self, project: Path = _PROJECT) -> None:
        self._project = project
        self._page = project / "web-demo"
        if not (self._page / "index.html").is_file():
            raise SettingInvalid(
                f"OUTLIVE_DEMO serves the page from {self._page}, and it is not there; "
                "start the gateway from a checkout of the project, or leave OUTLIVE_DEMO off"
            )

    def page_file(self, name: str) -> WebFile | None:
        """A file of the page, if there is one of this name that a browser may have."""
        path = self._page / name
        media_type = _TYPES.get(path.suffix)
        if media_type is None or not _NAME.fullmatch(name) or not path.is_file():
            return None
        return WebFile(path.read_bytes(), media_type)

    def documents(self) -> list[Document]:
        """README first, then by name."""
        paths = [self._project / "README.md", *sorted((self._project / "docs").glob("*.md"))]
        paths += [self._project / name for name in ("CHANGELOG.md", "LICENSE")]
        return [_document(path) for path in paths if path.is_file()]

    def document(self, name: str) -> Document | None:
        """One of them."""
        return next((document for document in self.documents() if document.name == name), None)


def _document(path: Path) -> Document:
    text = path.read_text("utf-8")
    heading = _HEADING.search(text) if path.suffix == ".md" else None
    return Document(path.name, heading[1] if heading else path.name, text)
