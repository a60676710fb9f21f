"""The explorer: JavaScript computes what PyTorch computes, and the figure does what it promises."""

import copy
import dataclasses
import gzip
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import the_annotated_transformer as tat
from blog.style import run_node
from tests.helpers import ROOT, SOAK, node, offline_tab
from translator import explorer
from translator.captions import caption_pairs
from translator.search import Search
from translator.settings import PRESETS, build_model

SENTENCE = "Ein kleiner Junge spielt im Park mit einem Hund."
STRANGE = ["  Ein\tHund,\u00a0und\u2028eine   Katze. ", "Cafe\u0301 — „Ja!“ (100 % & 5€) a_b^c~d"]
STRANGE += ["Ж漢😀 <s> </s> a</script>▁b ▁▁ c", "é"]


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """Sentences of the grammar of captions, and those of Multi30k's validation set where it is."""
    lines = [source for source, _ in caption_pairs("train")][:500]
    path = ROOT.parent / "shared" / "multi30k" / "val.de.gz"
    if path.is_file():
        lines += gzip.decompress(path.read_bytes()).decode().splitlines()
    return [line for line in lines if line.strip()]


class Tab:
    """A page that was opened without a network; `problems` has errors and requests."""

    def __init__(self, browser, path: Path, width: int = 1300, **options):
        self.page, self.problems = offline_tab(browser, width, **options)
        self.read(path)

    def read(self, path: Path, query: str = "") -> None:
        self.page.goto(path.as_uri() + query)
        self.page.wait_for_selector("#figure #step-readout:not(:empty)", state="attached")

    def __getattr__(self, name: str):
        return getattr(self.page, name)

    def text(self, selector: str) -> str:
        """The text of the first match, spaces put together, once the model has answered."""
        self.answered()
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def answered(self) -> None:
        self.page.locator("#panel[aria-busy=false]").first.wait_for()

    def translate(self, sentence: str) -> None:
        """Write a sentence into the field and press the button."""
        self.page.fill("#text", sentence)
        self.page.click("text=Translate")

    def translation(self) -> str:
        """All of it, also of what the figure does not show yet."""
        self.answered()
        return self.page.evaluate("document.getElementById('figure').explored.result.translation")

    def written(self) -> list[str]:
        self.answered()
        return self.page.locator("#target bdi").all_text_contents()


def written_page(
    translator: tat.Translator, folder: Path, sentence: str = SENTENCE, name: str = "multi30k-de-en"
) -> Path:
    out = folder / "page.html"
    out.write_text(explorer.page(translator, name, sentence)[0], encoding="utf-8")
    return out


