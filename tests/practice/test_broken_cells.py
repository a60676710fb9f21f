"""The clinic's notebook and the interview: each cell is ill as it stands, well once repaired."""

import runpy

import nbformat
import pytest
import torch

import the_annotated_transformer as tat
from practice import clinic, examine, mistakes
from tests.helpers import ROOT

ANSWERS = [name for name in vars(clinic) if name.startswith("example_answer_")]
ANSWERS.sort(key=lambda name: int(name.split("_")[-1]))


def test_there_are_twelve_cells_and_each_is_ill(capsys):
    """Catches a broken cell that is found well, as it would be after a change of the document."""
    runpy.run_path(str(ROOT / "practice" / "clinic.py"))
    out = capsys.readouterr().out
    assert "ILL" in out and "well:" not in out and len(ANSWERS) == 12


def test_what_a_check_finds_waits_for_the_reader(tree_of):
    """Catches an output that answers the question above: the page folds it, Jupyter hides it."""
    folded = tree_of("clinic").select("details.found")
    assert len(folded) == len(ANSWERS) and all("ILL" in fold.pre.get_text() for fold in folded)
    cells = nbformat.read(ROOT / "practice" / "clinic.ipynb", 4).cells
    ill = [cell for cell in cells if cell.cell_type == "code" and "ILL" in str(cell.outputs)]
    assert len(ill) == len(ANSWERS)
    assert all(cell.metadata["jupyter"]["outputs_hidden"] for cell in ill)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_is_well(name, capsys):
    getattr(clinic, name)()
    assert capsys.readouterr().out.startswith("well:")


def embedded_without_gradient(self, src, src_mask):
    with torch.no_grad():
        x = self.src_embed(src)
    return self.encoder(x, src_mask)


def divided_by_pairs(self, pairs):
    batch = tat.make_batch(pairs)
    loss = tat.batch_loss(self.model, batch, self.config.smoothing) / len(pairs)
    self.optimizer.zero_grad()
    loss.backward()
    return loss.item()


def cleared_by_the_optimiser(self, pairs):
    batch = tat.make_batch(pairs)
    loss = tat.batch_loss(self.model, batch, self.config.smoothing) / batch.ntokens
    self.optimizer.zero_grad(set_to_none=False)
    loss.backward()
    return loss.item()


@pytest.mark.parametrize(
    ("said", "exams", "parts"),
    [
        ("document's: translation", ["wires"],
         {"split_heads": lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2)}),
        ("document's: gradient", ["wires", "gradient"],
         {"Transformer__encode": embedded_without_gradient}),
        ("document's: loss", ["gradient"], {"Trainer__gradient": divided_by_pairs}),
        ("Does the mask leave each row a key", ["wires"],
         {"attention": mistakes.masks.attention_with(flipped=True)}),
        ("it sees the future", ["wires", "loss"],
         {"Batch____init__": mistakes.batches.batch_with(*[lambda tgt: tgt[:, 1:]] * 2)}),
        ("well:", ["gradient"], {"Trainer__gradient": cleared_by_the_optimiser}),
        ("well:", ["wires"], {"attention": mistakes.masks.attention_with(fill=-1e9)}),
    ],
)  # fmt: skip
def test_a_wrong_repair_is_not_called_well_and_a_right_one_is(said, exams, parts, capsys):
    """Also where the tests of its cell find nothing; of NaN, one line says why."""
    clinic.check(*exams, **parts)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and said in lines[0], lines


REPAIRS = {
    ".tril(diagonal=1)": ".tril()",
    "self.places[: x.size(0)].unsqueeze(1)": "self.places[: x.size(1)]",
    "cross_entropy(logits.mT, tgt[:, 1:])": "cross_entropy(logits.mT, tgt[:, 1:], ignore_index=PAD)",
    "    loss.backward()\n": "    adam.zero_grad()\n    loss.backward()\n",
}
SHOWN = {
    "future": ".tril(diagonal=1)",
    "neighbours": "self.places[: x.size(0)].unsqueeze(1)",
    "again": "    loss.backward()\n",
}
SHOWN |= {"recomputed": "cross_entropy(logits.mT, tgt[:, 1:])"}


def ill(left: set[str], tmp_path, repairs: dict[str, str] = REPAIRS) -> set[str]:
    """What the examination says of the interview with only these mistakes left."""
    text = (ROOT / "practice" / "interview.py").read_text("utf-8")
    assert not any(repair in text for repair in ("ignore_index", "zero_grad")), "the key is in it"
    for mistake, repair in repairs.items():
        assert mistake in text
        text = text if mistake in left else text.replace(mistake, repair)
    (tmp_path / "repaired.py").write_text(text, "utf-8")
    repaired = runpy.run_path(str(tmp_path / "repaired.py"))
    patient = examine.Patient(repaired["predict"], repaired["model"], repaired["update"])
    pairs = [repaired["number_pair"](n) for n in [7, 1, 12, 4, *range(200, 900, 25)]]
    tests = ["wires", "loss", "gradient"]
    return {
        finding.test for finding in examine.examine(lambda: patient, pairs, tests) if finding.ill
    }


def test_the_interview_has_four_mistakes_and_each_is_seen(tmp_path):
    """Each mistake alone is seen by its test, and the repaired file is well."""
    assert ill(set(), tmp_path) == set()
    cleared_after = REPAIRS | {"    loss.backward()\n": "    loss.backward()\n"}
    cleared_after["    adam.step()\n"] = "    adam.step()\n    adam.zero_grad()\n"
    assert ill(set(), tmp_path, cleared_after) == set()
    for test, mistake in SHOWN.items():
        assert test in ill({mistake}, tmp_path)
