"""Code as readers wrote it for earlier editions."""

import re
import subprocess
import sys
import textwrap

import torch
from torch.testing import assert_close

import the_annotated_transformer as tat
from tests.helpers import ROOT


def test_code_written_for_the_2022_edition_runs():
    """Catches changed names, argument orders, mask conventions: thousands of snippets look so."""
    model = tat.make_model(11, 11, 2)
    model.eval()
    src = torch.LongTensor([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
    src_mask = torch.ones(1, 1, 10)
    memory = model.encode(src, src_mask)
    ys = torch.zeros(1, 1).type_as(src)
    for _ in range(9):
        out = model.decode(memory, src_mask, ys, tat.subsequent_mask(ys.size(1)).type_as(src.data))
        prob = model.generator(out[:, -1])
        _, next_word = torch.max(prob, dim=1)
        next_word = next_word.data[0]
        ys = torch.cat([ys, torch.empty(1, 1).type_as(src.data).fill_(next_word)], dim=1)
    assert ys.shape == (1, 10) and ys.dtype == torch.int64
    ids = tat.greedy_decode(model, src, src_mask, max_len=10, start_symbol=0)
    assert torch.equal(ids, ys[:, : ids.size(1)])
    assert ids.size(1) == 10 or ids[0, -1] == tat.EOS
    assert torch.equal(tat.greedy_decode(model, src, src_mask, 10, 0, end_symbol=None), ys)
    batch = tat.Batch(src, src, pad=0)
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    decoded = model.decode(memory, src_mask, batch.tgt, batch.tgt_mask)
    assert_close(model.generator(decoded), logits.log_softmax(-1))


def test_the_readme_of_the_program_has_code_that_runs(tmp_path):
    """Catches a moved name, a new required argument, and a sentence translated letter by letter."""
    readme = (ROOT / "translator" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r" *```python\n(.*?) *```", readme, re.S)
    code = textwrap.dedent(code)
    code = code.replace("runs/mine", str(tmp_path / "mine"))
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "dog" in process.stdout.splitlines()[-1] and "['" in process.stdout.splitlines()[-1]
    assert sorted(path.name for path in (tmp_path / "mine").iterdir())[0] == "config.json"
