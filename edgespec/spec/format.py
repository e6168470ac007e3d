"""One way to lay out a YAML file: indentation, spaces and blank lines become the same everywhere; comments, order,
quotes and what is folded stay as they were written.

The text is not written anew from what was read. It is the file's own tokens with other white space between them, and
it is only given out when it means exactly what the old one meant, event by event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from edgespec.diagnostics import EdgespecError, error
from edgespec.spec.document import Source, parse

INDENT: Final = 2
_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_OPEN: Final = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)
_CLOSE: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)
_PROPERTY: Final = (yaml.AnchorToken, yaml.TagToken)
_MARGIN: Final = (yaml.DocumentStartToken, yaml.DocumentEndToken, yaml.DirectiveToken)
_FULL_KEY: Final = (yaml.AliasToken, *_PROPERTY)
"""After these a colon would be read as part of the name."""


def format_text(source: Source) -> str:
    """The file laid out; the same text where it is already. Raises EdgespecError where it is not valid YAML (ES1xx) or
    where another layout would change what it means (ES750)."""
    text = _BREAK.sub("\n", source.text.removeprefix("\ufeff"))
    found = parse(Source(source.path, text))
    if found.value is None:
        raise EdgespecError(found.diagnostics)
    try:
        laid_out = _Layout(text).text()
    except yaml.YAMLError:  # what only the faster reader takes
        laid_out = ""
    for candidate in (laid_out, laid_out.removesuffix("\n")):  # a block scalar may end without the end of a line
        if _same(text, candidate):
            return candidate
    detail = "Its layout cannot be changed without changing what it means; it is left as it is."
    raise EdgespecError(error("ES750", "Not formatted", detail, source=source.range(0, 0)))


def _same(text: str, laid_out: str) -> bool:
    """Whether both mean the same, to this reader and to the faster one that specs are read with."""
    try:
        return parse(Source("", laid_out)).value is not None and _events(laid_out) == _events(text)
    except yaml.YAMLError:
        return False


def _events(text: str) -> list[tuple[Any, ...]]:
    """What the text means, and how its scalars are quoted; not where anything stands."""
    fields = ("anchor", "tag", "implicit", "value", "style", "flow_style", "explicit", "version", "tags")
    loader: Any = yaml.SafeLoader(text)
    found = []
    while loader.check_event():
        event = loader.get_event()
        found.append((type(event), *(getattr(event, f, None) or None for f in fields)))
    return found


@dataclass(slots=True)
class _Level:
    """An open block: the column that it had, and the one that it gets."""

    old: int
    new: int
    sequence: bool
    implied: bool = False
    """A list written at the column of the map that it is in: YAML's scanner does not announce it."""


