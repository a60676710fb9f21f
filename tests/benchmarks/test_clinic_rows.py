"""The clinic's benchmarks: chance changes one thing at a time, and rows say what their values mean."""

import ast
import inspect
import textwrap

import the_annotated_transformer as tat
from benchmarks import clinic, clinic_blind


def test_a_draw_is_one_change_of_the_documents_code_and_can_be_repeated():
    """Catches a change that isn't made, one that is made twice, and one that stays in the document."""
    for seed in range(40):
        where, what, place, name, new = clinic_blind.mutant(seed)
        assert clinic_blind.mutant(seed)[:2] == (where, what)
        lines = ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(getattr(place, name))))).splitlines()
        assert getattr(place, name) is not new and what.partition(": ")[2] not in map(str.strip, lines), what
    assert tat.subsequent_mask(3).sum() == 6


def test_a_row_says_where_it_looks_ill():
    well = {
        "mistake": "healthy",
        "planned": 9,
        "loss": 0.1,
        "known_loss": 0.1,
        "held_out_forced": 1.0,
        "held_out_exact": 1.0,
    }
    about = {"fresh": {"future": 0.0, "gradient": 1.0, "gone": 5.0}, "trained": {"swap": 3.0}}
    row = clinic.judged(well | about)
    assert (row["ill"], row["seen"], row["kind"]) == ([], [], "healthy")
    about = {"fresh": {"future": 0.5, "gradient": None}, "trained": {"swap": 0.1}, "mistake": "no_causal_mask"}
    row = clinic.judged(well | about | {"held_out_exact": 0.0, "loss": 0.5})
    assert row["ill"] == ["future", "gradient", "swap"] and row["kind"] == "mask"
    assert row["seen"] == ["curve", "written", "wires", "gradient", "swap"]
