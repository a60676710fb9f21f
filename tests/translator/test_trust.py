"""How far to trust a translation (`translate --json`), a text (`plan`) and a run (`doctor`)."""

from functools import partial

import pytest
import torch

import the_annotated_transformer as tat
from practice import examine
from tests.helpers import caption_files, decided
from translator import doctor, plan
from translator.__main__ import main
from translator.losses import add_losses, placeholders
from translator.model_folder import read_translator
from translator.search import fast_beam
from translator.settings import make_settings
from translator.sources import Corpus, load_pairs


# --- translate --json ---
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (4, 3)])
def test_what_a_search_notes_is_what_one_pass_over_the_translation_gives(beam, n_best):
    """Catches notes of another beam or step, and attention read from another row, layer or head."""
    torch.manual_seed(3)
    model = decided(tat.make_model(13, 9, 2, 16, 24, 4, dropout=0.0, norm="pre")).double().eval()
    lengths = torch.randint(1, 9, (12,)).tolist()
    rows = [[*torch.randint(4, 13, (n,)).tolist(), tat.EOS] for n in lengths]
    batch = tat.Batch(tat.pad_rows(rows))
    search = partial(fast_beam, model, batch.src, batch.src_mask, 14, beam, alpha=0.6)
    searched = search(n_best=n_best, aligned=True)
    best = [hypotheses[0].ids for hypotheses in search()]
    lengths = set()
    for row, ids, hypotheses in zip(rows, best, searched, strict=True):
        assert len(hypotheses) == n_best == len({tuple(h.ids) for h in hypotheses})
        assert hypotheses == sorted(hypotheses, key=lambda h: -h.score)
        assert ids == hypotheses[0].ids
        for h in hypotheses:
            src = torch.tensor([row])
            tgt = torch.tensor([h.ids])
            with torch.no_grad(), tat.recording(model) as weights:
                before = tat.subsequent_mask(len(h.ids) - 1)
                logits = model(src, tgt[:, :-1], tat.source_mask(src), before)
            sums = logits[0].log_softmax(-1).gather(1, tgt[0, 1:, None])[:, 0].cumsum(0)
            cross = [weights[layer.src_attn][0] for layer in model.decoder.layers]
            assert h.sums == pytest.approx(sums.tolist(), abs=1e-4, rel=1e-4)
            expected = float(sums[-1] / tat.length_penalty(len(sums), 0.6))
            assert h.score == pytest.approx(expected, rel=1e-4)
            assert h.looked_at == torch.stack(cross).mean((0, 1)).argmax(-1).tolist()
            lengths.add(len(h.ids))
    assert len(lengths) > 2  # otherwise the sentences test little


@pytest.mark.parametrize(
    ("line", "signs"),
    [
        ("100 % sûr, 50% des gens, 100%ig, R&D, a & b, snake_case, 3 < 4 > 2, {, $5", ""),
        ("Failed %s: %1$d of %-5.2f, %lu%%, %(name)s %@", "%s %1$d %-5.2f %lu %% %(name)s %@"),
        ("{0} {} {{x}} ${HOME} $HOME {n:.2f} %1.", "{0} {} {{x}} ${HOME} $HOME {n:.2f} %1"),
        ("&File E&xit _Edit 文件(&F)", "& & & _"),
        ("<b>x</b> <a href='x'><0/>", "<b> </b> <a href='x'> <0/>"),
        ("在%s中 https://a.org/b me@a.org \\n", "%s https://a.org/b me@a.org \\n"),
    ],
)
def test_what_a_program_reads_is_told_from_text(line, signs):
    assert " ".join(placeholders(line).elements()) == signs


def test_what_a_translation_has_lost_is_told_with_its_line():
    """Letters that the vocabulary lacks, placeholders, whole lines; blank lines lose nothing."""
    tokenizer = tat.learn_bpe([("Öl %s", "oil %s")], 9)
    lines = ["%s Öl", "O\u0308l 😀%s", "Öl 漢", "", "\ufeff ", "Öl %s"]
    texts = ["oil %s", "oil {0}", "", "", "", "%s %s oil"]
    results = [{"translation": text} for text in texts]
    notes: list[str] = []

    def pieces(text: str) -> list[str]:
        return tokenizer.tokens(tokenizer.encode(text, "de"))

    assert add_losses(pieces, lines, results, notes.append, 11) == [13]
    lost = {"unknown_letters": ["😀"], "lost_placeholders": ["%s"], "added_placeholders": ["{0}"]}
    assert results[1] == {"translation": "oil {0}"} | lost
    assert results[2]["unknown_letters"] == ["漢"] and results[5]["added_placeholders"] == ["%s"]
    assert all(len(results[i]) == 1 for i in (0, 3, 4)) and len(notes) == 5
    assert notes[0].startswith("line 12: the model does not know 😀")


