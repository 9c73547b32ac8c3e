"""The page says what came out, stands alone, and can be read without seeing the figures."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from evenline.city.demand import Cell
from evenline.control.outcome import Outcome
from evenline.figures.page import Numbers, Pair, Picture, comparison_page, first_sentence
from evenline.figures.plots import headway_histogram

DAY = Outcome(
    departed=100,
    completed=96,
    waiting_s=20_000,
    riding_s=50_000,
    pre_control_cost=0,
    token_cost=90_000,
    decisions=40,
    zero_duration_tokens=3,
    holds_zero=40,
    hold_total_s=0.0,
    denied_boardings=5,
    trips_completed=6,
    trip_duration_total_s=6_000,
)
BETTER = replace(DAY, waiting_s=15_000, riding_s=52_000, completed=98, hold_total_s=200.0)
PAIRS = [Pair(Cell(1, 501, 0.75), DAY, BETTER), Pair(Cell(1, 501, 1.25), DAY, DAY)]
PICTURE = Picture(
    "Headways",
    "How they came.",
    'Outline of "headways"',
    lambda theme: headway_histogram({"x": np.array([1.0])}, theme),
    Numbers("By hour", ["", "x"], [["hour 1", "7.5"]]),
)


class Reader(HTMLParser):
    """Collects tags with their attributes and the text of table cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def page(base: str = "no holding", other: str = "the rule") -> str:
    return comparison_page("town", base, other, PAIRS, [PICTURE], "Made by hand.")


def test_the_first_sentence_says_what_changed() -> None:
    said = first_sentence("no holding", "the rule", PAIRS)
    assert "the rule cut generalized passenger time from 900 to 860 s per passenger" in said
    assert "(\u22124.4 %) on average over 2 simulated days" in said
    assert "better on 1 of them" in said
    assert "waiting changed by \u221225.0 s and time on board by +10.0 s" in said


def test_the_first_sentence_admits_a_loss_and_a_draw() -> None:
    swapped = [Pair(pair.cell, pair.other, pair.base) for pair in PAIRS]
    assert "raised generalized passenger time from 860 to 900" in first_sentence("a", "b", swapped)
    same = [Pair(Cell(1, 1), DAY, DAY)]
    assert "left generalized passenger time at 900 s" in first_sentence("a", "b", same)


def test_the_table_has_a_row_for_each_day_with_the_paired_difference() -> None:
    words = Reader(page()).words
    at = words.index("0.75")
    assert words[at : at + 6] == ["0.75", "900.0", "820.0", "\u221280.0", "4", "2"]
    at = words.index("1.25")
    assert words[at : at + 6] == ["1.25", "900.0", "900.0", "0.0", "4", "4"]


def test_the_page_loads_nothing() -> None:
    text = page()
    sources = [
        value
        for _, attributes in Reader(text).tags
        for name, value in attributes.items()
        if name in ("src", "srcset", "href")
    ]
    assert sources and all(value and value.startswith("data:image/svg") for value in sources)
    assert "url(" not in text and "@import" not in text and "<script" not in text


def test_every_image_says_in_words_what_it_shows() -> None:
    images = [attributes for tag, attributes in Reader(page()).tags if tag == "img"]
    assert [image["alt"] for image in images] == ['Outline of "headways"']


def test_the_page_is_made_for_phones_and_for_the_dark() -> None:
    reader = Reader(page())
    names = {a.get("name"): a.get("content") for tag, a in reader.tags if tag == "meta"}
    assert names["viewport"] == "width=device-width, initial-scale=1"
    dark = [a for tag, a in reader.tags if tag == "source"]
    assert [a["media"] for a in dark] == ["(prefers-color-scheme: dark)"]


@pytest.mark.parametrize("name", ["<b>rule</b>", 'a "rule"', "rule & rule"])
def test_names_cannot_break_the_page(name: str) -> None:
    plain, odd = Reader(page()), Reader(page(other=name))
    assert [tag for tag, _ in odd.tags] == [tag for tag, _ in plain.tags]
    assert name in "".join(odd.words)
