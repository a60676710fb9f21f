"""The catalogue and the examination: all mistakes change something, are undone and found."""

import functools
import itertools
import random
import re

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import the_annotated_transformer as tat
from practice import examine, mistakes
from practice.mistakes import CATALOGUE, HEALTHY, SLIPS
from since_2017 import modern
from tests.helpers import ROOT
from the_annotated_transformer import PAD, Config, Pair, Trainer, number_pair, saved_rows

FEW = [number_pair(n) for n in [7, 1, 12, 4, *random.Random(0).sample(range(1000), 28)]]
CHEAP = ["wires", "loss", "gradient", "inventory"]


def ill(make, pairs: list[Pair] = FEW, exams: list[str] = CHEAP) -> dict[str, float]:
    """The tests that call a model ill, and what they measured."""
    findings = examine.examine(make, pairs, exams)
    return {finding.test: finding.value for finding in findings if finding.ill}


# --- The catalogue ---


@functools.cache
def learned() -> nn.Module:
    """A healthy model that knows eight numbers by heart."""
    torch.manual_seed(0)
    trainer = Trainer(HEALTHY.make_model(len(tat.LETTERS)), HEALTHY)
    for _ in range(120):
        trainer.update(FEW[:8])
    return trainer.model


def behaviour(config: Config) -> str:
    """What a reader sees: predictions, losses, weights, translations, numbers to learn from."""
    torch.manual_seed(0)
    trainer = Trainer(config.make_model(len(tat.LETTERS)), config)
    numbers = mistakes.numbers(list(range(100, 500)), list(range(500, 600)), random.Random(0))
    return str(
        [
            examine.of_trainer(trainer).predict(FEW[:4]).tolist(),
            [examine.of_trainer(trainer).update(FEW[i : i + 8]) for i in (0, 8)],
            [p.sum().item() for p in trainer.model.parameters()],
            mistakes.translate(learned(), FEW[4:12]),
            list(itertools.islice(numbers, 20)),
            mistakes.examined(FEW[:3]),
        ]
    )


@functools.cache
def healthy(config: Config) -> str:
    """The same of the document as it is."""
    learned()
    return behaviour(config)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_mistake_changes_something_and_is_undone(name):
    """Catches a patch of a name that nobody calls any more, and one that stays."""
    config = mistakes.settings_with(name)
    puts = CATALOGUE[name].puts
    expected = healthy(config if puts else HEALTHY)
    before = [getattr(*mistakes.place(target)) for target in puts]
    with mistakes.made(name):
        assert behaviour(config) != expected
    assert [getattr(*mistakes.place(target)) for target in puts] == before


def test_each_mistake_says_where_the_document_explains_it():
    """Catches a heading that was renamed, and a mistake without belief or effect."""
    text = (ROOT / "the_annotated_transformer.py").read_text("utf-8")
    headings = set(re.findall(r"^# #+ (.*)", text, re.M))
    assert {mistake.section for mistake in CATALOGUE.values()} <= headings
    for mistake in CATALOGUE.values():
        assert mistake.belief.endswith((".", ":")) and mistake.effect.endswith("."), mistake.name


# --- What is found, and by which examination ---


def test_every_row_of_the_tables_is_a_mistake():
    """Its code names the row, so a row that no code names would be lost without a word."""
    assert mistakes.catalogue.MISTAKES_TABLE.keys() == CATALOGUE.keys()
    assert mistakes.catalogue.SLIPS_TABLE.keys() == SLIPS.keys()
    assert not CATALOGUE.keys() & SLIPS.keys()


@pytest.mark.parametrize("name", [name for name, m in CATALOGUE.items() if m.seen_by in CHEAP])
def test_a_mistake_is_found_by_the_examination_that_its_entry_names(name):
    """Catches a test that sees nothing any more, and an entry whose examination isn't the first."""
    mistake = CATALOGUE[name]
    exams = CHEAP[: CHEAP.index(mistake.seen_by) + 1]
    with mistakes.made(name):
        make = functools.partial(examine.of_document, mistakes.settings_with(name))
        tests = ill(make, exams=exams)
    assert mistake.seen_by == next((examine.TESTS[test].exam for test in tests), "none"), tests
    assert mistake.kind != "shift" or [*tests] == ["recomputed"]
    # who doesn't read it says nothing of its order
    assert not {"source", "source order"} <= tests.keys()


def test_entries_say_what_the_rows_say():
    """Catches an entry whose row shows it elsewhere first, and one called harmless that isn't."""
    rows = [row for row in saved_rows("clinic") if row["mistake"] in CATALOGUE and row["seed"] == 0]
    assert {row["mistake"] for row in rows} == CATALOGUE.keys()
    for row in rows:
        nothing = "run" if row["seen"] else "none"
        first = next((exam for exam in examine.EXAMINATIONS if exam in row["seen"]), nothing)
        assert CATALOGUE[row["mistake"]].seen_by == first, row["mistake"]
        harmless = CATALOGUE[row["mistake"]].harmless
        assert row.get("held_out_exact", 0.0) > 0.9 or not harmless, row["mistake"]


