"""The plot of a suite: where its points are, on rows made by hand."""

from xml.etree import ElementTree

import pytest
from msgspec import structs

from quaere.api.suite_table import Row
from quaere.cli.suite_plot import draw_rows
from quaere.evaluation.intervals import Interval

SVG = "{http://www.w3.org/2000/svg}"


def row(set, method, em, seconds, differs=()):
    means = (Interval(em, em - 0.1, em + 0.1, 100),) * 2
    return Row(set, "base", method, 100, *means, 1.5, 40.2, 0.98, seconds, {"device": "a <GPU>"}, differs)


def test_a_panel_for_each_set_with_a_point_for_each_row():
    rows = [row("dev", "rag", 0.3, 60), row("dev", "cot", 0.1, 120, ("index",)), row("test", "rag", 0.5, 30)]
    dev, test = ElementTree.fromstring(draw_rows(rows)).findall(f"{SVG}g")
    rag, cot = dev.findall(f"{SVG}circle")
    # Minutes go from 0 at 48 to 2 at 420, EM from 0 at 220 to 40 % at 28.
    assert [(point.get("cx"), point.get("cy"), point.get("fill")) for point in (rag, cot)] == [
        ("234.0", "76.0", "black"),
        ("420.0", "172.0", "white"),
    ]
    _, interval, _ = dev.findall(f"{SVG}path")
    assert interval.get("d") == "M234.0 124.0V28.0"
    words = [text.text for text in dev.findall(f"{SVG}text")]
    assert {"dev: EM %", "minutes on a <GPU>", "1 base, rag", "2 base, cot *"} <= {*words}
    assert len(test.findall(f"{SVG}circle")) == 1 and test.get("transform") == "translate(0 260)"


@pytest.mark.parametrize("num_rows", [1, 40])
def test_nothing_is_outside_the_picture(num_rows):
    none = structs.replace(row("dev", "none", 0.0, 0.0), exact_match=Interval(0.0, 0.0, 0.0, 0))
    picture = ElementTree.fromstring(draw_rows([none] * num_rows))
    height = float(picture.get("height"))
    heights = [float(text.get("y")) for text in picture.iter(f"{SVG}text")]
    heights += [float(point.get("cy")) for point in picture.iter(f"{SVG}circle")]
    assert min(heights) > 0 and max(heights) < height
