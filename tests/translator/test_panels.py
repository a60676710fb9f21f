"""One sentence's panels compute what PyTorch computes, and all follow the reader's sentence."""

import pytest
import torch
from torch import Tensor

import since_2017 as since
import the_annotated_transformer as tat
from tests.helpers import node
from tests.translator.test_explorer import small_translator
from translator import explorer
from translator.search import fast_beam

SENTENCE = "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest."
RUN = """
import { greedyDecode, greedySteps } from "./model/decoding.js";
import * as Trace from "./model/trace.js";
import { Translator } from "./model/translator.js";
const translator = await Translator.load(asked.content);
const { model, tokenizer } = translator, facts = Trace.trace(translator, asked.sentence);
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
facts.whole = greedyDecode(model, facts.src);
"""
INTERVENTIONS = """
const all = (search) => {
  for (;;) {
    const { done, value } = search.next();
    if (done) return value;
  }
};
const without = (place) => {
  const greedy = () => greedySteps(model, facts.src);
  return tokenizer.decode(all(Trace.without(model, { cross: [place] }, greedy)));
};
facts.lens = facts.steps.map((step) => Trace.lens(translator, step));
facts.without = without("3 4");
facts.again = [without("1 1"), without("3 4")];
facts.near = Trace.neighbours(translator, facts.src[1]);
const sentences = [asked.sentence, asked.sentence.replace("Frauen", "Kinder")];
facts.patch = Trace.patched(translator, sentences, facts.ids.slice(0, -1));
"""


def test_a_doubtful_word_is_marked_whole():
    """Catches tokens judged alone."""
    steps = [{"chosen": p} for p in (0.9, 0.6, 0.6, 0.5, 0.3)]
    script = """
        import { doubtful } from "./views/trust.js";
        console.log(JSON.stringify(doubtful(asked.steps, (i) => asked.starts[i])));
    """
    marked = node(script, {"steps": steps, "starts": [1, 1, 0, 1, 1]})
    assert marked == [False, True, True, False, True]


def facts_of(translator: tat.Translator, sentence: str, more: str = "") -> dict:
    """What model/trace.js finds for a sentence with this model."""
    content = explorer.model_content(translator, "x")
    script = f"{RUN}{more}console.log(JSON.stringify(facts, plain));"
    return node(script, {"content": content, "sentence": sentence})


@pytest.fixture(scope="module")
def facts(shipped) -> dict:
    return facts_of(shipped, SENTENCE, INTERVENTIONS)


def equal(numbers: list, expected: Tensor) -> None:
    numbers = torch.tensor(numbers, dtype=torch.float)
    torch.testing.assert_close(numbers, expected.float(), rtol=1e-3, atol=1e-3)


@torch.inference_mode()
def test_the_encoders_numbers_are_pytorchs(facts, shipped):
    model = shipped.model
    src = torch.tensor([facts["src"]])
    assert facts["src"] == [*shipped.tokenizer.encode(SENTENCE, "de"), tat.EOS]
    rows = model.src_embed.embeddings.table.weight[src[0]]
    x = model.src_embed(src)
    states = {"rows": rows, "embedded": rows * rows.size(1) ** 0.5, "input": x[0]}
    for name, expected in states.items():
        equal(facts[name], expected)
    equal(facts["positions"], tat.positional_encoding(src.size(1), rows.size(1)))
    for twin, layer in zip(facts["layers"], model.encoder.layers, strict=True):
        first, second, attn = *layer.sublayer, layer.self_attn
        normed = first.norm(x)
        matrices = (attn.W_q, attn.W_k, attn.W_v)
        q, k, v = (W(normed)[0].unflatten(-1, (attn.h, -1)).transpose(0, 1) for W in matrices)
        scores = q @ k.mT / q.size(-1) ** 0.5
        attended = attn.W_o((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))
        between = x[0] + attended
        inner = layer.feed_forward.W_1(second.norm(between)).relu()
        after = layer(x, None)
        steps = {"before": x[0], "normed": normed[0]}
        steps |= {"scores": scores, "weights": scores.softmax(-1)}
        steps |= {"attended": attended, "between": between, "inner": inner, "after": after[0]}
        for name, expected in steps.items():
            equal(twin[name], expected)
        x = after
    equal(facts["memory"], model.encode(src, None)[0])