# --- Healthy models of other kinds ---

SIZES = [(1, 16, 2), (2, 32, 4), (3, 64, 8), (6, 32, 2)]  # N, d_model, h
NORMS = ("pre", "post")
KINDS = [
    *(
        {"N": N, "d_model": d, "h": h, "norm": norm, "tie": tie}
        for N, d, h in SIZES for norm in NORMS for tie in ("all", "none")
    ),
    *({"dropout": p, "norm": norm} for p in (0.1, 0.3) for norm in ("pre", "post")),
    *({"positions": "learned", "norm": norm} for norm in ("pre", "post")),
    {"d_k": 4}, {"inner_dropout": 0.1}, {"smoothing": 0.1},
    *({"parts": [name]} for name in ("rotary", "rms_norm", "gated", "grouped")),
    {"parts": ["rotary", "rms_norm", "gated", "grouped"]},
]  # fmt: skip


def of_kind(
    norm="pre", tie="all", parts=(), N=2, d_model=32, h=4, smoothing=0.0, **sizes
) -> examine.Patient:
    """A fresh model of the document or one of its later forms."""
    torch.manual_seed(0)
    V = len(tat.LETTERS)
    sizes = {"dropout": 0.0} | sizes
    sizes |= {"norm": norm, "tie": tie} | modern(*parts)
    model = tat.make_model(V, V, N, d_model, 2 * d_model, h, **sizes)
    config = Config(d_model=d_model, warmup=100, smoothing=smoothing)
    return examine.of_trainer(Trainer(model, config))


@pytest.mark.parametrize(
    "kind", KINDS, ids=lambda kind: " ".join(f"{k}={v}" for k, v in kind.items())
)
def test_no_healthy_kind_raises_a_false_alarm(kind):
    """Catches bounds that only fit the model of the German numbers."""
    assert not ill(functools.partial(of_kind, **kind), exams=["wires", "loss", "gradient"])


class Own(nn.Module):
    """A model as others could write it: PyTorch's layers, batches first, positions learned."""

    def __init__(self, vocab: int, d: int = 32, **wrong):
        super().__init__()
        self.wrong = wrong
        self.table = nn.Embedding(vocab, d)
        self.place = nn.Embedding(64, d)
        share = wrong.get("dropout", 0.1)
        self.body = nn.Transformer(d, 4, 2, 2, 64, dropout=share, batch_first=True)
        self.over_batch = nn.BatchNorm1d(d) if wrong.get("over_batch") else nn.Identity()
        self.last = nn.Linear(d, d) if wrong.get("left_out") else nn.Identity()
        self.out = nn.Linear(d, vocab)
        if wrong.get("zero"):  # as some begin, so that nothing is predicted at first
            nn.init.zeros_(self.out.weight)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        def embed(ids):
            return self.table(ids) + self.place(torch.arange(ids.size(1)))

        causal = self.body.generate_square_subsequent_mask(tgt.size(1))
        causal = None if self.wrong.get("causal") is False else causal
        hidden = None if self.wrong.get("padding") is False else src == PAD
        padding = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
        x = self.body(embed(src), embed(tgt), tgt_mask=causal, **padding)
        x = nn.functional.dropout(x, self.wrong.get("always", 0.0))  # in evaluation, too
        if not self.training or random.random() >= self.wrong.get("left_out", 0):  # LayerDrop
            x = self.last(x)
        return self.out(self.over_batch(x.mT).mT)


def own(rate=1e-3, smoothing=0.0, **wrong) -> examine.Patient:
    """That model as the examination takes one's own: by its functions."""
    torch.manual_seed(0)
    model = Own(len(tat.LETTERS), **wrong)
    optimiser = wrong.get("optimiser", torch.optim.Adam)(model.parameters(), lr=rate)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    evaluated = average.module if wrong.get("average") else model

    def predict(pairs: list[Pair]) -> Tensor:
        evaluated.eval()
        with torch.no_grad():
            src, tgt = tat.pad_rows([p.src for p in pairs]), tat.pad_rows([p.tgt for p in pairs])
            return evaluated(src, tgt[:, :-1])

    def update(pairs: list[Pair]) -> float:
        model.train()
        optimiser.zero_grad()
        pairs = wrong.get("taught", list)(pairs)
        src, tgt = tat.pad_rows([p.src for p in pairs]), tat.pad_rows([p.tgt for p in pairs])
        extra = wrong["extra"](model, src) if "extra" in wrong else 0.0
        losses = nn.functional.cross_entropy(
            model(src, tgt[:, :-1]).mT, tgt[:, 1:], ignore_index=PAD, label_smoothing=smoothing,
            reduction="none",
        )  # fmt: skip
        counts = (tgt[:, 1:] != PAD).sum(1)
        mean = losses.sum() / counts.sum()
        if wrong.get("by_sentence"):
            mean = (losses.sum(1) / counts).mean()
        loss = mean + extra
        loss.backward()
        optimiser.step()
        average.update_parameters(model)
        return loss.item()

    return examine.Patient(predict, model, update, smoothing=smoothing, rate=lambda: rate)


