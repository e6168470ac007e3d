"""The types that every document's models share: names, paths, a strict base."""

# Annotations are not postponed here: pydantic would evaluate each of them from its text at every start.

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints

NAME: Final = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
ENVIRONMENT: Final = r"^[a-z][a-z0-9]*$"
ACCOUNT: Final = r"^[0-9a-f]{32}$"
BUCKET: Final = r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$"
KEY_PREFIX: Final = r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$"
SHA256: Final = r"^[0-9a-f]{64}$"
PATTERNS: Final = {
    NAME: "must be lower-case letters, digits and hyphens, starting with a letter and not ending with a hyphen",
    ENVIRONMENT: "must be lower-case letters and digits, starting with a letter",
    ACCOUNT: "must be an account id: 32 lower-case hexadecimal digits",
    BUCKET: "must be 3 to 63 lower-case letters, digits and hyphens, with a letter or digit first and last",
    SHA256: "must be a SHA-256: 64 lower-case hexadecimal digits",
    KEY_PREFIX: "must be letters, digits, `.`, `_` and `-`, with single slashes between them",
}
"""What each pattern means, for people."""
Name = Annotated[str, StringConstraints(pattern=NAME, min_length=1, max_length=40)]
ProjectName = Annotated[str, StringConstraints(pattern=NAME, min_length=1, max_length=24)]
EnvironmentName = Annotated[str, StringConstraints(pattern=ENVIRONMENT, min_length=1, max_length=16)]
ShardName = Annotated[str, StringConstraints(pattern=NAME, min_length=1, max_length=20)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=64, strip_whitespace=True)]


def unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = sorted({str(v) for v in values if values.count(v) > 1})
    if twice:
        raise ValueError(f"listed more than once: {', '.join(twice)}")
    return values


def _relative(path: str) -> str:
    if path.startswith("/") or re.match(r"^[A-Za-z]:", path) or ".." in path.split("/"):
        raise ValueError("must be a path inside the project, relative to edgespec.yaml, without '..'")
    return path


def whole(value: object) -> object:
    """A whole number among literals, which pydantic does not read from text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


RelativePath = Annotated[str, StringConstraints(min_length=1), AfterValidator(_relative)]
Whole = BeforeValidator(whole)


class Strict(BaseModel):
    """Unknown keys are errors; values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)