@torch.inference_mode()
def test_a_model_with_rotary_positions_turns_queries_and_keys(shipped):
    """Catches scores of unturned vectors, at once or step by step, and positions still added."""
    translator = small_translator(shipped, positions="rotary", N=3, h=4)
    model = translator.model
    facts = facts_of(translator, "Zwei Frauen lesen.")
    src, ids = torch.tensor([facts["src"]]), torch.tensor([facts["whole"]])
    assert not torch.tensor(facts["positions"]).any()
    for twin, layer in zip(facts["layers"], model.encoder.layers, strict=True):
        attn = layer.self_attn
        normed = torch.tensor([twin["normed"]])
        heads = (W(normed).unflatten(-1, (attn.h, -1)) for W in (attn.W_q, attn.W_k))
        Q, K = (since.rotated(head.transpose(1, 2)) for head in heads)
        scores = (Q @ K.mT)[0] / Q.size(-1) ** 0.5
        equal(twin["scores"], scores)
        equal(twin["weights"], scores.softmax(-1))
        equal(twin["attended"], attn(normed, normed, normed)[0])
    memory = model.encode(src, None)
    equal(facts["memory"], memory[0])
    mask = tat.subsequent_mask(ids.size(1) - 1)
    last = model.generator.logits(model.decode(memory, None, ids[:, :-1], mask))[0, -1]
    assert last.argmax() == ids[0, -1]


@torch.inference_mode()
def test_the_decoders_numbers_are_pytorchs(facts, shipped):
    """Logits and weights of every step, the logit lens, and the translation with a head removed."""
    model = shipped.model
    src = torch.tensor([facts["src"]])
    T = len(facts["steps"])
    limit = src.size(1) + 50
    options = {"beam": tat.BEAM, "alpha": tat.ALPHA}
    ids = torch.tensor(fast_beam(model, src, tat.source_mask(src), limit, **options)[0][0].ids)
    assert facts["ids"] == ids.tolist()
    assert facts["translation"] == shipped.tokenizer.decode(ids.tolist())
    states = []
    tgt = ids[None, :-1]

    def keep(*found):
        return states.append(found[-1])

    hooks = [layer.register_forward_hook(keep) for layer in model.decoder.layers]
    logits = model(src, tgt, tat.source_mask(src), tat.target_mask(tgt))[0]
    for hook in hooks:
        hook.remove()
    equal([step["logits"] for step in facts["steps"]], logits)
    expected = torch.stack([state[0] for state in states], 1)
    equal([step["states"] for step in facts["steps"]], expected)
    # (layers, T)
    lens = model.generator.logits(model.decoder.norm(torch.cat(states))).softmax(-1).max(-1)
    assert [[token["id"] for token in step] for step in facts["lens"]] == lens.indices.T.tolist()
    equal([[token["p"] for token in step] for step in facts["lens"]], lens.values.T)
    maps = tat.attention_maps(shipped, SENTENCE, lambda *_, **__: ids[None]).maps
    for n in range(len(states)):
        cross = torch.tensor([step["cross"][n][0] for step in facts["steps"]])  # (T, h, S)
        torch.testing.assert_close(cross.transpose(0, 1), maps["cross"][n], rtol=1e-3, atol=1e-3)
        for t in range(T):
            equal(facts["steps"][t]["decoder"][n][0], maps["decoder"][n][:, t, : t + 1])


def test_a_head_that_was_removed_is_there_again(facts):
    assert facts["without"] != facts["translation"]
    assert facts["again"][1] == facts["without"] and facts["whole"] == facts["ids"]


@torch.inference_mode()
def test_neighbours_and_patches_are_the_documents(facts, shipped):
    """The nearest rows by cosine; `patched` after the words both begin with, for all sublayers."""
    table = shipped.model.src_embed.embeddings.table.weight
    cosines = torch.nn.functional.cosine_similarity(table, table[facts["src"][1]][None])
    near = cosines.topk(9).indices.tolist()[1:]
    assert [neighbour["id"] for neighbour in facts["near"]] == near
    equal([neighbour["cosine"] for neighbour in facts["near"]], cosines[near])
    patch = facts["patch"]
    layers = shipped.model.decoder.layers
    prefix = shipped.tokenizer.decode(facts["ids"][: patch["at"] + 1])
    assert prefix == "Two" and len(patch["rows"]) == 8
    for row in patch["rows"]:
        kind = "src_attn" if row["kind"] == "cross" else "self_attn"
        attentions = [getattr(layers[n], kind) for n in row["layers"]]
        pair = (SENTENCE, SENTENCE.replace("Frauen", "Kinder"))
        p = tat.patched(shipped, pair, prefix, attentions)
        equal(row["p"], p[patch["names"]])
