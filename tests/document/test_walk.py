"""The sentence's way through the trained model is as the text says, also without the file."""

import re
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import the_annotated_transformer as tat

SCRIPT = Path(tat.__file__).read_text(encoding="utf-8")
PART_1 = SCRIPT[SCRIPT.index("\n# # Part 1:") : SCRIPT.index("\n# # Part 2:")]
EXAMPLES = re.findall(r"(?s)def (example_\w+)\((.*?)\n\n\n", PART_1)
WALK = [name for name, code in EXAMPLES if "our_" in code]
IN_PART_1 = {name: value for name, value in vars(tat).items() if f"def {name}(" in PART_1}
CACHED = [value for value in IN_PART_1.values() if hasattr(value, "cache_clear")]


@pytest.fixture
def tokens() -> list[str]:
    return tat.token_names(tat.our_ids()[0])


@pytest.fixture
def without_file(monkeypatch):
    """The document alone in its folder."""

    def nowhere(name: str) -> Path:
        raise FileNotFoundError(f"{name} is not beside this document")

    monkeypatch.setattr(tat, "beside", nowhere)
    for cached in CACHED:
        cached.cache_clear()
    yield
    for cached in CACHED:
        cached.cache_clear()


@pytest.mark.parametrize("name", WALK)
def test_without_the_file_a_stop_goes_the_same_way(name, without_file, capsys):
    """With fresh weights, and a notice; the checks of the example hold for them as well."""
    getattr(tat, name)()
    notice = "NOTICE: models/multi30k-de-en/model.safetensors is not beside"
    assert notice in capsys.readouterr().out


def test_the_weights_of_the_file_are_taken_in(tokens):
    assert len(tat.our_file().weights) == 125 and len(tokens) == 15
    model = tat.our_file().fill(tat.make_model(6106, 6106, **tat.SIZES, norm="pre", tie="all"))
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, tat.our_file().weights[name].float()), name
    with pytest.raises(KeyError):
        tat.our_file().fill(torch.nn.Linear(2, 2), "encoder")


def test_words_look_where_the_text_says(tokens):
    """Part 1: who looks at whom in three heads of the encoder."""
    at = {token.strip("▁"): i for i, token in enumerate(tokens)}
    streams, weights = tat.our_maps()
    first = weights[0][1]
    Q, K, V = tat.one_head(tat.our_vectors())
    assert_close(tat.attention(Q, K, V)[1], first, atol=1e-5, rtol=1e-4)
    assert_close(streams[1], tat.our_connection(0, 1)(tat.our_attended(), tat.our_feed_forward(0)))
    assert_close(tat.our_memory(), tat.our_encoder().norm(streams[-1]))
    for query, key in (("auf", "Bank"), ("ein", "Mann"), ("während", "Mann"), (".", "</s>")):
        assert first[at[query]].argmax() == at[key], query
    assert round(first[at["auf"], at["Bank"]].item(), 2) == 0.78
    assert round(first[at["ein"], at["Mann"]].item(), 2) == 0.54
    assert weights[0][2][at["Frauen"]].argmax() == at["Zwei"]
    ahead, before = weights[1][3], weights[2][2]
    for query, key in (("auf", "Bank"), ("einer", "Bank"), ("während", "Mann"), ("ein", "Mann")):
        assert ahead[at[query], at[key]] > 0.8, query
    for query in ("Mann", "eine", "Zeitung", "liest"):
        assert ahead[at[query]].argmax() == at["liest"], query
    assert sum(int(before[i].argmax()) == i - 1 for i in range(1, 15)) >= 7
    sizes = [x.square().mean().sqrt().item() for x in streams]
    similar = tat.F.cosine_similarity(streams[-1], streams[0], dim=-1)[0]
    assert sizes == sorted(sizes) and round(sizes[-1] / sizes[0]) == 6
    assert all(similar[i] > 0.6 for i, token in enumerate(tokens) if token.startswith("▁"))


def test_without_positions_a_word_finds_a_kind_of_word_but_not_its_neighbour(tokens):
    """The answers folded under the first predictions, and what dividing by the root of d_k does."""
    at = {token.strip("▁"): i for i, token in enumerate(tokens)}
    Q, K, V = tat.one_head(tat.our_embeddings()(tat.our_ids()))
    weights = tat.attention(Q, K, V)[1]
    first, second = weights[at["auf"]].topk(2)[0].tolist()
    assert weights[at["auf"]].argmax() == at["Bank"] and round(first, 2) == 0.49 and second < 0.11
    article = weights[at["ein"]]
    placed = tat.attention(*tat.one_head(tat.our_vectors()))[1][at["eine"]]
    assert placed.argmax() == at["."]
    assert [round(placed[at[to]].item(), 2) for to in (".", "Zeitung")] == [0.33, 0.08]
    assert article.argmax() == at["Zeitung"] and article.max() < 0.15
    assert round(article[at["Mann"]].item(), 2) == 0.1
    undivided = (Q @ K.T).softmax(-1)
    assert [round(w.amax(-1).mean().item(), 2) for w in (weights, undivided)] == [0.21, 0.71]