@dataclass(slots=True)
class _Layout:
    source: str
    levels: list[_Level] = field(default_factory=list)
    flows: int = 0
    out: list[str] = field(default_factory=list)

    def text(self) -> str:
        last = 0
        before: yaml.Token | None = None
        outer = list(self.levels)
        key = False
        for token in yaml.scan(self.source, Loader=yaml.SafeLoader):
            if self._virtual(token):
                key = isinstance(token, yaml.KeyToken)
                continue
            flows = self.flows - isinstance(token, _CLOSE)
            self._enter(token, before)
            gap = self.source[last : token.start_mark.index]
            self._gap(gap, before, token, outer, self._column(token, flows, key=key))
            key = False
            if isinstance(token, yaml.StreamEndToken):
                break
            last, written = self._token(token)
            self.out.append(written)
            self.flows = flows + isinstance(token, _OPEN)
            before, outer = token, list(self.levels)
        whole = "".join(self.out)
        if isinstance(before, yaml.ScalarToken) and _keeps_end(before, self.source) and whole.endswith("\n"):
            return whole
        return whole.rstrip("\n") + "\n" if whole.strip() else ""

    # --- the structure ----------------------------------------------------------------------------------------------

    def _virtual(self, token: yaml.Token) -> bool:
        """Follow what has no characters of its own."""
        if isinstance(token, (yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken)):
            self._push(token.start_mark.column, sequence=isinstance(token, yaml.BlockSequenceStartToken))
            return True
        if isinstance(token, yaml.BlockEndToken):
            self._leave_implied()
            self.levels.pop()
            return True
        if isinstance(token, yaml.KeyToken):
            self._leave_implied()
            return bool(token.start_mark.index == token.end_mark.index or self.source[token.start_mark.index] != "?")
        return isinstance(token, yaml.StreamStartToken)

    def _enter(self, token: yaml.Token, before: yaml.Token | None) -> None:
        if self.flows:
            return
        if isinstance(token, yaml.ValueToken) and self.levels and self.levels[-1].implied:
            self._leave_implied()
        if isinstance(token, yaml.BlockEntryToken) and not self.levels[-1].sequence:
            self._push(self.levels[-1].old, sequence=True, implied=True)

    def _push(self, old: int, *, sequence: bool, implied: bool = False) -> None:
        new = self.levels[-1].new + INDENT if self.levels else 0
        self.levels.append(_Level(old, new, sequence, implied))

    def _leave_implied(self) -> None:
        if not self.flows and self.levels and self.levels[-1].implied:
            self.levels.pop()

    def _column(self, token: yaml.Token, flows: int, *, key: bool) -> int:
        """Where the token goes if it is the first of its line."""
        base = self.levels[-1].new if self.levels else 0
        if isinstance(token, (*_MARGIN, yaml.StreamEndToken)):
            return 0
        if self.flows:
            return base + INDENT * flows
        if key or isinstance(token, (yaml.BlockEntryToken, yaml.KeyToken, yaml.ValueToken)):
            return base
        return base + INDENT if self.levels else 0

    # --- white space ------------------------------------------------------------------------------------------------

    def _gap(self, gap: str, before: yaml.Token | None, token: yaml.Token, outer: list[_Level], column: int) -> None:
        first, *lines = gap.split("\n")
        if not lines and before is not None and not first.strip():
            self.out.append(_between(before, token, first))
            return
        if before is None:
            lines = [first, *lines]
        elif first.strip():
            self.out.append(_remark(first))
        written = list(self._comments(lines[:-1], token, outer, column))
        end = lines[-1] if lines else ""
        if end.strip():  # a comment that the end of the file follows
            written += self._comments([end], token, outer, column)
        if before is not None or self.out:
            self.out.append("\n")
        while before is None and written and not written[0]:
            written.pop(0)
        self.out += [f"{row}\n" for row in written]
        self.out.append(" " * column)

    def _comments(self, lines: list[str], token: yaml.Token, outer: list[_Level], column: int) -> Iterator[str]:
        """Lines of their own; of several empty ones one stays."""
        blank = False
        for row in lines:
            text = row.strip()
            if not text:
                if not blank:
                    yield ""
                blank = True
                continue
            blank = False
            at = len(row.expandtabs(8)) - len(row.expandtabs(8).lstrip())
            yield " " * self._comment_column(at, token, outer, column) + text

    def _comment_column(self, at: int, token: yaml.Token, outer: list[_Level], column: int) -> int:
        """With the block that it stood in: the innermost one, of what ends here or begins here, that it is not left
        of."""
        if self.flows:
            return column + (INDENT if isinstance(token, _CLOSE) else 0)
        fits = [level.new for level in (*outer, *self.levels) if level.old <= at]
        return max(fits, default=column)

    # --- tokens -----------------------------------------------------------------------------------------------------

    def _token(self, token: yaml.Token) -> tuple[int, str]:
        """Where the token's characters end, and how they are written."""
        start, end = token.start_mark.index, token.end_mark.index
        written = self.source[start:end]
        if not isinstance(token, yaml.ScalarToken):
            return end, written.rstrip()
        if token.style in ("|", ">"):
            return self._block(start, end)
        if "\n" in written:
            return end, self._folded(token, written)
        return end, written

    def _block(self, start: int, end: int) -> tuple[int, str]:
        """A block scalar moves as a whole: what its lines are indented by counts."""
        if self.source[end : end + 1] not in ("", "\n"):  # its mark may lie within the next line's indentation
            end = start + len(self.source[start:end].rstrip(" "))
        head, *lines = self.source[start:end].split("\n")
        level = self.levels[-1] if self.levels else _Level(0, 0, sequence=False)
        by = level.new - level.old
        inner = next((len(r) - len(r.lstrip(" ")) for r in lines if r.strip()), 0)
        if "+" not in head.split("#")[0]:  # as in _keeps_end
            while lines and not lines[-1].strip() and len(lines[-1]) <= inner:
                end -= len(lines.pop()) + 1
        moved = []
        for row in lines:
            own = len(row) - len(row.lstrip(" "))
            moved.append(" " * max(0, own + by) + row[own:] if row.strip() or own > inner else "")
        kept = "\n".join([_spaced(head), *moved])
        if lines and not lines[-1]:  # the end of its last line begins the gap behind it
            kept = kept.removesuffix("\n")
            end -= 1
        return end, kept

    def _folded(self, token: yaml.ScalarToken, written: str) -> str:
        """A scalar over several lines: how far they are indented does not count, but it shall look like it did."""
        level = self.levels[-1] if self.levels else _Level(0, 0, sequence=False)
        least = (level.new + INDENT if self.levels else 0) + INDENT * self.flows
        head, *lines = written.split("\n")
        moved = []
        for row in lines:
            text = row.lstrip(" \t")
            own = len(row) - len(text)
            moved.append(" " * max(least, own + level.new - level.old) + text if text else "")
        return "\n".join([head.rstrip() if token.plain else head, *moved])


def _keeps_end(token: yaml.ScalarToken, source: str) -> bool:
    """Whether the empty lines at its end belong to it."""
    head = source[token.start_mark.index : token.end_mark.index].split("\n")[0].split("#")[0]
    return token.style in ("|", ">") and "+" in head


def _between(before: yaml.Token, token: yaml.Token, gap: str) -> str:
    """The space between two tokens of a line."""
    if isinstance(before, yaml.ValueToken) and not isinstance(token, yaml.StreamEndToken):
        return " "  # also before a bracket: not every reader takes `{a:}`
    if isinstance(before, _OPEN) or isinstance(token, (*_CLOSE, yaml.FlowEntryToken)):
        return ""
    if isinstance(token, yaml.ValueToken):
        return " " if isinstance(before, _FULL_KEY) else ""
    if isinstance(token, yaml.StreamEndToken) or (isinstance(before, _CLOSE) and not gap):
        return ""
    return " "


def _remark(gap: str) -> str:
    """A comment behind something, as far behind it as it was."""
    text = gap.strip()
    space = gap[: gap.index("#")].expandtabs(8)
    return " " * max(2, len(space)) + text


def _spaced(head: str) -> str:
    """The first line of a block scalar: its indicators, a comment perhaps."""
    return re.sub(r"\s+#", "  #", head.rstrip(), count=1)
