"""The commands: plan, train, translate, evaluate, average, explain, export, import, judge, doctor.

`cyclopts` makes options and help from signatures, dataclasses and docstrings. What a user can mend
gets one line on standard error and exit status 2; a mistake of the program keeps its traceback.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter
from cyclopts.types import PositiveFloat

from translator.engine import open_search
from translator.files import (
    MODEL_FILES,
    Refused,
    Steady,
    Stopped,
    digest_of,
    model_folder,
    new_folder,
    nobody,
    read_json,
    refusing,
    warn,
    within_memory,
    write_text,
    writing,
)
from translator.losses import add_losses, some_of
from translator.settings import (
    DROPOUT_PER_PASS,
    MOST_DROPOUT,
    Count,
    Integer,
    Limits,
    make_settings,
    options,
    saved_settings,
)
from translator.sources import Corpus, decoded_lines, load_pairs, open_file, plain

if TYPE_CHECKING:  # a command imports what it needs: PyTorch alone takes seconds
    from torch import Tensor

    from the_annotated_transformer import Transformer, Translator
    from translator.run import Run
    from translator.run_folder import RunFolder
    from translator.settings import Progress

BEAM, ALPHA = 5, 1.8  # the document's
Flat = Parameter(name="*")  # the fields of such a parameter are options of their own
DEVICE = "as PyTorch names it, such as `cpu` or `cuda:1`; by default an accelerator if there is one"
Device = Annotated[str | None, Parameter(help=DEVICE)]


MODEL = "the folder of a run or a model; by default models/multi30k-de-en"
Model = Annotated[Path | None, Parameter(help=MODEL)]
Json = Annotated[bool, Parameter(name="--json")]
OUT = "the folder to write; it must not exist (of a page, the HTML file)"
Out = Annotated[Path, Parameter(help=OUT)]
ENGINE = "ctranslate2, or pytorch, which takes longer; by default what the model allows"
Engine = Annotated[Literal["ctranslate2", "pytorch"] | None, Parameter(help=ENGINE)]
TYPE = "of CTranslate2's numbers: float32, int8, int16, bfloat16, ...; by default the model's"
Type = Annotated[str | None, Parameter(name="--type", help=TYPE)]
Beam = Annotated[Integer, Parameter(help="number of beams; 1 is greedy decoding")]
Alpha = Annotated[float, Parameter(help="exponent of the length penalty")]
OTHER_NAMES = {
    "--lr": "--factor", "--learning-rate": "--factor", "--batch-size": "--tokens-per-batch",
    "--n": "--N", "--layers": "--N", "--heads": "--h",
}  # fmt: skip
PROGRAM = "python the_annotated_transformer.py"  # in the help, whichever door was taken
MENDABLE = cyclopts.CycloptsError, Refused, OSError, ModuleNotFoundError


def train(
    *, data: str, run: Path | None = None, preset: Literal["tiny", "small", "base", "big"] = "tiny",
    words: bool = False, src: str = "de", tgt: str = "en", held_out: float | None = None,
    longest: Count | None = None, start_from: Path | None = None, device: Device = None,
    shard: bool = False, limits: Annotated[Limits | None, Flat] = None,
    # pyrefly: ignore[invalid-annotation] a class that is made from the fields of `Settings`
    changes: Annotated[options() | None, Flat] = None,
) -> None:  # fmt: skip
    """Train a model, or continue a training that was interrupted.

    Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and the like save the run and end it; the
    exit status is 128 plus the signal's number. The numbers in brackets are those of tiny, small,
    base and big.

    Args:
        data: multi30k, captions, hf:NAME[:CONFIG][@parquet], or a folder with train.LANG and
            val.LANG (plain or .gz)
        run: the folder of this run, by default runs/PRESET; if it exists, the run continues
        preset: what all other settings are, unless they are given
        words: split text into whole words by spaCy's rules, instead of byte-pair encoding
        src: source language
        tgt: target language
        held_out: the share of train to validate on instead of val, such as 0.01
        longest: leave out pairs with more tokens than this
        start_from: the run or model that a new run takes its sizes, weights and vocabulary from;
            languages must match
        shard: divide the model among the processes, so that it may be larger than the memory of one
            device
    """
    from translator.processes import use_device
    from translator.run_folder import RunFolder

    use_device(device)
    run = run or Path("runs") / preset
    with refusing("these settings do not fit together", ValueError):
        settings = make_settings(preset, words, changes or {})
    options_given = (changes or {}) | ({"bpe": 0} if words else {})
    corpus = corpus_of(data, src, tgt, held_out)
    folder = RunFolder(run, corpus, settings, preset, options_given, longest, start_from)
    train_in(folder, limits or Limits(), shard)


def train_in(folder: "RunFolder", limits: Limits, shard: bool) -> None:
    """Train in a folder, and say how it ended."""
    from translator.processes import process_group, processes
    from translator.run import Run

    # What the options say is checked before anything is written; what the text and the folder say,
    # in `Run.opened`, by the first process for all.
    text = folder.corpus.folder
    if text and text.resolve() == folder.path.resolve():
        raise Refused(f"--run is the folder of the data, {text}; give a folder of its own")
    with process_group():
        if shard and processes()[1] == 1:
            raise Refused("--shard divides the model among processes; start several with torchrun")
        with Run.opened(folder) as opened:
            progress, new = learn(opened, limits, shard)
            report(opened, progress, new)


def corpus_of(data: str, src: str, tgt: str, held_out: float | None) -> Corpus:
    """The corpus that a command names; Refused for one of a single language."""
    if src == tgt:
        raise Refused(f"--src and --tgt are both {src}")
    return Corpus(data, src, tgt, held_out)


def learn(run: "Run", limits: Limits, shard: bool) -> tuple["Progress", int]:
    """Train in a run's folder, with the other processes if any.

    Before hours are spent, a changed model that will not translate is announced. Returns how far
    the run is, and the number of new updates.
    """
    import torch

    from translator.guard import check_device, doubts
    from translator.processes import choose_device
    from translator.trainer import ParallelTrainer
    from translator.training import Training

    # Model and trainer live in this function alone, because they must be freed before the process
    # group closes; otherwise PyTorch can hang.
    torch.manual_seed(run.settings.seed)
    model = run.model()
    if run.first:
        announce(run)
    no_bleu = without_bleu(run, model, shard)
    if no_bleu and run.first:
        warn(f"{no_bleu}; so the validation loss says which model is best")
    if not shard:  # its model may be larger than a device's memory
        check_device(model, choose_device(), run.settings.smoothing)
    trainer = ParallelTrainer(model, run.settings, choose_device(), shard)
    training = Training(run, trainer, limits, translates=not no_bleu)
    before = training.progress.step
    if not before and trainer.world == 1:
        for doubt in doubts(trainer):
            warn(doubt)
    training.rehearse()
    training.fit()
    return training.progress, training.progress.step - before


def announce(run: "Run") -> None:
    """Print what a run is going to learn from."""
    if run.start_weights and (unknown := run.train.unknown()) and not run.tokenizer.words:
        warn(
            f"{unknown:.2%} of train are letters that {run.start} lacks; it reads and writes <unk>"
        )
    print(
        f"{run.folder}: {' to '.join(run.corpus.languages)}, "
        f"{len(run.train):,} pairs to learn from, {len(run.val):,} held out"
    )
    if run.settings.dropout is None:
        print(f"dropout grows by {DROPOUT_PER_PASS:.0%} with each pass, up to {MOST_DROPOUT:.0%}")


def without_bleu(run: "Run", model: "Transformer", shard: bool) -> str:
    """Why validations of this run cannot translate; empty if they can."""
    from translator.stepping import check_stepwise
    from translator.trainer import LONGEST_TOKENS, sample

    if shard:
        return "no process has the whole model, to translate with it"
    if not sample(run.val_pairs):
        return f"no held-out pair is as short as {LONGEST_TOKENS} tokens"
    try:
        check_stepwise(model)
    except Refused as error:
        return f"this model can be trained, but not yet translate: {error}"
    return ""


def report(run: "Run", progress: "Progress", new: int) -> None:
    """Print how a run of which `new` updates are new ended."""
    from translator.run_log import read_log
    from translator.trainer import chance, sample

    if not run.first:
        return
    # the numbers are those of the log, because a run that had finished before has no others
    validations = [row for row in read_log(run.folder) if "val_loss" in row]
    last = validations[-1] if validations else {}
    scores = f", validation loss {last['val_loss']:.2f}" if last else ""
    if "val_bleu" in last:
        scores += f", BLEU {last['val_bleu']:.1f}"
    epoch = progress.epoch + (progress.batch > 0)  # of the last update; the first is 1
    print(
        f"{run.folder}: {progress.step} updates, epoch {epoch}, "
        f"{progress.seconds / 60:.1f} minutes{scores}"
    )
    if progress.skipped:
        print(f"{progress.skipped} of them changed nothing, because their gradient was not finite")
    # the model in `best` is another one than the end's: whether to take it
    if progress.since_best:
        best = run.folder / "best"
        sentences = len(sample(run.val_pairs))
        if "val_bleu" not in last or not progress.bleu or progress.bleu < 1:
            print(f"{best} was chosen by the loss, {progress.best:.2f}, and may translate worse")
        elif progress.bleu > last["val_bleu"] + chance(sentences):
            print(f"{best} translates better: BLEU {progress.bleu:.1f} on {sentences} sentences")
        else:
            print(f"{best} has BLEU {progress.bleu:.1f}, and is better by chance at most")
    if progress.step < run.settings.warmup:
        print(
            f"that is less than the warmup of {run.settings.warmup} updates, "
            "so the learning rate never reached its peak"
        )
    if not new:
        print(
            "it had finished before; "
            "a larger --minutes, --steps, --epochs or --patience makes it go on"
        )


def plan(
    data: str, *, src: str = "de", tgt: str = "en", held_out: float | None = None,
    start_from: Path | None = None, seconds: PositiveFloat = 20, as_json: Json = False,
    device: Device = None,
) -> int:  # fmt: skip
    """Before a training: what is wrong with a text, what to train on it,
    how long it takes here, and what to expect.

    The exit status is 1 if no training is advised.

    Args:
        data: a folder with train.LANG and val.LANG (plain or .gz), or whatever `train --data` takes
        src: source language
        tgt: target language
        held_out: the share of train to validate on instead of val, such as 0.02
        start_from: the run or model to start from, as of `train`
        seconds: how long to try this machine
        as_json: print one JSON object
    """
    from translator import plan as planning
    from translator.processes import use_device

    use_device(device)
    corpus = corpus_of(data, src, tgt, held_out)
    say = nobody if as_json else deliver
    facts = planning.plan(corpus, seconds, warn, say, start_from)
    deliver(*([json.dumps(facts)] if as_json else planning.report(facts)))
    return 0 if facts["advice"] else 1


def translate(
    *sentence: str, model: Model = None, beam: Beam = BEAM, alpha: Alpha = ALPHA,
    input: Path | None = None, output: Path | None = None, as_json: Json = False,
    n_best: Count = 1, engine: Engine = None, type_: Type = None, device: Device = None,
) -> None:  # fmt: skip
    """Translate sentences; if none is given, translate a file or standard input line by line.

    Lines that come one by one, as from a pipe that waits, are answered as they come.

    Args:
        sentence: sentences in the model's source language
        input: a UTF-8 file with one sentence per line, plain or .gz; by default standard input
        output: the file to write, plain or .gz; by default standard output
        as_json: a JSON object per line: tokens, how probable each was, which source token it is
            from, and placeholders and letters that were lost
        n_best: with --json, so many translations of each line, the best first; at most --beam
    """
    check_translate(sentence, input, output)
    if n_best > 1 and not as_json:
        raise Refused("--n-best needs --json; without it there is one line for each sentence")
    if as_json and (engine == "ctranslate2" or type_):
        raise Refused("--json is PyTorch's work; leave --engine and --type out")
    engine = "pytorch" if as_json else engine
    search = open_search(model_folder(model), beam, alpha, device, engine, type_, n_best)
    with ExitStack() as files:
        chunks = chunks_of(sentence, input, files)
        out = sys.stdout
        if output:
            out = files.enter_context(open_file(output, "wt", encoding="utf-8"))
        translate_chunks(search, chunks, as_json, out, output)


def chunks_of(
    sentence: tuple[str, ...], input: Path | None, files: ExitStack
) -> Iterator[list[str]]:  # fmt: skip
    """The lines that are to be translated, in lists of those that have arrived."""
    if sentence:
        # a line feed ends a line here, too, as in "$(cat FILE)"
        return iter([[plain(line) for text in sentence for line in text.split("\n")]])
    if input:
        return decoded_lines(files.enter_context(open_file(input)), input)
    return arriving_lines(sys.stdin)


def translate_chunks(
    search: Any, chunks: Iterator[list[str]], as_json: bool, out: Any, output: Path | None
) -> None:
    """Answer each chunk of lines in `out`, which is the file `output` if there is one."""
    # Each is answered before the next is waited for. Line numbers go on from chunk to chunk, for
    # the notes and for what could not be translated.
    first = 1  # the number of a chunk's first line
    empty = []
    for chunk in filter(None, chunks):
        if as_json:
            from translator.confidence import judged

            results = judged(search, chunk, warn, first)
        else:
            results = [{"translation": t} for t in search.translate(chunk, warn, first)]
        empty += add_losses(search.pieces, chunk, results, warn, first)
        translations = [
            json.dumps(result, ensure_ascii=False) if as_json else result["translation"]
            for result in results
        ]
        with writing(output) if output else nullcontext():
            answer(*translations, file=out)
        first += len(chunk)
    if empty:
        raise Refused(
            f"not translated: {len(empty)} of {first - 1} lines (line {some_of(empty)}); "
            "their places are empty"
        )


def check_translate(sentence: tuple[str, ...], input: Path | None, output: Path | None) -> None:
    """Refused if a user can't mean what is to be translated."""
    if sentence and input:
        raise Refused("give sentences or --input, not both")
    if input and output and output.exists() and output.samefile(input):
        raise Refused(f"--input and --output are one file, {input}")