def test_the_decoder_looks_where_the_text_says(tokens):
    """Cross-attention of layer 3, mean of heads: *are*, *sitting*: `sitzen`, *reads*: `liest`."""
    at = {token.strip("▁"): i for i, token in enumerate(tokens)}
    with tat.recording(tat.our_decoder()) as kept:
        tat.our_decoded(tat.target_ids())
    rows = kept[tat.our_decoder().layers[2].src_attn][0].mean(0)
    assert [int(rows[t].argmax()) for t in (2, 3, 10)] == [at["sitzen"], at["sitzen"], at["liest"]]
    assert abs(rows[10, at["liest"]] - 0.75) < 0.02
    length = tat.our_embeddings().table.weight.norm(dim=1)
    number = tat.our_file().vocabulary.token_to_id
    german, english = (
        "Zwei Frauen sitzen Bank während Mann Zeitung liest",
        "Two women sitting bench while man newspaper reads",
    )
    for read, written in zip(german.split(), english.split(), strict=True):
        assert length[number(f"▁{written}")] > length[number(f"▁{read}")]
    are = tat.example_top_five().iloc[2].tolist()
    assert [cell.split()[0] for cell in are[:3]] == ["▁are", "▁sit", "▁sitting"]
    assert [round(float(cell.split()[1][:-1])) for cell in are[:3]] == [41, 29, 21]
    ids = tat.write_by_hand()
    log_p = tat.our_generator()(tat.our_decoded(ids[:, :-1])).gather(-1, ids[:, 1:, None])
    # of the whole, as its question says
    assert log_p.numel() == 15 and round(100 * log_p.sum().exp().item()) == 6


def test_attention_adds_half_as_much_as_is_there(tokens):
    """For `auf`, which receives most; the sum still points the way it did."""
    before, after = tat.our_vectors()[0], tat.our_attended()[0]
    sizes = [x.square().mean(-1).sqrt() for x in (before, after - before)]
    auf = int((sizes[1] / sizes[0]).argmax())
    assert tokens[auf] == "▁auf" and [round(x[auf].item(), 2) for x in sizes] == [1.57, 0.72]
    assert round(tat.F.cosine_similarity(before, after, dim=-1)[auf].item(), 2) == 0.93


def test_what_is_tried_happens_as_the_text_says(capsys):
    """The lines under `Try it`, in both settings."""
    hunt = "Ein Mann jagt einen Hund.", "Ein Hund jagt einen Mann."
    assert [tat.translate(text) for text in hunt] == ["A man chases a dog.", "A dog chases a man."]
    assert [tat.translate(text, positions=False) for text in hunt] == ["A man chases a dog."] * 2
    photo = tat.translate("Ein Hund fotografiert einen Mann.", scaling=False)
    assert photo == "A dog is taking pictures of a dog, wearing."
    assert tat.translate(tat.SENTENCE, scaling=False) == tat.translate(tat.SENTENCE)
    model = tat.our_transformer()
    for layer in model.encoder.layers:
        layer.self_attn.W_o.weight.zero_()
    assert tat.translation(model, tat.SENTENCE) == tat.translate(tat.SENTENCE)
    suit = tat.translation(model, "Ein Mann mit Anzug und Brille hält ein Buch in den Händen.")
    assert suit == "A man with glasses and a book in a suit is holding a book."
    model = tat.our_transformer()
    model.tgt_embed = model.tgt_embed.embeddings
    assert tat.translation(model, tat.SENTENCE) == tat.translate(tat.SENTENCE)
    written = {}
    for name, settings in {"whole": {}, "mask": {"mask": False}, "shift": {"shift": False}}.items():
        tat.learn_one_sentence(**settings)
        losses, written[name] = capsys.readouterr().out.splitlines()
        assert re.search(r"0\.0\d at update 50", losses), losses
    ours = " ".join(tat.token_names(tat.write_by_hand()[0]))
    assert written["whole"] == f"it writes: {ours}" != written["mask"]
    assert written["shift"] == "it writes:" + " <s>" * 17


def first_loss(model: tat.Transformer) -> float:
    batch = tat.Batch(tat.our_ids(), tat.write_by_hand())
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    return tat.F.cross_entropy(logits.flatten(0, 1), batch.tgt_y.flatten()).item()


@torch.no_grad()
def test_a_table_of_large_entries_is_sure_of_what_it_has_just_read():
    """The first loss that readers predict: about 127 instead of 9."""
    torch.manual_seed(0)
    model = tat.make_model(6106, 6106, **tat.SIZES, dropout=0.0, norm="pre", tie="all")
    assert 8.7 < first_loss(model) < 9.5
    torch.nn.init.normal_(model.generator.proj.weight)
    assert 120 < first_loss(model) < 135


