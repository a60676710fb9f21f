"""Numbers in our texts that come from rows are what the rows give, whatever the sentence says."""

import pytest

from blog import quotes
from blog.notebook import build


def test_every_number_with_a_name_is_what_its_rows_give():
    assert not [change for _, _, changes in quotes.stale() for change in changes]
    assert all("<!--" in path.read_text("utf-8") for path in quotes.TEXTS)


def test_a_number_that_its_rows_do_not_give_is_seen_and_mended():
    """Over the end of a script's line, too; catches numbers of another form, and a lost name."""
    rows = {"gain": "1.5 ± 0.5", "updates": "8,000 updates", "scores": "1.0, 2.0 and 3.0"}
    text = "# > It gains 1.4 ±\n# > 0.5<!--gain--> in 7,500\n# > updates<!--updates-->."
    mended, changes = quotes.rewritten(text, rows)
    assert mended == text.replace("1.4", "1.5").replace("7,500", "8,000") and len(changes) == 2
    assert quotes.rewritten(mended, rows) == (mended, [])
    assert build(f"# %% [markdown]\n{mended}\n").cells[0].source.endswith("in 8,000\n> updates.")
    for odd in ("1.0, 2.0<!--scores-->", "2.0<!--gain-->", "1.5 ± 0.5<!--gains-->"):
        with pytest.raises(ValueError, match="<!--"):
            quotes.rewritten(odd, rows)