def arriving_lines(stream: Any) -> Iterator[list[str]]:
    """Standard input's lines as they come."""
    if stream.isatty():
        warn("one sentence per line; Ctrl-D ends")
    return decoded_lines(stream.buffer, "standard input")


def answer(*lines: str, file: Any = None) -> None:
    """Print what a command was asked for; OSError if nobody can have it."""
    file = file or sys.stdout
    print(*lines, sep="\n", file=file, flush=True)
    if error := getattr(file, "lost", None):
        raise error


def deliver(*lines: str) -> None:
    """Print a report. Its reader may not leave before it is there; only `translate` allows that."""
    with writing(Path("standard output")):
        answer(*lines)


def evaluate(
    *, data: str, split: str, model: Model = None, beam: Beam = BEAM, alpha: Alpha = ALPHA,
    as_json: Json = False, held_out: float | None = None, output: Path | None = None,
    engine: Engine = None, type_: Type = None, device: Device = None,
) -> None:  # fmt: skip
    """Translate a split and score it:
    BLEU (13a cased, 13a lower-cased, lower-cased after Moses), chrF and length.

    After ± stands half of a 95% interval, by bootstrap: how much depends on which sentences of
    this kind the split happens to have.

    Args:
        data: multi30k, captions, hf:NAME[:CONFIG][@parquet] or a folder
        split: the name of the split, such as val or test_2016_flickr
        as_json: print one JSON object
        held_out: with --split val, the share of train that the model was validated on instead of
            val
        output: a table to write, for a spreadsheet: the chrF of each sentence, source, reference
            and translation, with tabs between
    """
    folder = model_folder(model)
    search = open_search(folder, beam, alpha, device, engine, type_)
    src, tgt = search.languages
    pairs = [*Corpus(data, src, tgt, held_out).full_pairs(split, warn)]
    start = time.monotonic()
    result = {"data": data, "split": split} | evaluated(search, pairs, output)
    result["weights"] = digest_of(folder / MODEL_FILES[2])
    if held_out is not None:
        result["held_out"] = held_out
    lines = [f"{folder}, {' to '.join(search.languages)}; {scores_in_words(result)}"]
    if as_json:
        lines = [json.dumps(result | {"seconds": round(time.monotonic() - start, 1)})]
    deliver(*lines)
    # after the scores, which are printed in any case
    if search.lost:
        raise Refused(
            f"not translated, and scored as if empty: {search.lost} of {len(pairs)} sentences"
        )


