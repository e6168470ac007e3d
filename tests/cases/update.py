"""Rewrite what the cases expect: `scripts/update-cases [NAME...]`. Review the difference as you would review code."""

from __future__ import annotations

import sys

from tests.cases import CASES


def main(wanted: list[str]) -> int:
    changed = 0
    for cases in CASES:
        for name in cases.names():
            if wanted and name not in wanted:
                continue
            for file, content in cases.expected_files(name).items():
                path = cases.FOLDER / name / file
                if not path.exists() or path.read_text(encoding="utf-8") != content:
                    path.write_text(content, encoding="utf-8")
                    print(path.relative_to(cases.FOLDER.parent))
                    changed += 1
    print(f"{changed} files changed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