# --- plan ---
GOOD = [
    (f"Satz {word} ist lang genug für alle.", f"Sentence {word} is long enough for all.")
    for word in "abcdefghijklmnop"
]
BAD = {
    "empty": ("", "Nothing is on the other side."),
    "twice": GOOD[3],
    "same": ("Press any key to continue", "Press any key to continue"),
    "lengths": (
        "Ja, das ist so.",
        "Yes, and then there is a very long story "
        "that nobody has told in the other language at all.",
    ),
    "script": ("Привет, мир, как дела?", "Hello, world, how are you?"),
    "short": ("-", "2"),
    "placeholders": ("Satz %s ist lang genug für alle.", "Sentence %s is long enough for all."),
}


@pytest.mark.parametrize("name", BAD)
def test_each_thing_that_may_be_wrong_with_a_text_is_told_and_nothing_else(name):
    assert plan.complaints(GOOD, []) == {}
    assert plan.complaints([*GOOD, BAD[name]], []) == {name: [17]}


@pytest.mark.parametrize("change", [str, str.upper, lambda s: f" {s[:-1]} !", lambda s: f"«{s}»"])
def test_val_that_stands_in_train_is_told(change):
    """Whatever its case, spaces and punctuation; a line of signs alone is no copy of another."""
    val = [(change(src), tgt) for src, tgt in GOOD[6:10]]
    assert plan.complaints(GOOD[:8], val) == {"val in train": [1, 2]}
    assert plan.copies([("->", "to"), ("", "")], [("<-", "from"), ("->", "to")]) == [2]


def caption_text(count):
    return load_pairs("captions", "train")[:count]


@pytest.mark.parametrize(("offset", "start"), [(-3, 0), (-1, 150), (1, 150), (7, 0)])
def test_sides_that_have_slipped_are_told_with_the_line(offset, start):
    """Far away there is no offset, but also no translation."""
    sources, targets = map(list, zip(*caption_text(310), strict=True))
    moved = targets[start + 10 - offset : start + 160 - offset]
    texts = [
        *zip(sources[:start], targets, strict=False),
        *zip(sources[start + 10 :], moved, strict=False),
    ]
    assert plan.slips([*zip(sources, targets, strict=True)]) == []
    ((first, last, lines),) = plan.slips(texts)
    assert abs(first - start - 1) < 12 and last == len(texts)
    assert lines == (offset if abs(offset) < 6 else None)


def folder_of(folder, **files):
    for name, lines in files.items():
        (folder / name.replace("_", ".")).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def planned(monkeypatch, folder, held_out=None):
    """What plan says of a folder, in the order in which it does, without a rehearsal."""
    names = "parameters vocabulary gigabytes longest tokens_per_pair tokens_per_second "
    names += "seconds_per_update layers width"
    lines = []

    def rehearse(*_):
        lines.append("REHEARSAL")
        return dict.fromkeys(names.split(), 1)

    monkeypatch.setattr(plan, "rehearse", rehearse)
    corpus = Corpus(str(folder), held_out=held_out)
    advice = plan.plan(corpus, 1, lines.append, lines.append)
    return advice, [*lines, *plan.report(advice)]


def test_a_text_that_has_slipped_gets_no_range_and_no_command(tmp_path, monkeypatch):
    sources, targets = map(list, zip(*caption_text(300), strict=True))
    val = {"val_de": sources[:40], "val_en": targets[:40]}
    folder = folder_of(tmp_path, train_de=sources[:-1], train_en=targets[1:], **val)
    advice, lines = planned(monkeypatch, folder)
    assert advice["slips"] == {"train": [(1, 299, -1)]} and advice["command"] is None
    assert lines[0].endswith("a line's translation is 1 further up in en")
    assert lines[-1].startswith("no training is advised") and "REHEARSAL" not in lines


RUNS = [(0.4, 6.0), (0.5, 10.0), (0.6, 16.0)]
TEXT = [("a", "a man runs")] * 300
VAL = [("b", "a man sleeps")] * 60
CHINESE = [("a", "人在跑。")] * 300


@pytest.mark.parametrize(
    ("train", "val", "runs", "message"),
    [
        (TEXT, VAL, RUNS, ""),
        (TEXT, VAL, [], "aren't here"),
        (TEXT, [], RUNS, "every line of val"),
        (TEXT[:1], VAL, RUNS, "learned from 250 to 29,000 pairs"),
        (TEXT * 200, VAL, RUNS, "learned from 250 to 29,000 pairs"),
        (TEXT, VAL[:3], RUNS, "fewer than 100"),
        (CHINESE, VAL, RUNS, "without spaces"),
    ],
)
def test_a_range_is_given_only_where_the_runs_can_tell(train, val, runs, message):
    reason = plan.reason(train, val, runs)
    assert message in reason and bool(message) == bool(reason)