def evaluated(search: Any, pairs: list[tuple[str, str]], output: Path | None) -> dict[str, Any]:
    """Translations of pairs' sources, scored by their targets; `output` has them side by side."""
    from translator.scoring import half_width, score, table

    sources, references = map(list, zip(*pairs, strict=True))
    translations = search.translate(sources, warn)
    result = {"sentences": len(sources), "search": search.name} | search.engine
    result |= score(translations, references, search.languages[1])
    for name in ("bleu", "chrf"):
        result[f"{name}_half_width"] = half_width(name, translations, references)
    if output:
        write_text(output, table(sources, references, translations))
    return result


def scores_in_words(result: dict[str, Any]) -> str:
    """What `evaluate` prints of its scores."""
    from translator.scoring import SCORES

    held_out = f", {result['held_out']:g} of train held out" if "held_out" in result else ""
    lines = [
        f"{result['split']}{held_out}: {result['sentences']} sentences, "
        f"{result['search']}, by {result['engine']}"
    ]
    for name, title in SCORES.items():
        interval = result.get(f"{name}_half_width")
        width = "        " if interval is None else f" ±{interval:5.2f} "
        lines.append(f"{title:<28}{result[name]:6.2f}{width} {result[name + '_signature']}")
    return "\n".join([*lines, f"{'length / reference':<28}{result['length']:6.2f}"])


