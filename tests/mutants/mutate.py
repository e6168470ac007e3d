"""Mutants of a module's functions, by mutmut's operators, each made active by giving the real function other code.

mutmut's own runner starts pytest once a mutant and leaves properties out; this needs neither copies of the source nor
trampolines in it. Upper and lower case of strings are left out: `XX` around them tells the same.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import Mutation, MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str
    function: str
    """`name` or `Class.name`."""
    line: int
    original: str
    """Source of the whole function."""
    mutated: str

    @property
    def id(self) -> str:
        """The same as long as the function is the same."""
        text = "\0".join((self.file, self.function, self.original, self.mutated))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")

    def diff(self) -> list[str]:
        lines = difflib.unified_diff(self.original.splitlines(), self.mutated.splitlines(), n=0, lineterm="")
        return [line for line in lines if line[:3] not in ("---", "+++") and not line.startswith("@@")]


def mutants_of(file: str) -> list[Mutant]:
    """Of all functions of `file`, in their order, without those that compile to the same code."""
    # mutmut leaves decorated functions out; a property's function is reached through it all the same.
    source = Path(file).read_text(encoding="utf-8").replace("    @property\n", "")
    wrapper = MetadataWrapper(cst.parse_module(source))
    visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
    module = wrapper.visit(visitor)
    positions = wrapper.resolve(PositionProvider)
    inside: dict[cst.FunctionDef, list[Mutation]] = {}
    for mutation in visitor.mutations:
        outer = mutation.contained_by_top_level_function
        if isinstance(outer, cst.FunctionDef) and not _is_case_only(mutation):
            inside.setdefault(outer, []).append(mutation)
    found: dict[str, Mutant] = {}
    for name, function in _functions(module.body):
        original = _source(function)
        same = _compiled(original)
        for mutation in inside.get(function, ()):
            mutated = _source(
                cst.ensure_type(function.deep_replace(mutation.original_node, mutation.mutated_node), cst.FunctionDef)
            )
            mutant = Mutant(file, name, _line(positions, mutation, function), original, mutated)
            if _compiled(mutated) != same:
                found[mutant.id] = mutant
    return list(found.values())


def _line(positions: Any, mutation: Mutation, function: cst.FunctionDef) -> int:
    place = positions.get(mutation.original_node) or positions.get(function)
    return int(place.start.line) if place else 0


def _functions(body: Sequence[cst.CSTNode], owner: str = "") -> Iterator[tuple[str, cst.FunctionDef]]:
    for node in body:
        if isinstance(node, cst.FunctionDef):
            yield f"{owner}{node.name.value}", node
        elif isinstance(node, cst.ClassDef):
            yield from _functions(node.body.body, f"{node.name.value}.")


def _source(function: cst.FunctionDef) -> str:
    return cst.Module([function.with_changes(leading_lines=())]).code


def _is_case_only(mutation: Mutation) -> bool:
    old, new = mutation.original_node, mutation.mutated_node
    return (
        isinstance(old, cst.SimpleString)
        and isinstance(new, cst.SimpleString)
        and old.value.lower() == new.value.lower()
    )


def _compiled(source: str) -> tuple[object, ...]:
    """The function's code, and what its defaults are."""
    tree = ast.parse(source)
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    defaults = ast.dump(function.args)
    module = compile(f"from __future__ import annotations\n{source}", "<mutant>", "exec")
    (code,) = (c for c in module.co_consts if isinstance(c, CodeType))
    return code, defaults


def real_function(mutant: Mutant) -> FunctionType:
    """The very function that tests call."""
    holder: Any = importlib.import_module(mutant.module)
    *owner, name = mutant.function.split(".")
    for part in owner:
        holder = getattr(holder, part)
    found = vars(holder)[name]
    found = found.fget if isinstance(found, property) else found
    assert isinstance(found, FunctionType), mutant
    return found


def activate(mutant: Mutant) -> None:
    """From now on this process runs the mutant, whoever holds the function."""
    function = real_function(mutant)
    code = compile(f"from __future__ import annotations\n{mutant.mutated}", "<mutant>", "exec")
    scope = dict(function.__globals__)
    exec(code, scope)
    made = scope[function.__name__]
    function.__code__, function.__defaults__, function.__kwdefaults__ = (
        made.__code__, made.__defaults__, made.__kwdefaults__,
    )  # fmt: skip
