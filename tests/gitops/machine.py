"""A team's machines in one folder: a bare repository that all push to, an account, developers' clones, CI runners.

The account is a local edge that nobody's project owns: staging and production reach it as `target: cloudflare`, by its
base URLs, so each runner may start from a fresh clone and an empty cache, as runners do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from edgespec.assets import local_edge_sources
from edgespec.build.cache import default_cache_dir
from edgespec.local_edge.edge import LocalEdge

REPOSITORY: Final = Path(__file__).parents[2] / "specs" / "gitops"
_IGNORED: Final = ".edgespec\n*.plan.json\n"


class FailedError(AssertionError):
    """A command ended otherwise than it should."""


class Team:
    """`show` is told every command and what it printed."""

    def __init__(self, folder: Path, show: Callable[[str], None]) -> None:
        self.folder = folder
        self.show = show
        self.origin = folder / "origin.git"
        self.edge = LocalEdge(
            folder / "account",
            port=0,
            sources=local_edge_sources(),
            cache_dir=default_cache_dir(os.environ),
            progress=lambda _: None,
        )
        self._machines = 0
        self.builder: dict[str, str] = {}

    def start(self) -> Clone:
        """The account is up, and main has the repository's first commit: a developer's clone of it."""
        endpoint = self.edge.ensure()
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "EDGESPEC_", "CLOUDFLARE_"))},
            "CLOUDFLARE_ACCOUNT_ID": endpoint.account_id,
            "CLOUDFLARE_API_TOKEN": endpoint.api_token.reveal(),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_NAME": "Mia" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "mia@shop.example" for who in ("AUTHOR", "COMMITTER")},
        }
        command(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(self.origin)], self.environ)
        mia = self.machine("mia")
        urls = f"api_base_url: {endpoint.api_base_url}, s3_base_url: {endpoint.s3_base_url}"
        for path in sorted(REPOSITORY.rglob("*")):
            name = path.relative_to(REPOSITORY)
            if path.is_file() and name.parts[0] not in (".edgespec", "README.md"):
                (mia.root / name).parent.mkdir(parents=True, exist_ok=True)
                (mia.root / name).write_bytes(path.read_bytes())
        # A real repository has no base URLs: these lead from Cloudflare to the account here.
        mia.edit("edgespec.yaml", r'(account: "\$\{CLOUDFLARE_ACCOUNT_ID\}")', rf"\1, {urls}", count=0)
        (mia.root / ".gitignore").write_text(_IGNORED)
        (mia.root / "keys" / "release.pub").write_bytes(self._signing_key())
        mia.commit("Two models, staging and production")
        mia.git("push", "--quiet", "origin", "main")
        return mia

    def _signing_key(self) -> bytes:
        """Makes a key that only the builder has; its public half."""
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.builder = {"EDGESPEC_SIGNING_KEY": pem.decode()}
        return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def machine(self, name: str, *, cache: str | None = None) -> Clone:
        """A fresh clone on a machine of this name; `cache` is one that outlives it. `builder` is the one that builds
        and signs."""
        self._machines += 1
        root = self.folder / f"{self._machines:02}-{name}"
        command(["git", "clone", "--quiet", str(self.origin), str(root)], self.environ)
        kept = self.folder / "caches" / (cache or f"{self._machines:02}-{name}")
        secrets = self.builder if cache == "builder" else {}
        return Clone(self, root, {**self.environ, **secrets, "EDGESPEC_CACHE_DIR": str(kept)})

    def close(self) -> None:
        self.edge.down()


class Clone:
    """A work tree and the machine that it is on."""

    def __init__(self, team: Team, root: Path, environ: Mapping[str, str]) -> None:
        self.team = team
        self.root = root
        self.environ = environ

    def git(self, *arguments: str) -> str:
        return command(["git", *arguments], self.environ, self.root).stdout

    def branch(self, name: str) -> None:
        self.git("switch", "--quiet", "--create", name, "origin/main")

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def merge(self, branch: str) -> None:
        """As the forge does when a pull request is merged: main moves, and nobody's branch is left behind."""
        self.git("fetch", "--quiet", "origin")
        self.git("switch", "--quiet", "--detach", "origin/main")
        self.git("merge", "--quiet", "--no-ff", "--message", f"Merge {branch}", branch)
        self.git("push", "--quiet", "origin", "HEAD:main")
        self.git("fetch", "--quiet", "origin")

    def edit(self, name: str, pattern: str, replacement: str, count: int = 1) -> None:
        path = self.root / name
        text, found = re.subn(pattern, replacement, path.read_text(), count=count)
        if not found:
            raise FailedError(f"{name} has nothing like {pattern!r}")
        path.write_text(text)

    def edgespec(self, *arguments: str, code: int = 0, quiet: bool = False) -> str:
        """What the command printed as its result; raises unless it ended with `code`."""
        shown = " ".join(f"'{a}'" if " " in a else a for a in arguments)
        ran = command([str(Path(sys.executable).with_name("edgespec")), *arguments], self.environ, self.root, code=code)
        if not quiet:
            said = ran.stdout + (ran.stderr if code else "")
            self.team.show(f"$ edgespec {shown}\n{said}".rstrip() + "\n")
        return ran.stdout + (ran.stderr if code else "")

    def label(self, text: str, environment: str) -> str:
        """What the deployed support-intent calls `text`."""
        arguments = ("infer", "support-intent", text, "--env", environment, "--json")
        return str(json.loads(self.edgespec(*arguments, quiet=True))["results"][0]["label"])


def command(
    arguments: list[str], environ: Mapping[str, str], folder: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(arguments, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False)
    if ran.returncode != code:
        detail = f"{' '.join(arguments)}: exit code {ran.returncode}, not {code}\n{ran.stdout}{ran.stderr}"
        raise FailedError(detail)
    return ran