def average(run: Path, *, out: Out, last: Count = 5) -> None:
    """Average the last checkpoints of a run into a model (Section 6.1).

    Args:
        run: the folder of a run
        last: number of checkpoints to average
    """
    from translator.model_folder import average_checkpoints, read_translator, write_model
    from translator.processes import use_device
    from translator.run import CHECKPOINTS_KEPT
    from translator.run_folder import checkpoint_files
    from translator.run_log import read_log

    # A mean of weights is a model only if they are of one run and near each other: its last
    # checkpoints. Whether it is better than the run's end is measured where there are held-out
    # pairs.
    use_device()
    read_json(run / "config.json")
    paths = checkpoint_files(run)
    if not paths:
        raise Refused(
            f"{run} has no checkpoint yet; "
            "it writes one every 200 updates, or as --checkpoint-every says"
        )
    if len(paths) < last:
        raise Refused(
            f"--last asks for {last} checkpoints, but {run} has {len(paths)}; "
            f"a smaller --checkpoint-every makes more, and {CHECKPOINTS_KEPT} are kept"
        )
    translator = read_translator(run)
    weights = average_checkpoints(paths[-last:])
    write_model(out, run, weights)
    print(f"{out}: the average of {last} checkpoints, {paths[-last].stem} to {paths[-1].stem}")
    # a rate that has halved between the first and the last of them was falling
    rates = {row["step"]: row["lr"] for row in read_log(run) if "lr" in row}
    first_rate, last_rate = (rates.get(int(path.stem), 0.0) for path in (paths[-last], paths[-1]))
    compare_average(run, translator, weights, falling=first_rate > 2 * last_rate)