@pytest.fixture(scope="module")
def page_of_shipped(shipped, tmp_path_factory) -> Path:
    return written_page(shipped, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def one_tab(browser, page_of_shipped) -> Tab:
    return Tab(browser, page_of_shipped, reduced_motion="reduce")


@pytest.fixture
def tab(one_tab, page_of_shipped, request) -> Iterator[Tab]:
    """That page, read anew in a tab of all tests; there must be no error and no request."""
    one_tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    one_tab.mouse.move(0, 0)
    one_tab.set_viewport_size({"width": 1300, "height": 900})
    one_tab.problems.clear()  # those of another test
    one_tab.read(page_of_shipped, f"?{request.node.name}")
    yield one_tab
    assert not one_tab.problems


COMPUTE = """
import * as Decoding from "./model/decoding.js";
import * as Trace from "./model/trace.js";
import { Translator } from "./model/translator.js";
const { content, given } = asked, translator = await Translator.load(content);
const plain = (_, value) => (ArrayBuffer.isView(value) ? [...value] : value);
const show = (value) => console.log(JSON.stringify(value, plain));
"""


def computed(translator: tat.Translator, expression: str, given: object = None):
    """What a JavaScript expression of `translator`, as the page has it, and `given` gives."""
    content = explorer.model_content(translator, "x")
    return node(f"{COMPUTE}show({expression});", {"content": content, "given": given})


def small_translator(shipped: tat.Translator, **changes) -> tat.Translator:
    """The shipped vocabulary, a small model of other settings, weights that float16 has exactly."""
    sizes = {"N": 2, "d_model": 32, "d_ff": 48, "h": 2, "positions": "sinusoidal"}
    config = dataclasses.replace(PRESETS["tiny"], **sizes | changes)
    model = build_model(config, len(shipped.tokenizer)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((p + torch.randn_like(p) * 0.05).half())
    return tat.Translator(model, shipped.tokenizer, shipped.languages)


def logits_in_javascript(
    translator: tat.Translator,
    src: list[int],
    tgt: list[int],
    off: tuple[str, int, int] | None = None,
) -> torch.Tensor:
    """Each step's logits (T, vocab) for given targets; `off`: kind, layer and head set to zero."""
    logits = """(([src, tgt, off]) => {
        const { model } = translator;
        if (off) model.heads(off[0])[off[1]].off.add(off[2]);
        const decoder = new Decoding.CachedDecoder(model, model.encode(src).memory);
        return tgt.map((id) => decoder.step([id]).logits[0]);
    })(given)"""
    return torch.tensor(computed(translator, logits, [src, tgt, off]))


def difference(translator: tat.Translator, sentence: str) -> float:
    """The largest difference of any logit between JavaScript and PyTorch in float32."""
    src = [*translator.tokenizer.encode(sentence, "de"), tat.EOS]
    tgt = [tat.BOS, *translator.tokenizer.encode("A dog runs through a small park.", "en")]
    expected = logits_of(translator, src, tgt)
    return float((logits_in_javascript(translator, src, tgt) - expected).abs().max())


@pytest.mark.parametrize("path", ["explorer_page/explain.js", "translator_page/translate.js"])
def test_the_script_of_the_page_is_put_together_of_what_is_here(tmp_path, path):
    """It is committed, because an installed package has no `esbuild`; `make format` writes it."""
    if not (ROOT / "blog/node_modules/esbuild").is_dir():
        pytest.skip("no esbuild: npm ci --prefix blog")
    committed = ROOT / "translator" / path
    bundle = tmp_path / "bundle.js"
    run_node(str(ROOT / "blog/bundle.js"), committed.stem, str(bundle), check=True)
    assert bundle.read_bytes() == committed.read_bytes(), "make format"


def test_the_tokens_are_those_of_the_library(shipped, sentences):
    lines = [*sentences, *STRANGE]
    rows = computed(shipped, "given.map((line) => translator.tokenizer.encode(line))", lines)
    for line, ids in zip(lines, rows, strict=True):
        assert ids == shipped.tokenizer.encode(line, "de"), line
    decode = "given.map((ids) => translator.tokenizer.decode([1, ...ids, 2, 5]))"
    texts = computed(shipped, decode, rows)
    assert texts == [shipped.tokenizer.decode([tat.BOS, *ids, tat.EOS, 5]) for ids in rows]


def test_the_logits_are_those_of_pytorch(shipped):
    """Of the shipped model, and of every kind of model that the program trains."""
    assert difference(shipped, SENTENCE) < 1e-3
    changes = ("norm post", "positions learned", "positions rotary", "tie none", "tie target")
    for change in (*changes, "d_k 5"):
        name, value = change.split()
        model = small_translator(shipped, **{name: int(value) if value.isdigit() else value})
        assert difference(model, SENTENCE) < 1e-3, change


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_a_head_that_is_off_adds_nothing(shipped, kind):
    """As if the columns of W_o that read it were zero, which they are in PyTorch here."""
    translator = small_translator(shipped)
    intact = copy.deepcopy(translator)
    layer = (translator.model.encoder if kind == "encoder" else translator.model.decoder).layers[1]
    with torch.no_grad():
        attn = layer.src_attn if kind == "cross" else layer.self_attn
        attn.W_o.weight.view(32, 2, 16)[:, 1] = 0
    src = [*translator.tokenizer.encode(SENTENCE, "de"), tat.EOS]
    tgt = [tat.BOS, 50, 60, 70]
    expected = logits_of(translator, src, tgt)
    logits = logits_in_javascript(intact, src, tgt, off=(kind, 1, 1))
    assert (logits - expected).abs().max() < 1e-3
    assert (logits - logits_in_javascript(intact, src, tgt)).abs().max() > 1e-2


@torch.inference_mode()
def logits_of(translator: tat.Translator, src: list[int], tgt: list[int]) -> torch.Tensor:
    """The document's model's, in float32: (T, vocab)."""
    masks = None, tat.subsequent_mask(len(tgt))
    return translator.model(torch.tensor([src]), torch.tensor([tgt]), *masks)[0]


@torch.inference_mode()
@pytest.mark.parametrize("name", ["positions", "scaling", "mask"])
def test_what_is_switched_off_is_off_in_pytorch_too(shipped, name):
    """As the document's `translate` has it; without a mask, each step reads all that is written."""
    translator = small_translator(shipped)
    model = copy.deepcopy(translator.model)
    if name == "positions":
        model.src_embed = model.src_embed.embeddings
    for module in model.modules():
        if name == "scaling" and isinstance(module, tat.MultiHeadedAttention):
            module.W_q.weight *= 4  # √16
    src = [*translator.tokenizer.encode(SENTENCE, "de"), tat.EOS]
    tgt = [tat.BOS, 50, 60, 70]
    script = """(([src, tgt, name]) => {
        const { model } = translator;
        function* logits() {
            const decoder = new Decoding.CachedDecoder(model, model.encode(src).memory);
            return tgt.map((id) => decoder.step([id]).logits[0]);
        }
        return Trace.switched(model, { [name]: false }, logits).next().value;
    })(given)"""
    for t, logits in enumerate(torch.tensor(computed(translator, script, [src, tgt, name]))):
        written = torch.tensor([tgt[: t + 1]])
        mask = None if name == "mask" else tat.subsequent_mask(t + 1)
        expected = model(torch.tensor([src]), written, None, mask)[0, -1]
        assert (logits - expected).abs().max() < 1e-3
    assert (logits - logits_of(translator, src, tgt)[-1]).abs().max() > 1e-2


def test_the_translations_are_those_of_the_program(shipped, sentences):
    """Greedily and with the beam. Rounding may decide a tie: one in a hundred may differ."""
    chosen = torch.linspace(0, len(sentences) - 1, 500 if SOAK else 12).long()
    lines = [sentences[i] for i in chosen]
    for beam in (1, tat.BEAM):
        translate = f"(line) => translator.translate(line, {{ beam: {beam} }})"
        texts = computed(shipped, f"given.map({translate})", lines)
        expected = Search(shipped, beam).translate(lines)
        different = [pair for pair in zip(texts, expected, strict=True) if pair[0] != pair[1]]
        assert len(different) <= len(lines) / 100, different


def test_recorded_weights_are_those_that_the_page_computes(shipped):
    recorded = explorer.recorded(Search(shipped, tat.BEAM), SENTENCE)
    src = computed(shipped, "translator.source(given)", SENTENCE)
    maps = "translator.attentionMaps(given, Decoding.beamSearch(translator.model, given).ids)"
    live = computed(shipped, maps, src)
    for side in ("source", "target", "predicted"):
        assert live[side] == recorded[side]
    for kind in ("encoder", "decoder", "cross"):
        ours, theirs = (torch.tensor(result["maps"][kind]) for result in (live, recorded))
        assert torch.allclose(ours, theirs, atol=2e-4)
    for ours, theirs in zip(live["steps"], recorded["steps"], strict=True):
        assert ours["chosen"] == pytest.approx(theirs["chosen"], abs=1e-4)
        assert ours["likeliest"][0]["token"] == theirs["likeliest"][0]["token"]


def test_a_sentence_is_translated_and_stepped_through(tab, shipped):
    tab.translate("Zwei Frauen lesen ein Buch.")
    expected = Search(shipped, tat.BEAM).translate(["Zwei Frauen lesen ein Buch."])[0]
    assert tab.text("#translation") == expected
    tab.locator("#step").fill("2")
    step = f"Step 2 of {len(tab.written())}. It has written “{tab.written()[0]}”"
    assert tab.text("#step-readout").startswith(step)
    assert len(tab.text("#likeliest").split("%")) == 6

    def weight(n: int) -> float:
        style = f".querySelector('#source li:nth-child({n}) button').style.getPropertyValue('--a')"
        return float(tab.evaluate(f"document.querySelector('#figure').shadowRoot{style}"))

    assert weight(2) > weight(4)  # the step that writes "women" looks at "Frauen"
    assert not tab.locator("#target li:nth-child(3)").is_visible()  # not before it is due
    tab.locator("#step").fill("5")  # "book"
    assert weight(5) > weight(2)
    tab.click("#forward")
    assert tab.text("#step-readout").startswith("Step 6")


def test_the_tree_shows_the_search(tab):
    tab.evaluate("document.getElementById('inside').open = true")
    panel = tab.locator("[data-panel=beam]")
    panel.scroll_into_view_if_needed()
    panel.locator(".tree .best").first.wait_for(state="attached")
    best = panel.locator(".tree .best text:not(.score)").all_text_contents()
    assert best == ["<s>", *tab.written()]
    assert panel.locator(".tree g").count() > 3 * len(best)
    tab.evaluate("document.getElementById('inside').open = false")


def test_a_head_can_be_set_to_zero(tab):
    """The weights that become zero are the chosen head's; restoring brings the translation back."""
    before = tab.translation()
    for layer, head in itertools.product("34", "1234"):
        tab.select_option("#layer", layer)
        tab.select_option("#head", head)
        tab.check("#zero")
        tab.answered()
    assert tab.locator("#overview button.off").count() == 8
    assert tab.translation() != before
    compared = tab.text("#compared").replace(" – ", " ")  # a dash stands where words came in
    assert before in compared and "cross-attention 3/1, cross-attention 3/2" in compared
    tab.locator("#overview button[data-layer='3'][data-head='1']").click()
    tab.uncheck("#zero")
    tab.answered()
    assert tab.locator("#overview button.off").count() == 7
    tab.click("#effect button")
    assert tab.translation() == before and not tab.locator("#compared").is_visible()


def test_strange_text_is_answered_honestly(tab):
    """So is what a sentence has that the model hardly knows; it says where it is guessing."""
    tab.translate("Ж die Bundeskanzlerin")
    notice = tab.text("#notice")
    assert "“Ж”" in notice and "“Bundeskanzlerin”" in notice
    assert tab.locator("#notice.warning").count()
    tab.translate("„Hund“, (kleiner) Hund!")  # punctuation does not make a word strange
    assert "“" not in tab.text("#notice") and not tab.locator("#notice.warning").count()
    for sentence, note, guessing in (
        ("ein hund spielt im park.", "write “Hund”", None),
        ("Die Katze sitzt nicht auf dem Sofa.", "leaves “nicht” out", None),
        ("37 Leute stehen dort.", "few numbers in figures", None),
        ("A man is reading a newspaper.", "looks like English", True),
        ("Guten Tag, wie geht es Ihnen?", "", True),
        (SENTENCE, "", False),
    ):
        tab.translate(sentence)
        assert note in tab.text("#notice")
        assert guessing is None or guessing == tab.text("#sure").startswith("The model is guessing")
    texts = tab.locator("#target small").all_text_contents()
    shares = [int(text.rstrip("%")) / 100 for text in texts]
    mean = torch.tensor(shares).log().mean().exp().item()
    assert int(re.search(r"(\d+)%", tab.text("#sure"))[1]) == pytest.approx(100 * mean, abs=1)


def test_another_token_is_taken_and_the_sentence_goes_on(tab, shipped):
    """One of the five or a word of one's own: the model goes on after it, and its cost is said."""
    before = tab.translation()
    tab.locator("#step").fill("3")
    tab.locator("#likeliest button").nth(1).click()
    tab.locator("#taken", has_text="at step 3").wait_for()
    tab.answered()
    pieces = tab.written()
    number_of = shipped.tokenizer.vocabulary.token_to_id
    ids = computed(
        shipped,
        "Decoding.beamSearch("
        "translator.model, translator.source(given[0]), 5, 1.8, { forced: given[1] }).ids",
        [SENTENCE, [number_of("▁" + piece) for piece in pieces[:3]]],
    )
    assert shipped.tokenizer.decode(ids) == tab.translation() != before
    tab.locator("#step").fill("2")
    tab.fill("#own-word", "snowboarder")
    tab.press("#own-word", "Enter")
    tab.locator("#taken", has_text="snowboarder").wait_for()
    assert tab.text("#translation").split()[1] == "snowboarder"
    assert "at step 3" not in tab.text("#taken")  # what came after is let go
    tab.click("#untake")
    assert tab.translation() == before


def test_tokens_are_hidden(tab):
    """A hidden token has no weight in any map; it is said, and the words that it changes."""
    before = tab.translation()
    tab.locator("#source button").nth(2).click()
    tab.locator("#compared", has_text="Hidden: “Junge”").wait_for()
    maps = tab.evaluate(
        """() => {
            const { maps } = document.getElementById("figure").explored.result;
            const largest = (map) => Math.max(...map.flat(2).map((row) => row[2]));
            return [largest(maps.encoder), largest(maps.cross)];
        }"""
    )
    assert maps == [0, 0]
    assert tab.translation() != before and tab.locator("#compared mark").count() > 0
    tab.click("#compared button")  # where the change is told
    tab.locator("#compared").wait_for(state="hidden")
    assert tab.translation() == before


def test_a_search_that_takes_long_says_so_and_is_stopped(tab):
    """The page stays awake; what is shown is that of the sentence before, and marked as such."""
    before = tab.translation()
    tab.fill("#text", "Der Hund und " * 45)
    tab.press("#text", "Enter")
    tab.locator("#halt").click()
    tab.locator("#notice", has_text="Stopped").wait_for()
    assert tab.translation() == before
    tab.fill("#text", "Der Hund und " * 80)
    tab.press("#text", "Enter")
    tab.locator("#notice", has_text="at most 150").wait_for()
    assert float(tab.locator("#target").evaluate("strip => getComputedStyle(strip).opacity")) < 1


def test_text_is_never_read_as_html(browser, shipped, tmp_path):
    sentence = "Ein </script><img src=x onerror=alert(1)> Hund."
    tab = Tab(browser, written_page(shipped, tmp_path, sentence))
    assert tab.input_value("#text") == sentence and not tab.problems
    assert tab.locator("#figure img").count() == 0


def test_a_model_that_cannot_run_there_is_recorded(browser, shipped, tmp_path, monkeypatch):
    """Too large, of whole words, or with a changed layer: two translations and no input."""
    monkeypatch.setattr(explorer, "LARGEST", 1000)
    tab = Tab(browser, written_page(shipped, tmp_path))
    assert not tab.locator("#text").is_visible()
    for label, beam in (("greedy", 1), ("beam of five", tat.BEAM)):
        tab.check(f"text={label}")
        assert [tab.translation()] == Search(shipped, beam).translate([SENTENCE])
    assert not tab.problems


@pytest.mark.parametrize(
    ("layer", "name", "value"),
    [
        ("decoder.layers.0.feed_forward", "forward", lambda x: 2 * x),
        ("decoder.layers.1.self_attn", "h", 4),
    ],
)
def test_layers_that_differ_are_not_run_by_the_page(shipped, layer, name, value):
    """model/layers.js reads heads, norms and sizes once for all layers."""
    translator = small_translator(shipped)
    assert explorer.model_content(translator, "x") is not None
    setattr(translator.model.get_submodule(layer), name, value)
    assert explorer.model_content(translator, "x") is None


def test_the_explorer_is_accessible(tab):
    axe = ROOT / "blog" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed: npm ci --prefix blog")
    tab.click("#inside > summary")
    for theme in ("light", "dark"):
        tab.emulate_media(color_scheme=theme)
        tab.evaluate(axe.read_text("utf-8"))
        violations = tab.evaluate("axe.run().then((result) => result.violations)")
        grave = [v for v in violations if v["impact"] in ("serious", "critical")]
        assert not [(v["id"], v["nodes"][0]["html"][:200]) for v in grave]