def test_what_train_shows_of_val_is_counted_in_pairs_of_neighbours():
    """Of the target side alone, whatever the case; a line of one word has none."""
    train = [("x", "A man runs"), ("y", "runs fast")]
    assert plan.seen(train, [("q", "a man runs fast")]) == 1
    assert plan.seen(train, [("q", "A MAN sleeps"), ("a man", "Man")]) == 0.5
    assert plan.seen(train, [("a man", "man")]) == 0
    signs = [("x", "我们在跑 with Firefox"), ("y", "ฉันวิ่ง")]
    assert plan.seen(signs, [("q", "我们")]) == plan.seen(signs, [("q", "วิ่ง")]) == 1


def test_the_range_follows_the_runs_and_is_as_wide_as_it_says():
    """Catches a share that counts backwards, and one run told as a range."""
    runs = [(0.4, 6.0), (0.5, 10.0), (0.6, 16.0), (0.7, 25.0)]
    for share in (0.2, 0.4, 0.66, 0.95):
        low, high = (bleu / (100 - bleu) for bleu in plan.expected(share, runs))
        assert high / low == pytest.approx(plan.WIDE**2)
    for rows in (runs, plan.measured()):
        for share, bleu in rows:
            low, high = plan.expected(share, rows)
            assert low < bleu < high
    assert plan.expected(0.2, runs)[1] < 6.0 and plan.expected(0.95, runs)[0] > 50
    assert plan.expected(0.5, runs[:1] * 5) is None
    assert plan.expected(0.5, []) is plan.expected(0.0, runs) is None


@pytest.mark.parametrize("pairs", [1, 3000, 10**7])
@pytest.mark.parametrize("trained", [False, True])
def test_what_plan_recommends_can_be_trained(pairs, trained):
    changes, updates = plan.recipe(pairs, trained)
    # ValueError for what does not fit
    assert make_settings("tiny", False, changes).warmup < updates


# --- doctor ---
@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that was stopped in its warmup."""
    data = caption_files(tmp_path_factory.mktemp("data"), train=200, val=60)
    run = tmp_path_factory.mktemp("runs") / "young"
    small = "--N 1 --d-model 32 --d-ff 32 --h 2 --bpe 100 --tokens-per-batch 400"
    command = f"train --data {data} --run {run} {small} --steps 20 --checkpoint-every 10"
    assert main(command.split()) == 0
    return run


@pytest.fixture
def few_pairs(monkeypatch) -> None:
    """An examination with a quarter of its pairs."""
    monkeypatch.setattr(doctor, "SOME", 12)


def test_a_run_that_was_stopped_in_its_warmup_is_young_and_not_ill(trained, few_pairs):
    diagnosis = doctor.diagnose(trained)
    states = {symptom["test"]: symptom["state"] for symptom in diagnosis["symptoms"]}
    assert diagnosis["verdict"] == "undertrained" and states["warmup"] == "young"
    assert "ill" not in states.values()


def test_a_decoder_that_sees_the_future_is_named(trained, few_pairs, monkeypatch):
    """Catches an examination that doesn't reach the model, and a verdict without its mistake."""

    def everything(size):
        return torch.ones(1, size, size, dtype=torch.bool)

    monkeypatch.setattr(tat, "subsequent_mask", everything)
    diagnosis = doctor.diagnose(trained)
    assert diagnosis["verdict"] == "resembles"
    assert "no_causal_mask" in [mistake["name"] for mistake in diagnosis["resembles"]]
    assert any("Masks" in line for line in doctor.report(diagnosis))


def rows_of(*losses):
    return [{"step": 100 * i, "val_loss": loss} for i, loss in enumerate(losses, 1)]


@pytest.mark.parametrize(
    ("rows", "symptoms"),
    [
        (rows_of(3.0, 2.9, 2.85, 2.84), []),
        (rows_of(3.0, 2.5), [("falling", "young")]),
        (rows_of(3.0, 2.5, 2.4, 2.45, 2.8), [("overfit", "ill")]),
        (rows_of(5.4, 5.35), [("frequency", "young")]),
        (rows_of(5.4, 5.3, 5.3, 5.25, 5.25), [("frequency", "ill")]),
        ([*rows_of(3.0, 2.95), {"step": 200, "skipped": 150}], [("skipped", "ill")]),
        (rows_of(3.0, None, 2.95), []),
        ([*rows_of(3.0, None), {"step": 200, "skipped": None}], [("diverged", "ill")]),
        (rows_of(5.4), [("warmup", "young")]),
        ([], []),
    ],
)
def test_what_a_log_shows(rows, symptoms):
    assert [(s.test, s.state) for s in doctor.of_log(rows, 100, 5.5)] == symptoms