def compare_average(
    run: Path, translator: "Translator", mean: dict[str, "Tensor"], falling: bool
) -> None:
    """Print how the mean of weights and a run's own model do on held-out pairs, if they are there.

    By BLEU; by the loss below one BLEU, which is chance.
    """
    from translator.processes import load_weights, weights_of
    from translator.run_folder import token_store
    from translator.stepping import check_stepwise
    from translator.trainer import Objective, chance, greedy_bleu, mean_loss, sample

    store = token_store(run, "val", translator.tokenizer)
    if not store.is_written:
        return
    model = translator.model
    device = next(model.parameters()).device
    pairs = store.pairs(range(len(store)))
    sentences = sample(pairs)
    budget = saved_settings(read_json(run / "config.json")["settings"]).tokens_per_batch
    stepwise = False
    with suppress(Refused):  # a model without steps has losses alone
        check_stepwise(model)
        stepwise = bool(sentences)
    # the mean comes last: there is one model in memory, and its own weights aren't needed again
    losses, bleus = [], []
    for weights in (weights_of(model), mean):
        load_weights(model, weights, run / "checkpoints")
        losses.append(mean_loss(Objective(model, eps=0.0), pairs, budget, device))
        bleus.append(greedy_bleu(model, translator.tokenizer, sentences) if stepwise else 0.0)
    # where the rate was falling, the end is better as a rule, and the mean has to be so by more
    # than chance
    needed = chance(len(sentences)) if falling and sentences else 0.0
    if mean_is_better(losses, bleus, len(sentences), needed):
        print("the average is better")
    else:
        reason = ", because it goes back to where the rate was higher" if falling else ""
        warn(f"take the run's own model, {run}: the average is no better{reason}")


def mean_is_better(
    losses: list[float], bleus: list[float], sentences: int, needed: float
) -> bool:  # fmt: skip
    """Print both models' figures, those of the mean last; whether it is better."""
    if max(bleus) >= 1:
        print(
            f"BLEU {bleus[1]:.1f} on {sentences} held-out sentences; "
            f"the run's own model has {bleus[0]:.1f}"
        )
        return bleus[1] - bleus[0] > needed
    print(f"validation loss {losses[1]:.3f}; the run's own model has {losses[0]:.3f}")
    return losses[1] < losses[0]


def explain(sentence: str, *, out: Path, model: Model = None) -> None:
    """Write a page that shows how a sentence is translated:
    step by step, with all attention weights.

    The page runs the model itself, for any sentence, unless the model is large or has whole words.

    Args:
        sentence: a sentence in the model's source language
        out: the HTML file to write
    """
    from translator import explorer
    from translator.model_folder import read_translator
    from translator.processes import use_device

    use_device()
    if not sentence.strip():
        raise Refused("the sentence is blank")
    folder, sentence = model_folder(model), plain(sentence)
    page, translation = explorer.page(read_translator(folder), folder.name, sentence)
    write_text(out, page)
    print(f"{sentence}\n{translation}\n{out}")


