"""The compiled decoding step: the symbols of the eager one, kept in a cache, and the eager one wherever anything fails."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import the_annotated_transformer as tat
from translator import compiled, decoding
from translator.captions import caption_pairs
from translator.commands import main
from translator.settings import PRESETS, apply_settings, build_model
from translator.weights import load_translator, model_folder

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of this module's own."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def translator():
    """The shipped model."""
    return load_translator(model_folder())


def tiny(**changes) -> tat.Transformer:
    """A small random model."""
    torch.manual_seed(0)
    settings = apply_settings(PRESETS["tiny"], {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, **changes})
    return build_model(settings, 40).eval()


@needs_compiler
@pytest.mark.parametrize("beam", [1, tat.BEAM], ids=["greedy", "beam"])
def test_the_symbols_are_those_of_the_eager_step(cache, translator, beam):
    """On 1,000 sentences; the second time the step comes from the cache."""
    lines, search = [source for source, _ in caption_pairs("train")][:1000], decoding.make_search(beam, tat.ALPHA)
    expected = decoding.translate_lines(translator, lines, search, 512 // beam)
    told = []
    assert compiled.use(translator.model, beam, "always", told.append), told
    called = []
    key = beam if beam > 1 else 0
    known, call = compiled.IN_USE[translator.model][key]
    compiled.IN_USE[translator.model][key] = known, lambda *inputs: called.append(1) or call(*inputs)
    assert decoding.translate_lines(translator, lines, search, 512 // beam) == expected and called
    again = load_translator(model_folder())
    assert compiled.use(again.model, beam, "auto")
    assert decoding.translate_lines(again, lines[:50], search) == expected[:50]


@pytest.mark.parametrize("beam", [0, 3])
@pytest.mark.parametrize("changes", [{}, {"norm": "post"}, {"positions": "learned"}, {"d_k": 3}, {"tie": "none"}])
def test_the_step_computes_what_the_decoder_computes(changes, beam):
    """Without compiling: rows that change places and leave, sources that leave, places of a beam that are empty."""
    model = tiny(**changes).double()
    step = compiled.Step(model, beam).eval()
    src = tat.pad_rows([[5, 6, 7, 2], [8, 2], [9, 9, 2]])
    eager = decoding.CachedDecoder(model, src, tat.source_mask(src), beam)
    ours = compiled.CompiledDecoder(model, src, tat.source_mask(src), step)
    moves = [
        (torch.tensor([1, 1, 1]), torch.tensor([[True, False], [True, False], [True, False]]), None, None),
        (torch.tensor([4, 5, 6, 7, 8]), torch.tensor([[True, True], [True, False], [True, True]]), [0, 0, 1, 2, 2], None),
        (torch.tensor([9, 10, 11]), torch.tensor([[False, True], [True, True]]), [1, 4, 3], [0, 2]),
    ]  # fmt: skip
    with torch.no_grad():
        for tokens, live, rows, sources in moves:
            for decoder in (eager, ours) if rows else ():
                decoder.select(torch.tensor(rows), None if sources is None else torch.tensor(sources))
            for found, expected in zip(ours.likeliest(tokens, live), eager.likeliest(tokens, live), strict=True):
                torch.testing.assert_close(found, expected, check_dtype=False, rtol=1e-4, atol=1e-5)


def test_nothing_is_compiled_unless_asked_for(cache, capsys):
    model, told = tiny(), []
    assert not compiled.use(model, 1, "never", told.append) and not told
    assert not compiled.use(model, 1, "auto", told.append) and "there is no compiled step" in told[0]
    assert not capsys.readouterr().err and compiled.in_use(model, 0) is None


def test_a_failure_is_told_in_a_line_and_does_no_harm(cache, monkeypatch, capsys):
    """As without a compiler: nothing is left in the cache, and the eager step is used."""
    model, told = tiny(), []

    def fails(*_):
        raise RuntimeError("no compiler\nwas found")

    monkeypatch.setattr(compiled, "build", fails)
    assert not compiled.use(model, 1, "always", told.append)
    assert told == ["the decoding step is not compiled: no compiler was found"]
    assert "about 25 seconds" in capsys.readouterr().err
    assert compiled.in_use(model, 0) is None and compiled.cached(model, 0) is None
    assert not list(compiled.place(model, 0)[0].glob("*tmp*"))


def test_another_type_of_numbers_is_not_compiled(cache):
    told = []
    assert not compiled.use(tiny().double(), 1, "always", told.append) and "float32" in told[0]


@needs_compiler
def test_a_damaged_or_foreign_step_is_not_used(cache, translator):
    """A flipped bit, a step of other weights under this model's name, and a model that changes after it was compiled."""
    model, told = tiny(), []
    assert compiled.use(model, 1, "always")
    path, (folder, _) = compiled.cached(model, 0), compiled.place(model, 0)
    torch.nn.init.normal_(model.generator.proj.weight)
    assert compiled.in_use(model, 0) is None and compiled.cached(model, 0) is None
    other = folder / f"{compiled.place(model, 0)[1]}-{compiled.digest_of(path)}.so"
    shutil.copy(path, other)
    assert not compiled.use(model, 1, "auto", told.append)
    assert "something else" in told[-1] and not other.exists()
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.unlink()  # this process has the old file in memory, so it must not be written over
    path.write_bytes(raw)
    assert not compiled.use(tiny(), 1, "auto", told.append) and "damaged" in told[-1]
    assert not path.exists() and compiled.use(tiny(), 1, "always")  # built again