def test_neurons_answer_to_what_the_text_says(tokens):
    """Number 215 of the first layer to verbs, in the sentence and in the whole vocabulary."""
    attended = tat.our_connection(0, 1).norm(tat.our_attended())
    inner = tat.our_feed_forward(0).W_1(attended).relu()[0, :, 215]
    assert [tokens[i] for i in inner.nonzero().flatten()] == ["▁sitzen", "▁liest"]
    vocabulary = tat.our_file().vocabulary
    alone = torch.tensor([[token, tat.EOS] for token in range(vocabulary.get_vocab_size())])
    x = tat.our_embeddings()(alone) + tat.positional_encoding(2, 128)
    layer = tat.our_encoder().layers[0]
    y = layer.sublayer[0](x, lambda x: layer.self_attn(x, x, x))
    answers = layer.feed_forward.W_1(layer.sublayer[1].norm(y)).relu()[:, 0]
    verbs = tat.token_names(answers[:, 215].topk(6).indices)
    assert set(verbs) == {"▁raucht", "▁liest", "▁bedient", "▁rutscht", "▁zeigen", "▁nimmt"}


def test_the_translation_is_that_of_the_assembled_model():
    """By the document's own search and the model that `load_translator` reads."""
    expected = "Two women are sitting on a bench while a man reads a newspaper."
    ids = tat.write_by_hand()[0]
    assert "".join(tat.token_names(ids[ids > tat.UNK])).replace("▁", " ").strip() == expected
    shipped = tat.load_translator(tat.HERE / tat.SHIPPED_MODEL)
    assert tat.translate_lines(shipped, tat.SENTENCE) == expected


# --- Numbers ---
def test_german_numbers():
    """Units before tens; every number has a name of its own."""
    names = {0: "null", 1: "eins", 16: "sechzehn", 21: "einundzwanzig", 30: "dreißig"}
    names |= {100: "einhundert", 201: "zweihunderteins", 917: "neunhundertsiebzehn"}
    names |= {777: "siebenhundertsiebenundsiebzig"}
    assert {n: tat.german_number(n) for n in names} == names
    assert len({tat.german_number(n) for n in range(1000)}) == 1000


def test_what_the_numbers_are_tested_on_was_not_learned(monkeypatch):
    seen = []

    def watch(_, found):
        return seen.extend(pair for batch in found for pair in batch)

    monkeypatch.setattr(tat, "fit", watch)
    tat.train_numbers.cache_clear()
    held_out = tat.train_numbers(updates=300)[1]
    tat.train_numbers.cache_clear()
    assert len(set(held_out)) == 180 and min(held_out) >= 100
    trained = {tuple(pair.src) for pair in seen}
    assert not trained & {tuple(tat.number_pair(n).src) for n in held_out}
    assert len(trained) > 750  # of 820


# --- Looking inside ---
def test_the_heads_of_the_encoder_do_what_the_text_says():
    """Part 6: two of four give nearly half of their weight to the left; one resolves a pronoun."""
    shipped = tat.load_translator(tat.HERE / tat.SHIPPED_MODEL)
    seen = tat.attention_maps(shipped, tat.LONG_SENTENCE)
    weights = seen.maps["encoder"][-2]
    words = seen.source
    shares_of_the_left = [head.diagonal(-1).sum().item() / len(words) for head in weights]
    assert [i for i, share in enumerate(shares_of_the_left) if 0.4 < share < 0.5] == [2, 3]
    assert max(shares_of_the_left[:2]) < 0.1
    pronoun = weights[0, words.index("▁seinem")]
    dog, man = (pronoun[words.index(noun)].item() for noun in ("▁Hund", "▁Mann"))
    assert dog > 0.5 and 0.4 < man / (1 - dog) < 0.6


def test_the_lens_ends_with_what_the_model_says(small_model, sentences):
    model = small_model(norm="pre")
    b = sentences
    lens = tat.logit_lens(model, b)
    assert len(lens) == 3
    assert torch.equal(lens[-1], model(b.src, b.tgt, b.src_mask, b.tgt_mask).argmax(-1))
    first = model.decoder.norm(model.tgt_embed(b.tgt))
    assert torch.equal(lens[0], model.generator.logits(first).argmax(-1))


def test_patching_all_attention_to_the_source_gives_the_other_sentence():
    """At the first position, with nothing else to read; without a replacement nothing changes."""
    translator = tat.load_translator(tat.HERE / tat.SHIPPED_MODEL)
    cross = [layer.src_attn for layer in translator.model.decoder.layers]
    texts = "Ein Hund läuft.", "Zwei Frauen sitzen auf einer Bank."
    first, second = (tat.patched(translator, (text, text), "", []) for text in texts)
    assert_close(tat.patched(translator, texts, "", cross), second)
    assert_close(tat.patched(translator, texts, "", []), first)
    assert (first - second).abs().max() > 0.5
    assert not any(attn._forward_hooks for attn in cross)


def test_the_last_two_layers_together_bring_the_noun(multi30k, monkeypatch):
    """Part 6, of a hundred captions: both change the word, one alone and the control never do."""
    monkeypatch.setenv("ANNOTATED_DATA", str(multi30k))
    for cached in (tat.choose_data, tat.load_split, tat.our_model):
        cached.cache_clear()
    boys = [int(row["boy"].split()[0]) for row in tat.example_patching().to_dict("records")]
    assert boys[3] >= 95 and boys[:3] + boys[4:] == [0, 0, 0, 0]
    for cached in (tat.choose_data, tat.load_split, tat.our_model):
        cached.cache_clear()