def export(
    *, out: Out, to: Literal["ctranslate2", "half", "page"] = "ctranslate2", model: Model = None,
    quantization: Annotated[str | None, Parameter(name=["--quantization", "--type"])] = None,
    title: str | None = None, names: tuple[str, str] | None = None, note: str | None = None,
    score: Path | None = None, words: Path | None = None,
) -> None:  # fmt: skip
    """Convert a model for another program, to half its size, or to a page that translates.

    Args:
        to: ctranslate2; half: a model for this program with weights in float16; or page: one file
            that translates in a browser, without a network
        quantization: for ctranslate2: int8, float16, ..., by default float32; for a page: float16,
            which is the default, or int8, which is half as large
        title: the page's title
        names: what the page calls the two languages, such as `--names French English`
        note: what the page says that the translator knows
        score: for the page, what `evaluate --json` has printed, as a file
        words: a JSON object with the page's other texts in another language, whose code is `lang`
    """
    from translator.processes import use_device

    use_device()
    folder = model_folder(model)
    # an option of one kind of export, given with another, would have no effect
    given = {"--title": title, "--names": names, "--note": note, "--score": score, "--words": words}
    if to != "page" and (option := next((name for name in given if given[name]), None)):
        raise Refused(f"{option} is for --to page")
    if to == "half" and quantization:
        raise Refused("--quantization is for ctranslate2 and pages; half is always float16")
    if to == "half":
        export_half(folder, out)
    elif to == "page":
        export_page(folder, out, (title, names, note), score, words, quantization or "float16")
    else:
        export_ctranslate2(folder, out, quantization)


def export_half(folder: Path, out: Path) -> None:
    """Write a model with weights in float16."""
    from translator.model_folder import read_translator, write_model

    parameters = read_translator(folder).model.named_parameters()
    write_model(out, folder, {name: weight.half() for name, weight in parameters})
    print(f"{out}: float16")


def export_page(
    folder: Path, out: Path, texts: tuple, score: Path | None, words: Path | None, type_: str
) -> None:
    """Write a page that translates; `texts` are its title, its languages' names and its note."""
    from translator import page_export
    from translator.model_folder import read_translator

    translator = read_translator(folder)
    if out.is_file():
        raise Refused(f"{out} is there already, and stays as it is; give another --out")
    texts_of_page = page_export.Texts(*texts, words=page_export.read_words(words) if words else {})
    page = page_export.page(folder, translator, texts_of_page, score, type_)
    write_text(out, page)
    print(f"{out}: {len(page.encode()) / 1e6:.1f} MB, one file that translates in a browser")
    if score is None:
        print("it tells nobody how good it is: evaluate --beam 1 --json > FILE, then --score FILE")


def export_ctranslate2(folder: Path, out: Path, quantization: str | None) -> None:
    """Write a model as CTranslate2 reads it."""
    from translator import export as converter
    from translator.model_folder import read_translator

    translator = read_translator(folder)
    converter.write_ctranslate2(translator, out, quantization)
    usage = f"python {out / 'translate.py'} translates standard input"
    if translator.tokenizer.words:
        usage = (
            "its tokens are made with the tokenizer.json beside it, from words cut by spaCy's rules"
        )
    print(f"{out}: for ctranslate2, {quantization or 'float32'}; " + usage)


def import_model(source: str, *, out: Out, src: str | None = None, tgt: str | None = None) -> None:
    """Open a model that Marian trained, such as those of OPUS-MT,
    and write it as a folder for this program.

    Nothing in its files is executed. Then `translate --model` and all other commands take that
    folder.

    Args:
        source: a folder as on the Hugging Face hub, a name there such as
            `Helsinki-NLP/opus-mt-de-en`, or Marian's .npz beside its .spm
        src: source language, if neither the files nor the name say it
        tgt: target language, likewise
    """
    from translator.marian import import_marian

    translator = import_marian(source, out, src, tgt)
    size = sum(p.numel() for p in translator.model.parameters())
    src, tgt = translator.languages
    print(f"{out}: {src} to {tgt}, {size:,} parameters, {len(translator.tokenizer):,} tokens")


