"""`spec/<name>/`: a project with something wrong -> what `edgespec validate` says of it.

`input.yaml` is the project's only spec; without an `edgespec.yaml` the project is the least possible one. A first line
`# environment: NAME` in edgespec.yaml chooses that environment.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from edgespec import operations
from edgespec.diagnostics import EdgespecError
from edgespec.render import diagnostics
from edgespec.render.text import plain

FOLDER = Path(__file__).parent / "spec"
EXPECTED = "expected.txt"
PROJECT = "apiVersion: edgespec/v1\nkind: Project\nname: shop\nspecs: [input.yaml]\n"
_CHOICE = "# environment: "


def names() -> list[str]:
    return sorted(p.name for p in FOLDER.iterdir() if p.is_dir())


def expected_files(name: str) -> dict[str, str]:
    """File name -> content, as the code has it now."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary, "project").resolve()
        shutil.copytree(FOLDER / name, root, ignore=shutil.ignore_patterns(EXPECTED))
        project = root / "edgespec.yaml"
        if not project.exists():
            project.write_text(PROJECT, encoding="utf-8")
        first = project.read_bytes().partition(b"\n")[0].decode("utf-8", "replace")
        environment = first.removeprefix(_CHOICE).strip() if first.startswith(_CHOICE) else None
        environ = {"EDGESPEC_CACHE_DIR": str(Path(temporary, "cache"))}
        try:
            _, found = operations.validate(root, environment, environ)
        except EdgespecError as e:
            found = e.diagnostics
        text = plain(diagnostics.render(found)) or "valid"
    return {EXPECTED: "".join(f"{row.rstrip()}\n" for row in text.replace(str(root), "<project>").split("\n"))}