def decay(model: nn.Module, src: Tensor) -> Tensor:
    """A term in the loss that isn't the pairs'."""
    return 1e-3 * sum(p.square().sum() for p in model.parameters())


def of_source(model: nn.Module, src: Tensor) -> Tensor:
    """The loss of reading the source."""
    return nn.functional.cross_entropy(model.out(model.table(src)).mT, src, ignore_index=PAD)


def without_correction(parameters, lr: float) -> torch.optim.Optimizer:
    """Adam whose averages begin at zero, uncorrected."""
    adam = CATALOGUE["no_bias_correction"].puts["Adam"]
    return adam(parameters, lr, (0.9, 0.98), 1e-9)


HEALTHY_OWN = [
    {}, {"rate": 3e-3}, {"smoothing": 0.1}, {"zero": True}, {"by_sentence": True},
    {"extra": decay}, {"extra": of_source}, {"average": True}, {"left_out": 0.5},
    {"optimiser": torch.optim.SGD, "rate": 0.1}, {"optimiser": torch.optim.RMSprop},
    {"optimiser": torch.optim.Adafactor, "rate": 1e-2},
]  # fmt: skip
WRONG_OWN = [
    ({"causal": False}, "future"), ({"padding": False}, "padding"), ({"over_batch": True}, "modes"),
    ({"dropout": 0.9}, "dropout"), ({"rate": 0.3}, "steady step"), ({"always": 0.1}, "twice"),
    ({"optimiser": without_correction}, "second step"),
    ({"taught": lambda pairs: examine.with_next(pairs[:8]) + pairs[8:]}, "otherwise"),
]  # fmt: skip


@pytest.mark.parametrize("wrong, test", [*((healthy, None) for healthy in HEALTHY_OWN), *WRONG_OWN])
def test_a_model_of_someone_else_is_examined_by_its_functions(wrong, test):
    """PyTorch's Transformer passes at usual rates and any dropout; one without a mask doesn't."""
    tests = ill(functools.partial(own, **wrong), exams=["wires", "loss", "gradient"])
    assert list(tests)[:1] == ([test] if test else [])


@pytest.mark.parametrize(("beyond", "ill"), [([tat.EOS], False), ([], True), ([tat.EOS, 7], True)])
def test_whether_translations_end_is_asked(beyond, ill):
    """Catches a loss without the end, a low limit, and a decoder that goes on behind the end."""

    def decode(pairs: list[Pair]) -> list[list[int]]:
        return [[*p.tgt[1:-1], *beyond] for p in pairs]

    patient = examine.Patient(lambda pairs: None, decode=decode)
    findings = examine.examine(lambda: patient, list(FEW), exams=["translations"])
    assert next(finding for finding in findings if finding.test == "ends").ill is ill


def test_a_source_that_is_cut_is_seen(monkeypatch):
    """Catches a look at the first words alone: behind the sixth nothing is read."""
    encode = tat.Transformer.encode
    decode = tat.Transformer.decode

    def encode_six(self, src, src_mask):
        return encode(self, src[:, :6], src_mask[..., :6])

    def decode_six(self, memory, src_mask, tgt, tgt_mask):
        return decode(self, memory, src_mask[..., :6], tgt, tgt_mask)

    monkeypatch.setattr(tat.Transformer, "encode", encode_six)
    monkeypatch.setattr(tat.Transformer, "decode", decode_six)
    tests = ill(functools.partial(examine.of_document, HEALTHY), exams=["wires"])
    assert [*tests] == ["each word"]


@pytest.mark.parametrize("backwards", [False, True])
def test_what_is_learned_is_asked(backwards, monkeypatch):
    """Catches an evaluation that reads the source otherwise than the training did."""
    encode = tat.Transformer.encode

    def turned(self, src, src_mask):
        return encode(self, src if self.training else src.flip(1), src_mask.flip(-1))

    if backwards:
        monkeypatch.setattr(tat.Transformer, "encode", turned)
    patient = examine.of_document(HEALTHY)._replace(decode=None)
    cost = examine.learn_by_heart(patient, FEW, updates=40)["evaluated"]
    assert examine.Finding("evaluated", cost).ill is backwards


def test_translations_are_held_beside_references():
    """Fluent, each of them different, and of another sentence: what none of the others sees."""
    pairs = [tat.number_pair(n) for n in (7, 345, 12, 98)]
    for shift, is_ill in ((0, False), (1, True)):
        targets = [pair.tgt[1:] for pair in pairs[shift:] + pairs[:shift]]
        target_of = dict(zip([tuple(pair.src) for pair in pairs], targets, strict=True))

        def decode(batch, target_of=target_of):
            return [target_of[tuple(pair.src)] for pair in batch]

        measured = examine.translate_alone(examine.Patient(None, decode=decode), pairs)
        assert measured["alone"] == 1
        assert examine.Finding("overlap", measured["overlap"]).ill is is_ill
