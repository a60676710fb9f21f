"""The examples of the two documents, one by one.

`pytest tests/document/test_examples.py -k heads` runs that of the heads.
"""

import os
from pathlib import Path

import pytest

import since_2017
import the_annotated_transformer as tat

SCRIPT = Path(tat.__file__).read_text(encoding="utf-8")
# a thousand updates
TRAINING = {f"example_{name}" for name in ("copy", "cached", "longer", "numbers", "number_map")}
SLOW = TRAINING | {"example_decoder_only"}  # test_document.py executes them as well
BASICS = SCRIPT[SCRIPT.index("\n# # Part 1:") : SCRIPT.index("\n# # Part 3:")]
WHOLE = os.environ.get("ANNOTATED_TESTS") == "all"
executed = pytest.mark.skipif(WHOLE, reason="the whole document includes it")
EXAMPLES = {name: m for m in (tat, since_2017) for name in vars(m) if name.startswith("example_")}


def marked(name: str) -> object:
    """An example of Parts 1 and 2 that waits for no training is tested by `make quick`, too."""
    quick = f"def {name}(" in BASICS and name not in TRAINING
    marks = [pytest.mark.quick] if quick else [executed] if name in SLOW else []
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [marked(name) for name in EXAMPLES])
def test_an_example_runs_alone_and_what_it_shows_can_be_shown(name, few_phrases, capsys):
    """Its own assertions hold; catches an example that needs what another has left behind."""
    script = Path(EXAMPLES[name].__file__).read_text(encoding="utf-8")
    result = getattr(EXAMPLES[name], name)()
    if hasattr(result, "to_dict") and hasattr(result, "mark_rect"):
        result.to_dict()
    checks = "assert" in script.split(f"def {name}(")[1].split("\n\n\n")[0]
    assert result is not None or capsys.readouterr().out or checks
