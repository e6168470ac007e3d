"""A model's answers for a terminal."""

from __future__ import annotations

from typing import Any

from edgespec.render.text import Line, Span, line

_BAR = 24


def render(text: str, result: dict[str, Any]) -> list[Line]:
    """One result of `/infer` for one text."""
    lines: list[Line] = [line(Span(text, "bold"))]
    if "scores" in result:
        given = set(result.get("labels", [result.get("label")]))
        for label, score in sorted(result["scores"].items(), key=lambda i: (-i[1], i[0])):
            bar = "█" * round(score * _BAR)
            style = "green" if label in given else "dim"
            lines.append(line("  ", Span(f"{label:<20} {score:>7.2%} ", style), Span(bar, style)))
    elif "keywords" in result:
        lines += [line("  ", Span(f"{k['score']:>6.3f}  ", "dim"), k["text"]) for k in result["keywords"]]
    else:
        vector = result["embedding"]
        head = ", ".join(f"{v:.4f}" for v in vector[:6])
        lines.append(line(f"  {len(vector)} dimensions: [{head}, ...]"))
    if result.get("truncated"):
        lines.append(line(Span(f"  read up to token {result['tokens']}; the rest was cut off", "yellow")))
    return lines