@pytest.mark.parametrize(
    ("factor", "warmup", "ill"), [(0.75, 100, False), (22.5, 100, True), (0.75, 10**6, True)]
)
def test_a_rate_far_from_what_plan_takes_is_told(factor, warmup, ill):
    """As the log has it, at its peak; a rate of the paper's base model is none of these."""
    rows = [{"step": n, "lr": tat.rate(n, 128, factor, warmup)} for n in (1, 50, 100, 400)]
    assert bool(doctor.of_rate(rows, 128)) is ill
    base = [{"step": 4000, "lr": tat.rate(4000, 512, 1.0, 4000)}]
    assert doctor.of_rate(base, 512) == []


@pytest.mark.parametrize(("changes", "ill"), [({}, 0), ({"dropout": 0.9, "smoothing": 0.9}, 2)])
def test_settings_that_explain_why_nothing_was_learned_are_told(changes, ill):
    """And then no mistake is looked for, whatever else is ill."""
    symptoms = doctor.of_settings(make_settings("tiny", False, changes))
    assert len(symptoms) == ill
    symptoms += [doctor.Symptom(test, "ill", "") for test in ("swap", "overlap")]
    assert bool(doctor.resembles(symptoms)) is not bool(ill)


WELL = [doctor.Symptom(test, "well", "") for test in doctor.EVERY]


@pytest.mark.parametrize(
    ("ill", "first"),
    [
        (["future", "padding"], "no_causal_mask"),
        (["source order"], "no_positions_in_encoder"),
        (["future"], None),  # all that show the future on German numbers show padding as well
        (["swap", "overlap"], "pairs_misaligned"),
        (["rate", "swap", "variety"], "rate_too_high"),
        (["low rate", "swap", "variety"], None),
        (["evaluation", "overlap"], None),  # it has learned, and something else is asked
        (["translations"], None),
        (["modes", "swap"], None),
    ],
)
def test_a_suspect_contradicts_no_test_that_passed(ill, first):
    """Catches suspects by kind alone, such as a missing mask where the future is well."""
    symptoms = [doctor.Symptom(test, "ill", "") for test in ill]
    symptoms += [symptom for symptom in WELL if symptom.test not in ill]
    names = [mistake.name for mistake in doctor.resembles(symptoms)]
    assert names[:1] == ([first] if first else [])
    for name in names:
        assert not set(doctor.EVERY).difference(ill).intersection(*doctor.ill_tests()[name])


@pytest.mark.parametrize(
    ("bleu_expected", "share", "state"),
    [((0, 100), 0.1, "well"), ((40, 90), 1.0, "ill"), ((40, 90), 0.1, "young")],
)
def test_few_updates_are_no_illness_and_many_that_came_to_nothing_are(
    bleu_expected, share, state, trained
):
    """Nonsense is ill only where the text's updates were had; what nobody expects isn't missed."""
    translator = read_translator(trained)
    held_out = doctor.held_out_pairs(trained, translator, None)
    assert len(held_out) == 60  # all, as `plan` takes them
    pairs = doctor.some_pairs(held_out, "run")
    prospect = doctor.Prospect(1000, share, *bleu_expected)
    rows = [[tat.BOS + 5, tat.EOS] for _ in pairs]
    bleu, symptom = doctor.of_translations(rows, pairs, translator, prospect)
    assert bleu < 1 and symptom.state == state and "0 of" in symptom.said
    references = [pair.tgt for pair in pairs]
    bleu, symptom = doctor.of_translations(references, pairs, translator, prospect)
    assert bleu == pytest.approx(100) and symptom.state == "well"


def test_evaluation_is_held_beside_training(trained):
    """The loss that the log has of train, beside that of the same text in evaluation."""
    translator = read_translator(trained)
    patient = doctor.patient_of(translator.model, 20)
    train = doctor.some_of_train(doctor.tokens_of(trained, "train", translator))
    loss = examine.own_loss(patient, train)
    for logged, ill in ((loss, []), (loss - 0.6, ["evaluation"])):
        symptoms = doctor.of_modes(patient, train, train, [{"step": 1, "loss": logged}], False)
        assert [symptom.test for symptom in symptoms if symptom.state == "ill"] == ill


def test_a_training_that_learns_nothing_says_so_once(tmp_path, capsys):
    """And one that learns doesn't."""
    data = caption_files(tmp_path / "data", train=100, val=40)
    small = "--N 1 --d-model 32 --d-ff 32 --h 2 --bpe 100 --tokens-per-batch 400"
    small += " --checkpoint-every 4"
    for factor, warmup, count in ((0, 4, 1), (2, 40, 0)):
        command = f"train --data {data} --run {tmp_path / str(factor)} {small}"
        command += f" --factor {factor} --warmup {warmup} --steps {2 * warmup + 8}"
        assert main(command.split()) == 0
        assert capsys.readouterr().err.count("little better than") == count
