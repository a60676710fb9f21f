"""The clinic's benchmarks: chance changes one thing at a time; rows say what their values mean."""

import ast
import dataclasses
import inspect
import textwrap

import the_annotated_transformer as tat
from benchmarks import clinic, clinic_blind, clinic_captions


def test_a_draw_is_one_change_of_the_documents_code_and_can_be_repeated():
    """Catches a change that isn't made or is made twice, and one that stays in the document."""
    for seed in range(40):
        where, what, place, name, new = clinic_blind.mutant(seed)
        assert clinic_blind.mutant(seed)[:2] == (where, what)
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(place, name))))
        lines = [line.strip() for line in ast.unparse(tree).splitlines()]
        assert getattr(place, name) is not new and what.partition(": ")[2] not in lines, what
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
    about = {"fresh": {"future": 0.5, "gradient": None}, "trained": {"swap": 0.1}}
    about["mistake"] = "no_causal_mask"
    row = clinic.judged(well | about | {"held_out_exact": 0.0, "loss": 0.5})
    assert row["ill"] == ["future", "gradient", "swap"] and row["kind"] == "mask"
    assert row["seen"] == ["curve", "written", "wires", "gradient", "swap"]


def test_captions_show_a_mistake_to_the_tests_that_look_for_it(rows_of, monkeypatch):
    """Catches a mistake that is not made, one that stays for the next row, and a row made twice."""
    pairs = tat.phrases("train")
    sizes = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "bpe": 100, "tokens_per_batch": 200}
    small = dataclasses.replace(tat.LIVE, **sizes)
    monkeypatch.setattr(tat, "load_split", lambda split: pairs)
    monkeypatch.setattr(clinic_captions, "LIVE", small)
    whole = clinic_captions.measures

    def few(trainer, losses, val, tokenizer):
        return whole(trainer, losses, val[:6], tokenizer)

    monkeypatch.setattr(clinic_captions, "measures", few)
    names = ["no_causal_mask", "healthy", "every_step_at_position_zero"]
    for _ in range(2):
        found = rows_of("clinic_captions --steps 2 --only", *names)
    assert [row["mistake"] for row in found] == names and all(row["updates"] == 2 for row in found)
    leaking, healthy, decoding = (set(row["ill"]) for row in found)
    future = {"future", "looks ahead"}
    assert future & leaking and not future & (healthy | decoding)
    # a mistake in decoding has a healthy training
    assert found[1]["loss"] == found[2]["loss"] != found[0]["loss"]
    assert 0 <= found[1]["bleu"] < 100 and found[1]["different"] >= 1
