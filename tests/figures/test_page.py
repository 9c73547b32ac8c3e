"""The page says what came out, stands alone, and can be read without seeing the figures."""

from html.parser import HTMLParser

import numpy as np
import pytest

from evenline.figures.page import Numbers, Picture, simple_page
from evenline.figures.plots import headway_histogram

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


def page(name: str = "the rule") -> str:
    table = Numbers("Means", ["", name], [["time, s", "7.5"]])
    return simple_page(f"{name} in town", f"{name} helps.", [table], [PICTURE], "Made by hand.")


def test_a_table_has_its_numbers() -> None:
    words = Reader(page()).words
    at = words.index("time, s")
    assert "7.5" in words[at : at + 4]


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
    plain, odd = Reader(page()), Reader(page(name))
    assert [tag for tag, _ in odd.tags] == [tag for tag, _ in plain.tags]
    assert name in "".join(odd.words)
