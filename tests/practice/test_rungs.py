"""The ladder of practice: where a rung ends, the next one is named in the document's words."""

import re

import pytest

from practice import NEXT_RUNG
from tests.helpers import ROOT


def plain(text: str) -> str:
    """Without links, marks of emphasis, quotation and numbers; in one line."""
    text = re.sub(r"(?m)^(?:# )?>? *(?:\d\. )?", "", text)
    text = re.sub(r"\[([^]]*)\]\([^()]*(?:\([^()]*\)[^()]*)*\)", r"\1", re.sub(r"\s+", " ", text))
    return text.replace("**", "")


@pytest.mark.parametrize("name", NEXT_RUNG)
def test_a_rung_is_named_in_the_words_of_the_document(name):
    document = plain((ROOT / "the_annotated_transformer.py").read_text("utf-8"))
    sentence = NEXT_RUNG[name].removeprefix("Next rung: ")
    assert sentence[0].upper() + sentence[1:] in document


def test_the_notebook_of_the_clinic_ends_with_the_next_rung():
    assert NEXT_RUNG["let it learn"] in plain((ROOT / "practice/clinic.py").read_text("utf-8"))
