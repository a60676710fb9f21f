"""The clinic's benchmark: rows say what their values mean."""

from benchmarks import clinic


def test_a_row_says_where_it_looks_ill():
    well = {
        "mistake": "healthy",
        "planned": 9,
        "loss": 0.1,
        "known_loss": 0.1,
        "held_out_forced": 1.0,
        "held_out_exact": 1.0,
    }
    measured = {"fresh": {"future": 0.0, "gradient": 1.0, "gone": 5.0}, "trained": {"swap": 3.0}}
    row = clinic.judged(well | measured)
    assert (row["ill"], row["seen"], row["kind"]) == ([], [], "healthy")
    measured = {"fresh": {"future": 0.5, "gradient": None}, "trained": {"swap": 0.1}}
    measured["mistake"] = "no_causal_mask"
    row = clinic.judged(well | measured | {"held_out_exact": 0.0, "loss": 0.5})
    assert row["ill"] == ["future", "gradient", "swap"] and row["kind"] == "mask"
    assert row["seen"] == ["curve", "written", "wires", "gradient", "swap"]
