"""The interview: a Transformer of one file with four mistakes. Find them.

python practice/interview.py        # starts the clock, and examines the model
python practice/interview.py key    # what the four were, and what each does
"""

import math
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import torch
from torch import Tensor, nn

from practice import NEXT_RUNG, examine, mistakes
from the_annotated_transformer import LETTERS, PAD, Pair, number_pair, pad_rows

D, HEADS, LONGEST = 32, 4, 100
CLOCK = Path(tempfile.gettempdir()) / "annotated-transformer-interview"


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))

    def forward(self, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(y), self.v(y)
        q, k, v = (z.unflatten(-1, (HEADS, -1)).transpose(1, 2) for z in (q, k, v))
        scores = (q @ k.mT / math.sqrt(D // HEADS)).masked_fill(~mask.unsqueeze(1), -1e9)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, cross: bool):
        super().__init__()
        self.attention = nn.ModuleList(Attention() for _ in range(1 + cross))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(2 + cross))
        self.ffn = nn.Sequential(nn.Linear(D, 2 * D), nn.ReLU(), nn.Linear(2 * D, D))

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ):  # fmt: skip
        y = self.norms[0](x)
        x = x + self.attention[0](y, y, mask)
        if memory is not None:
            x = x + self.attention[1](self.norms[2](x), memory, memory_mask)
        return x + self.ffn(self.norms[1](x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(len(LETTERS), D)
        nn.init.normal_(self.table.weight, std=D**-0.5)
        place = torch.arange(LONGEST).unsqueeze(1)
        rate = torch.exp(torch.arange(0, D, 2) * -math.log(10000) / D)
        places = torch.stack(((place * rate).sin(), (place * rate).cos()), dim=2).flatten(1)
        self.register_buffer("places", places)
        self.encoder, self.decoder, self.norm = Layer(False), Layer(True), nn.LayerNorm(D)
        self.out = nn.Linear(D, len(LETTERS))

    def embed(self, ids: Tensor) -> Tensor:
        x = self.table(ids) * math.sqrt(D)
        return x + self.places[: x.size(0)].unsqueeze(1)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        real = (src != PAD).unsqueeze(1)
        causal = torch.ones(1, tgt.size(1), tgt.size(1), dtype=torch.bool).tril(diagonal=1)
        memory = self.encoder(self.embed(src), real)
        mask = causal & (tgt != PAD).unsqueeze(1)
        return self.out(self.norm(self.decoder(self.embed(tgt), mask, memory, real)))


model = Model()
adam = torch.optim.Adam(model.parameters(), lr=5e-4)


def tensors(pairs: list[Pair]) -> tuple[Tensor, Tensor]:
    return pad_rows([p.src for p in pairs]), pad_rows([p.tgt for p in pairs])


def update(pairs: list[Pair]) -> float:
    src, tgt = tensors(pairs)
    logits = model(src, tgt[:, :-1])
    loss = nn.functional.cross_entropy(logits.mT, tgt[:, 1:])
    loss.backward()
    adam.step()
    return loss.item()


@torch.no_grad()
def predict(pairs: list[Pair]) -> Tensor:
    src, tgt = tensors(pairs)
    return model(src, tgt[:, :-1])


if __name__ == "__main__":
    if sys.argv[1:] == ["key"]:
        sys.exit(mistakes.KEY_OF_THE_INTERVIEW)
    # a second run goes on with the clock of the first; after two hours, somebody else begins
    if not CLOCK.exists() or time.time() - CLOCK.stat().st_mtime > 7200:
        CLOCK.touch()
    pairs = [number_pair(n) for n in [7, 1, 12, 4, *random.Random(0).sample(range(100, 1000), 28)]]
    # fresh weights each time, because the file is run anew after each change
    patient = examine.Patient(predict, model, update)
    findings = examine.examine(lambda: patient, pairs, ["wires", "loss", "gradient"])
    ill = [finding for finding in findings if finding.ill]
    print(*ill or ["well: you have found all four"], sep="\n")
    if not ill:
        print(NEXT_RUNG["let it learn"])
    print(f"{(time.time() - CLOCK.stat().st_mtime) / 60:.0f} minutes so far")