def test_old_steps_leave_the_cache(cache, monkeypatch):
    """And so does what an interrupted build has left."""
    model = tiny(d_ff=24)  # no other test has left a step of it
    folder, _ = compiled.place(model, 0)
    (folder / "tmpleft").mkdir(parents=True)
    (folder / "old.so").touch()
    (folder / "recent.so").touch()
    for name in ("tmpleft", "old.so"):
        os.utime(folder / name, (0, 0))
    monkeypatch.setattr(compiled, "build", lambda model, beam, path: path.write_text("library"))
    path = compiled.write(model, 0)
    assert path.read_text() == "library" and path == compiled.cached(model, 0)
    assert not (folder / "tmpleft").exists() and not (folder / "old.so").exists() and (folder / "recent.so").exists()
    path.unlink()


def test_auto_builds_only_after_as_long_as_building_takes(cache, tmp_path, monkeypatch, capsys):
    """Before that, a step is at most taken from the cache; a build that failed is not tried again."""
    asked = []
    monkeypatch.setattr(compiled, "use", lambda model, beam, mode, tell: asked.append(mode))
    lines = ["Ein Hund.", *[""] * 2000]  # three chunks
    file = tmp_path / "lines"
    file.write_text("\n".join(lines))
    assert main(["translate", "--input", str(file)]) == 0 and asked == ["auto"]
    monkeypatch.setattr(compiled, "SECONDS", -1)
    for compile, expected in (("auto", ["auto", "always"]), ("always", ["always"]), ("never", ["never"])):
        asked.clear()
        assert main(["translate", "--input", str(file), "--compile", compile]) == 0 and asked == expected
    capsys.readouterr()


@needs_compiler
def test_threads_call_the_step_at_the_same_time(cache):
    """Catches results that another call has overwritten, and calls beyond the number of threads that are refused."""
    model = tiny()
    assert compiled.use(model, 1, "always")
    _, call = compiled.IN_USE[model][0]
    draws = [compiled.example_inputs(model, rows=rows, t=t) for rows in range(1, 9) for t in range(8)]
    expected = [call(*inputs)[0] for inputs in draws]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda inputs: call(*inputs)[0], draws * 20))
    torch.testing.assert_close(found, expected * 20, rtol=0, atol=0)
