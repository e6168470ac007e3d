"""Data files read completely and checked before anything is built or measured. Formats go by the name's suffix."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from edgespec.build.dataset.csv_rows import read_csv
from edgespec.build.dataset.examples import (
    AnyExample,
    Conversation,
    Example,
    Labelled,
    Task,
    Unlabelled,
)
from edgespec.build.dataset.facts import rare_labels
from edgespec.build.dataset.fields import Fields
from edgespec.build.dataset.forms import CONVERSATIONS, Form, form_of, texts_form
from edgespec.build.dataset.json_lines import read_json_lines, read_plain_text
from edgespec.build.dataset.parquet import read_parquet
from edgespec.build.dataset.rows import Row, Rows, decode_text, foreign, listed, suffix_of
from edgespec.build.problems import caution, problem
from edgespec.diagnostics import Checked, Diagnostic, Diagnostics, SourceRange
from edgespec.spec.models import TextClassification

MAX_REPORTED: Final = 20
E = TypeVar("E", bound=AnyExample)


def read_examples(data: bytes, path: str, task: Task, *, training: bool = False) -> Checked[tuple[Example, ...]]:
    """The examples with every problem of the file, the first 20 of them in full.

    `path` names the format and is for messages. `training` also asks that every label can be learned, and warns of
    labels that hardly can.
    """
    form = form_of(task)
    found, problems, cautions = _read(data, path, form, lambda fields: fields.example(task))
    if training and isinstance(task, TextClassification) and not problems:
        problems = _unlearnable(found, path, task)
        cautions += [] if problems else rare_labels(found, path, task)
    return _checked(found, problems, cautions, path)


def read_partly_labelled(
    data: bytes, path: str, task: TextClassification
) -> Checked[tuple[Labelled | Unlabelled, ...]]:
    """Texts to distil from: with the task's labels where somebody has given them; `.txt` has one text a line."""
    form = form_of(task, labels_optional=True)
    return _checked(*_read(data, path, form, lambda fields: fields.partly(task), plain=True), path)


def read_conversations(data: bytes, path: str) -> Checked[tuple[Conversation, ...]]:
    """`messages` in ms-swift's shape, for a causal language model."""
    return _checked(*_read(data, path, CONVERSATIONS, Fields.conversation), path)


def read_texts(data: bytes, path: str) -> Checked[tuple[str, ...]]:
    """Every text of a file of any kind and format, in order, repeated ones too; labels are not looked at. A `.txt`
    file has one text a line."""
    rows = _rows(data, path, texts_form(("text",)), plain=True)
    problems = list(rows.problems)
    texts: list[str] = []
    for row in rows.rows if _header_fits(rows, texts_form, problems) else ():
        form = texts_form(tuple(row.values))
        fields = Fields(row)
        if rows.columns is not None or _columns(row, form, fields.problems, rows.suffix):
            texts += fields.texts(form.wanted_of(row.values)) if _complete(row, form, fields, rows.suffix) else ()
        problems += fields.problems
    if not texts and not problems:
        problems.append(_empty(path, rows.suffix, texts_form(("text",))))
    return _checked(texts, problems, [], path)


T = TypeVar("T")


def _checked(
    found: Sequence[T], problems: Sequence[Diagnostic], cautions: Sequence[Diagnostic], path: str
) -> Checked[tuple[T, ...]]:
    diagnostics = _shorten(problems, path) + _shorten(cautions, path)
    return Checked(None if problems else tuple(found), Diagnostics(tuple(diagnostics)))


def _read(
    data: bytes, path: str, form: Form, convert: Callable[[Fields], E], *, plain: bool = False
) -> tuple[list[E], list[Diagnostic], list[Diagnostic]]:
    """The examples, the problems and the cautions."""
    rows = _rows(data, path, form, plain=plain)
    problems, cautions, found = list(rows.problems), [], []
    seen: dict[tuple[str, ...], E] = {}
    for row in rows.rows if _header_fits(rows, lambda _: form, problems) else ():
        fields = Fields(row)
        if rows.columns is None and not _columns(row, form, fields.problems, rows.suffix):
            problems += fields.problems
            continue
        example = convert(fields) if _complete(row, form, fields, rows.suffix) else None
        problems += fields.problems
        if example is None or fields.problems:
            continue
        found.append(example)
        first = seen.setdefault(example.key, example)
        if first is not example:
            other = "" if first == example else " with another answer"
            cautions.append(caution("ES527", f"the same text is on {rows.noun} {first.line}{other}.", row.at()))
    if not found and not problems:
        problems.append(_empty(path, rows.suffix, form))
    problems.sort(key=lambda d: d.source.line if d.source else 0)
    return found, problems, cautions


