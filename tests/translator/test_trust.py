"""How far to trust a translation (`translate --json`), a text (`plan`) and a run (`doctor`)."""

import pytest
import torch

import the_annotated_transformer as tat
from tests.helpers import decided
from translator.search import fast_beam


# --- translate --json ---
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (4, 1), (4, 3)])
def test_what_a_beam_notes_is_what_one_pass_over_the_translation_gives(beam, n_best):
    """Catches notes of another beam or step, and attention read from another row, layer or head."""
    torch.manual_seed(3)
    model = decided(tat.make_model(13, 9, 2, 16, 24, 4, dropout=0.0, norm="pre")).double().eval()
    rows = [[*torch.randint(4, 13, (n,)).tolist(), tat.EOS] for n in torch.randint(1, 9, (12,)).tolist()]
    batch, notes = tat.Batch(tat.pad_rows(rows)), []
    best = fast_beam(model, batch.src, batch.src_mask, 14, beam, 0.6, n_best, notes)
    assert torch.equal(best, fast_beam(model, batch.src, batch.src_mask, 14, beam, 0.6))
    lengths = set()
    for row, ids, found in zip(rows, best.tolist(), notes, strict=True):
        assert len(found) == n_best == len({tuple(one.ids) for one in found})
        assert found == sorted(found, key=lambda one: -one.score) and ids[: len(found[0].ids)] == found[0].ids
        for one in found:
            src, tgt = torch.tensor([row]), torch.tensor([one.ids])
            with torch.no_grad(), tat.recording(model) as weights:
                logits = model(src, tgt[:, :-1], tat.source_mask(src), tat.subsequent_mask(len(one.ids) - 1))
            sums = logits[0].log_softmax(-1).gather(1, tgt[0, 1:, None])[:, 0].cumsum(0)
            cross = torch.stack([weights[layer.src_attn][0] for layer in model.decoder.layers]).mean((0, 1))
            torch.testing.assert_close(one.seen[:, 0], sums.float(), atol=1e-4, rtol=1e-4)
            assert one.score == pytest.approx(float(sums[-1] / tat.length_penalty(len(sums), 0.6)), rel=1e-4)
            assert one.seen[:, 1].tolist() == cross.argmax(-1).tolist()
            lengths.add(len(one.ids))
    assert len(lengths) > 2  # otherwise the sentences test little