def judge(
    file: Path, *, new: bool = False, gate: Integer | None = None, watch: bool = False,
    split: str = "val", report: Path | None = None, learn: str | None = None,
    minutes: PositiveFloat = 20, run: Path | None = None, src: str = "de", tgt: str = "en",
) -> int:  # fmt: skip
    """Try a Transformer that you wrote yourself, gate by gate, with the shipped weights.

    A wrong answer is compared with those of known mistakes. When all gates up to decoding
    are right, your code translates. The exit status is 1 if a gate isn't right.

    With --learn, your code learns from fresh weights: German numbers, which is gate 20, or a
    language, as in `--learn multi30k --run runs/mine`. What it has learned is a model like any
    other, if your functions pass the gates. With --run alone, your code translates the lines of
    standard input with the weights that it learned there.

    Args:
        file: your file in Python, with the functions that --new writes, or a notebook's code cells
        new: write the file, with an empty function for each gate, and AGENTS.md beside it, which
            makes a tutor of a coding assistant
        gate: the number of the only gate to try
        watch: try it again at each saving, until Ctrl-C
        split: the sentences that are translated for a score: as many as a minute allows
        report: a file for what was said, without any code; FILE.json is as Gradescope reads it
        learn: let your code learn: numbers, or whatever `train --data` takes
        minutes: how long it may learn a language in all; a run that is there goes on
        run: the folder of what it learns
        src: source language
        tgt: target language
    """
    if new:
        return new_file(file)
    check_judged(file, gate)
    if learn or run:
        passes = judge_learning(file, learn, run, minutes, (src, tgt), report)
    else:
        passes = judge_gates(file, gate, split, watch, report)
    return 0 if passes else 1


def saying(lines: list[str]) -> Callable[[str], None]:
    """What prints a line at once, and keeps it for a report."""

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    return say


def judge_learning(
    file: Path, source: str | None, run: Path | None, minutes: float,
    languages: tuple[str, str], report: Path | None,
) -> bool:  # fmt: skip
    """Let a file learn, or translate by what it has learned; whether it passes."""
    from practice import judge as practice

    lines: list[str] = []
    passes = practise(file, source, run, minutes, languages, saying(lines))
    if report:
        write_report(report, lines, [practice.scored("gate 20: it learns", passes, lines[-1])])
    return passes


def judge_gates(
    file: Path, gate: int | None, split: str, watch: bool, report: Path | None
) -> bool:  # fmt: skip
    """Try the gates of a file, once or at each saving; whether all are right."""
    from practice import judge as practice  # it reads a model when asked, and nobody else does

    def once() -> bool:
        lines: list[str] = []
        verdicts: dict[int, Any] = {}
        passed = practice.judge(file, gate, split, saying(lines), verdicts)
        if report:
            write_report(report, lines, practice.scored_gates(verdicts, gate))
        return passed

    if watch:
        practice.watch(file, once)
    return once()


def write_report(report: Path, lines: list[str], tests: list[dict[str, Any]]) -> None:
    """What was said; in FILE.json with a point for each test, as Gradescope reads it."""
    text = "\n".join(lines) + "\n"
    if report.suffix == ".json":
        score = sum(test["score"] for test in tests)
        text = json.dumps({"score": score, "output": text, "tests": tests}, indent=1)
    write_text(report, text)


def new_file(file: Path) -> int:
    """Write an empty file for the judge, and beside it what makes a tutor of an assistant."""
    from practice.gates import GATES, TUTOR, stubs

    if file.exists():
        raise Refused(f"{file} is there already, and stays as it is; give the new one another name")
    if file.suffix != ".py":
        raise Refused(f"{file}: --new writes Python, so give it a name that ends in .py")
    write_text(file, stubs())
    print(
        f"{file}: {len(GATES)} gates; judge it with: judge {file}; --watch does it at each saving"
    )
    tutor = file.with_name("AGENTS.md")
    if not tutor.exists():
        write_text(tutor, TUTOR.format(name=file.name))
        print(f"{tutor} asks a coding assistant to help you, and not to write it for you")
    return 0


def check_judged(file: Path, gate: int | None) -> None:
    """Raise Refused for what can't be judged, before anything is."""
    from practice import judge as practice

    if not file.is_file():
        raise Refused(f"{file} isn't a file; judge --new {file} writes an empty one")
    if file.suffix not in (".py", ".ipynb"):
        raise Refused(f"{file}: only Python files (.py) and notebooks (.ipynb) are judged")
    if gate is not None and not 1 <= gate <= len(practice.GATES):
        raise Refused(f"--gate is {gate}; there are gates 1 to {len(practice.GATES)}")


def typed_numbers() -> Iterator[str]:
    """What somebody types, until nothing."""
    with suppress(EOFError):
        while line := input("a number below 1000, or nothing to end: ").strip():
            yield line


