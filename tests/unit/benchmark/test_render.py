from __future__ import annotations

from xml.etree import ElementTree

from edgespec.measurement import LoadMemory
from edgespec.render.bench import render
from edgespec.render.bench_plot import plot
from edgespec.render.text import plain
from tests.unit.benchmark.documents import document

SVG = "{http://www.w3.org/2000/svg}"


def test_table() -> None:
    text = plain(render(document()))
    rows = [row.split() for row in text.split("\n")]
    assert ["8", "edge", "2.00", "3.00", "3.00x", "4.00", "12.0", "20"] in rows
    assert ["onnxruntime", "6.00", "9.00", "1.00x", "8.00", "18.0", "20"] in rows
    assert ["native", "1.50", "2.00", "6.00x", "3.50", "11.0", "20"] in rows
    assert ["own,", "4-14", "edge", "3.00", "4.50", "3.00x", "5.00", "13.5", "20"] in rows
    assert ["edge", "30.0", "60.0", "20.0", "21.0", "3"] in rows
    assert ["edge", "90.0", "83.0", "6.0", "1.0", "23.0"] in rows
    assert "left out: other: there is none" in text


def test_memory_of_a_load_is_below_that_after_it() -> None:
    made = document()
    load = LoadMemory(wasm=83_000_000, heap=4_000_000, buffers=24_000_000, total=111_000_000)
    engines = tuple(e.model_copy(update={"load_memory": load}) for e in made.engines[:1])
    rows = [row.split() for row in plain(render(made.model_copy(update={"engines": engines}))).split("\n")]
    at = rows.index(["edge", "90.0", "83.0", "6.0", "1.0", "23.0"])
    assert rows[at + 1] == ["at", "load", "111.0", "83.0", "4.0", "24.0"]


def test_without_onnxruntime_the_first_engine_is_the_measure() -> None:
    made = document()
    alone = made.model_copy(update={"engines": made.engines[:1], "native": None})
    assert "to edge" in plain(render(alone)) and "1.00x" in plain(render(alone))


def test_plot() -> None:
    text = plot(document(name="a<b"))
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg" and root.get("aria-label") == "a<b: CPU of one request"
    assert len(root.findall(f"{SVG}polyline")) == 3
    assert len(root.findall(f"{SVG}circle")) == 6  # own texts are no length
    words = [t.text for t in root.iter(f"{SVG}text")]
    assert {"edge", "onnxruntime", "native", "free plan: 10 ms", "8", "16"} <= set(words)
    assert "prefers-color-scheme:dark" in text and "http://" not in text.replace("http://www.w3.org", "")
    assert plot(document(name="a<b")) == text


def test_plot_stays_inside_whatever_the_figures_are() -> None:
    for scale in (0.001, 1, 1000):
        root = ElementTree.fromstring(plot(document(scale=scale)))
        for circle in root.findall(f"{SVG}circle"):
            assert 0 <= float(circle.get("cx", "")) <= 640 and 0 <= float(circle.get("cy", "")) <= 360