def _empty(path: str, suffix: str, form: Form) -> Diagnostic:
    return problem("ES520", f"{path} is empty. {form.shown(suffix)}", SourceRange(path, 1, 1))


def _rows(data: bytes, path: str, form: Form, *, plain: bool) -> Rows:
    suffix = suffix_of(path)
    if (why := foreign(path)) is not None:
        return Rows(suffix, problems=[problem("ES529", why, SourceRange(path, 1, 1))])
    if suffix == ".parquet":
        return read_parquet(data, path)
    text = decode_text(data, path)
    if isinstance(text, Diagnostic):
        return Rows(suffix, problems=[text])
    if suffix == ".csv":
        return read_csv(text, path, form.shown(suffix))
    if suffix == ".txt" and plain:
        return read_plain_text(text, path)
    return read_json_lines(text, path, form.shown(".jsonl"))


# --- columns


def _header_fits(rows: Rows, form_for: Callable[[Sequence[str]], Form], problems: list[Diagnostic]) -> bool:
    """Whether a file with a header has the columns; what is wrong with them is said once and not for every row."""
    if rows.columns is None or rows.header is None:
        return True
    wrong = [] if rows.broken else _column_problems(rows.columns, rows.header, form_for(rows.columns), rows.suffix)
    problems += wrong
    return not wrong and not rows.broken


def _columns(row: Row, form: Form, problems: list[Diagnostic], suffix: str) -> bool:
    """The same for a row that names its columns itself."""
    problems += _column_problems(tuple(row.values), row, form, suffix)
    return not problems


def _column_problems(columns: Sequence[str], where: Row, form: Form, suffix: str) -> list[Diagnostic]:
    wanted, allowed = form.wanted_of(columns), form.allowed_of(columns)
    unknown = [k for k in columns if k not in allowed]
    missing = [k for k in wanted if k not in columns]
    found = []
    for key in unknown:
        close = difflib.get_close_matches(key, missing or allowed, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        detail = f"{key!r} is not known in an example of {form.name}.{hint} {form.shown(suffix)}"
        found.append(problem("ES523", detail, where.at(key)))
    if missing and not unknown:
        found.append(problem("ES522", f"{listed(missing)} is missing. {form.shown(suffix)}", where.at()))
    return found


def _complete(row: Row, form: Form, fields: Fields, suffix: str) -> bool:
    """Whether the row has a value in every column that it needs: those of a table may be empty."""
    missing = [k for k in form.wanted_of(row.values) if k not in row.values]
    if missing and not fields.problems:
        detail = f"{listed(missing)} is missing. {form.shown(suffix)}"
        fields.problems.append(problem("ES522", detail, row.at(missing[0])))
    return not missing


# --- the whole file


def _unlearnable(found: Sequence[Example], path: str, task: TextClassification) -> list[Diagnostic]:
    counts = Counter(label for e in found if isinstance(e, Labelled) for label in e.labels)
    place = SourceRange(path, 1, 1)
    out = []
    if absent := [label for label in task.labels if not counts[label]]:
        detail = f"{path} has no example of {', '.join(absent)}. Add some, or take the label out of the task."
        out.append(problem("ES526", detail, place))
    if task.multi_label and (always := [label for label in task.labels if counts[label] == len(found)]):
        detail = f"every example of {path} is labelled {', '.join(always)}: there is nothing to tell it by. "
        out.append(problem("ES526", detail + 'Add examples without it (`"labels": []` is fine).', place))
    if len(found) < len(task.labels):
        detail = f"{path} has {len(found)} examples for {len(task.labels)} labels. Ten of each are a start."
        out.append(problem("ES526", detail, place))
    return out


def _shorten(problems: Sequence[Diagnostic], path: str) -> list[Diagnostic]:
    kept = list(problems[:MAX_REPORTED])
    if rest := len(problems) - len(kept):
        more = f"{rest} more lines of {path} have problems; repair these first."
        kept.append(Diagnostic(kept[0].severity, "ES528", problem("ES528", "").summary, more))
    return kept