def practise(
    file: Path, source: str | None, run: Path | None, minutes: float,
    languages: tuple[str, str], say: Callable[[str], None],
) -> bool:  # fmt: skip
    """Let a file learn; or translate by what it has learned in a run."""
    from practice import learn as practice

    if source == "numbers":
        typed = typed_numbers() if sys.stdin and sys.stdin.isatty() else ()
        return practice.learn_numbers(file, say, typed)
    if run is None:
        raise Refused(f"--learn {source} needs a folder for what is learned: --run runs/learned")
    with refusing(f"--run {run}", practice.Stuck):
        study = practice.Study(run, file, source, languages)
        if source is None:
            for text in practice.own_lines(study, arriving_lines(sys.stdin)):
                say(text)
            return True
    corpus = Corpus(source, *study.languages)
    texts = [corpus.full_pairs(split, warn) for split in ("train", "val")]
    study.read(*map(list, texts))
    return practice.learn_language(study, minutes, say)


def doctor(
    run: Path, *, data: str | None = None, held_out: float | None = None, as_json: Json = False
) -> None:
    """Examine a run or a model that trains and writes nonsense:
    what was measured, what it means, what it resembles, how good it is.

    Args:
        run: the folder of a run or a model
        data: the source whose val it is examined with; by default what the run holds out
        held_out: with --data, the share of its train that the model was validated on instead of
            val
        as_json: print one JSON object
    """
    from translator import doctor as surgery  # its catalogue is read when it is asked

    diagnosis = surgery.diagnose(run, data, held_out)
    deliver(*([json.dumps(diagnosis)] if as_json else surgery.report(diagnosis)))


def captions(*, out: Out) -> None:
    """Write the captions of the built-in grammar as a folder of text,
    such as the document reads: train, val and test.
    """
    with new_folder(out):
        for split in ("train", "val", "test"):
            sides = zip(*load_pairs("captions", split), strict=True)
            for language, side in zip(("de", "en"), sides, strict=True):
                (out / f"{split}.{language}").write_text("\n".join(side) + "\n", encoding="utf-8")


def explained(error: Exception, arguments: list[str]) -> str:
    """What an error says, in one line; `arguments` are those of the command line."""
    # cyclopts' messages have boxes and line feeds; the system's have numbers
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError):
        return f"this needs the package {error.name}: pip install {error.name}"
    if isinstance(error, cyclopts.UnknownCommandError):
        return f"{text}; --help lists them"
    if isinstance(error, cyclopts.UnknownOptionError):
        if our_name := OTHER_NAMES.get(str(error.token.keyword)):
            return f"Unknown option: {error.token.keyword}. Did you mean {our_name}?"
        if arguments[:1] in (["translate"], ["explain"]):
            return f"{text} A sentence that begins with a dash comes last, after --"
    if missing := re.fullmatch(r'Command "\w+" parameter (\S+) requires an argument\.', text):
        return f"{missing[1]} {'needs a value' if missing[1] in arguments else 'is missing'}"
    return text


def with_numbers(arguments: list[str]) -> list[str]:
    """Arguments in which --learn without a value means the numbers."""
    # cyclopts would take the next option for its value
    following = [*arguments, "--"][1:]
    return [
        "--learn=numbers" if argument == "--learn" and after.startswith("-") else argument
        for argument, after in zip(arguments, following, strict=True)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    app = cyclopts.App(
        PROGRAM, help="Train, use and look into a Transformer.", version_flags=[],
        help_format="markdown", suppress_keyboard_interrupt=False,
    )  # fmt: skip
    commands = plan, train, translate, evaluate, average, explain, export, captions, judge, doctor
    for command in commands:
        app.command(command)
    app.command(import_model, name="import")
    # Errors that a user can mend are one line and status 2, whatever command they are of. A run
    # that was asked to stop has saved itself: its status is the shell's for that signal.
    arguments = with_numbers(sys.argv[1:] if arguments is None else arguments)
    with redirect_stdout(Steady(sys.stdout)) as out, redirect_stderr(Steady(sys.stderr)) as err:
        try:
            with within_memory("out of memory"):
                status = app(
                    arguments, exit_on_error=False, print_error=False, result_action="return_value"
                )
            out.flush()
            if out.lost:
                warn(f"standard output could not be written ({out.lost}), but the work is done")
            return status or 0
        except BrokenPipeError:  # the reader of `translate` has enough, such as `head`
            return 0
        except MENDABLE as error:
            print(f"error: {explained(error, arguments)}", file=sys.stderr)
            return 2
        except Stopped as request:
            if os.environ.get("RANK") in (None, "", "0"):
                print(request, file=sys.stderr)
            return 128 + request.number
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        finally:
            err.flush()  # here nothing can fail


if __name__ == "__main__":
    sys.exit(main())
