"""The command line: train, translate, evaluate, average, explain, export.

`cyclopts` makes options and help from the functions' signatures and docstrings. Bad input gets one line on standard error
and exit status 2.
"""

import os
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from json import dumps  # not the module, because `evaluate` has an option `json`
from pathlib import Path
from typing import Literal

from the_annotated_transformer import ALPHA, BEAM
from translator import compiled, explorer
from translator.decoding import make_search, translate_lines
from translator.files import read_json, writing
from translator.processes import Stopped, process_group, processes, use_device
from translator.runs import KEPT, make_budget, read_log
from translator.scoring import SCORES, score
from translator.settings import describe_settings, make_config
from translator.sources import decoded_lines, left_out, load_pairs, open_bytes, open_output
from translator.training import Every, loss_on_held_out, train_together
from translator.weights import average_weights, load_translator, load_weights, model_folder, weights_of, write_model


def train(
    *, data: str, run: Path, preset: str = "tiny", minutes: float | None = None, epochs: int | None = None, steps: int | None = None,
    patience: int | None = None, words: bool = False, checkpoint_every: int = 200, checkpoint_minutes: float | None = None,
    src: str = "de", tgt: str = "en", workers: int = 0, shard: bool = False, start_from: Path | None = None, device: str | None = None,
    held_out: float | None = None, **settings: str,
) -> None:  # fmt: skip
    """Train a model, or continue a training that was interrupted.

    Without a limit it takes 30 minutes. Ctrl-C, SIGTERM and SIGUSR1 save the
    run and end it; the exit status is 128 plus the signal's number. Every setting
    is an option, too. The numbers in brackets are those of tiny, small, base and big:

    SETTINGS

    Args:
        data: multi30k, captions, hf:NAME[:CONFIG][@parquet], or a folder with train.LANG and val.LANG (plain or .gz)
        held_out: the share of train to validate on instead of val, such as 0.01
        run: the folder of this run; if it exists, the run continues
        preset: tiny, small, base or big
        minutes: stop after this many minutes
        epochs: stop after this many passes through the data
        steps: stop after this many updates
        patience: stop after this many checkpoints without a lower validation loss
        words: split text into whole words by spaCy's rules, instead of byte-pair encoding
        checkpoint_every: updates between two checkpoints
        checkpoint_minutes: minutes between two checkpoints, if that is sooner
        src: source language
        tgt: target language
        workers: processes that read batches ahead
        shard: divide the model among the processes, so that it may be larger than the memory of one device
        start_from: the run or model that a new run takes its weights and vocabulary from; sizes and languages must match
        device: as PyTorch names it, such as `cpu` or `cuda:1`; by default an accelerator if there is one
        settings: any of the settings above, such as --dropout 0.3 or --norm post
    """
    use_device(device)
    config = make_config(preset, words, settings, train.__kwdefaults__)
    budget, every = make_budget(minutes, epochs, steps, patience), Every(checkpoint_every, checkpoint_minutes)
    for name, number, least in (("checkpoint-every", checkpoint_every, 1), ("workers", workers, 0)):
        if number < least:
            raise ValueError(f"--{name} must be at least {least}, but it is {number}")
    if checkpoint_minutes is not None and not checkpoint_minutes > 0:
        raise ValueError(f"--checkpoint-minutes must be more than 0, but it is {checkpoint_minutes}")
    run, about = Path(run), {"preset": preset, "data": data, "src": src, "tgt": tgt, "held_out": held_out}
    start_from = Path(start_from) if start_from else None
    about["start_from"] = start_from.resolve().name if start_from else None
    if src == tgt:
        raise ValueError(f"--src and --tgt are both {src}")
    if Path(data).is_dir() and Path(data).resolve() == run.resolve():
        raise ValueError(f"--run is the folder of the data, {data}; give a folder of its own")
    with process_group():
        if shard and processes()[1] == 1:
            raise ValueError("--shard divides the model among processes; start several with torchrun")
        progress, new = train_together(run, config, about, start_from, budget, every, workers, shard)
        if processes()[0] == 0:
            print(
                f"{run}: {progress.step} updates, {progress.epoch} epochs, {progress.seconds / 60:.1f} minutes", end=""
            )
            losses = [row for row in read_log(run) if "val_loss" in row]
            print(f", validation loss {losses[-1]['val_loss']:.2f}" if losses else "")
            if progress.since_best:
                print(f"the lowest was {progress.best:.2f}; that model is {run / 'best'}")
            if progress.step < config.warmup:
                print(f"that is less than the warmup of {config.warmup} updates: the learning rate was still rising")
            if not new:
                print("it had finished before; a larger --minutes, --steps, --epochs or --patience makes it go on")


train.__doc__ = (train.__doc__ or "").replace("SETTINGS", describe_settings())  # Python may be told to drop it


def readable(text: str) -> str:
    """An argument from the shell as text that can be written, even if its bytes are not valid UTF-8."""
    return text.encode("utf-8", "replace").decode()


def warn(text: str) -> None:
    """One line on standard error."""
    print(f"note: {text}", file=sys.stderr)


def be_silent(text: str) -> None:
    """Nothing."""


def as_they_come(lines: Iterator[str], most: int = 1000, pause: float = 0.05) -> Iterator[list[str]]:
    """Lines in lists of at most `most`; a list ends where no line comes for `pause` seconds."""
    arrived: queue.Queue[str | Exception] = queue.Queue(2 * most)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(StopIteration())
        except Exception as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    end = None
    while not end:
        chunk = []
        with suppress(queue.Empty):
            while len(chunk) < most and not end:
                item = arrived.get(timeout=pause if chunk else None)
                if isinstance(item, str):
                    chunk.append(item)
                else:
                    end = item
        if chunk:
            yield chunk
    if not isinstance(end, StopIteration):
        raise end


def translate(
    *sentence: str, model: Path | None = None, beam: int = BEAM, alpha: float = ALPHA, input: Path | None = None,
    output: Path | None = None, compile: compiled.Mode = "auto", device: str | None = None, verbose: bool = False,
) -> None:  # fmt: skip
    """Translate sentences; if none is given, translate a file or standard input line by line.

    Lines that come one by one, as from a pipe that waits, are answered as they come.

    Args:
        sentence: sentences in the model's source language
        model: the folder of a run or a model; by default models/multi30k-de-en
        beam: number of beams; 1 is greedy decoding
        alpha: exponent of the length penalty
        input: a UTF-8 file with one sentence per line, plain or .gz; by default standard input
        output: the file to write, plain or .gz; by default standard output
        compile: use a decoding step compiled for this machine: always; never; auto, if one is there or the work is large
        device: as PyTorch names it, such as `cpu` or `cuda:1`; by default an accelerator if there is one
        verbose: say on standard error why no step is compiled
    """
    use_device(device)
    if sentence and input:
        raise ValueError("give sentences or --input, not both")
    if input and output and output.exists() and output.samefile(input):
        raise ValueError(f"--input and --output are one file, {input}")
    for text in sentence:
        if os.path.isfile(text):
            warn(f"{text} is translated as a sentence; --input {text} translates the lines of that file")
    search, translator = make_search(beam, alpha), load_translator(model_folder(model))
    tell, spent, numbers = warn if verbose or compile == "always" else be_silent, 0.0, 1
    fast = compiled.use(translator.model, beam, compile, tell)
    with ExitStack() as files:
        if sentence:
            chunks = [list(map(readable, sentence))]
        elif input:
            chunks = as_they_come(decoded_lines(files.enter_context(open_bytes(input)), input))
        else:
            if sys.stdin.isatty():
                warn("one sentence per line; Ctrl-D ends")
            # of its own, because a thread that waits for sys.stdin keeps Python from ending
            source = os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
            chunks = as_they_come(decoded_lines(source, "standard input"))
        out = files.enter_context(open_output(output)) if output else sys.stdout
        for chunk in chunks:
            if compile == "auto" and not fast and spent > compiled.SECONDS:  # as much as compiling takes
                fast, compile = compiled.use(translator.model, beam, "always", warn), "never"  # one try
            start = time.monotonic()
            translations = translate_lines(translator, chunk, search, max(1, 512 // beam), warn, numbers)
            with writing(output) if output else nullcontext():
                print(*translations, sep="\n", file=out, flush=True)
            spent, numbers = spent + time.monotonic() - start, numbers + len(chunk)


def evaluate(
    *, data: str, split: str, model: Path | None = None, beam: int = BEAM, alpha: float = ALPHA, json: bool = False,
    compile: compiled.Mode = "auto", device: str | None = None, held_out: float | None = None,
) -> None:  # fmt: skip
    """Translate a split and score it: BLEU (13a cased, 13a lower-cased, lower-cased after Moses), chrF and length.

    Args:
        data: multi30k, captions, hf:NAME[:CONFIG][@parquet] or a folder
        split: the name of the split, such as val or test_2016_flickr
        held_out: with --split val, the share of train that the model was validated on instead of val
        model: the folder of a run or a model; by default models/multi30k-de-en
        beam: number of beams; 1 is greedy decoding
        alpha: exponent of the length penalty
        json: print one JSON object
        compile: use a decoding step compiled for this machine: always; never; auto, if one is there
        device: as PyTorch names it, such as `cpu` or `cuda:1`; by default an accelerator if there is one
    """
    use_device(device)
    folder = model_folder(model)
    search, translator = make_search(beam, alpha), load_translator(folder)
    pairs = load_pairs(data, split, *translator.languages, held_out)
    full = list(filter(all, pairs)) or pairs
    if len(full) < len(pairs):
        warn(left_out(len(pairs) - len(full), split))
    sources, references = zip(*full, strict=True)
    compiled.use(translator.model, beam, compile, warn if compile == "always" else be_silent)
    start = time.monotonic()
    translations = translate_lines(translator, list(sources), search, max(1, 512 // beam), warn)
    result = {
        "data": data,
        "split": split,
        "sentences": len(sources),
        **({} if held_out is None else {"held_out": held_out}),
        "search": "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}",
        **score(translations, list(references), translator.languages[1]),
    }
    part = "" if held_out is None else f", {held_out:g} of train held out"
    if json:
        print(dumps(result | {"seconds": round(time.monotonic() - start, 1)}))
    else:
        print(
            f"{folder}, {' to '.join(translator.languages)}; {split}{part}: {len(sources)} sentences, {result['search']}"
        )
        for name, title in SCORES.items():
            print(f"{title:<28}{result[name]:6.2f}  {result[name + '_signature']}")
        print(f"{'length / reference':<28}{result['length']:6.2f}")


def average(run: Path, *, out: Path, last: int = 5) -> None:
    """Average the last checkpoints of a run into a model (Section 6.1).

    Args:
        run: the folder of a run
        out: the folder to write the model to; it must not exist
        last: number of checkpoints to average
    """
    run = Path(run)
    if last < 1:
        raise ValueError(f"--last must be at least 1, but it is {last}")
    read_json(run / "config.json")
    paths = sorted((run / "checkpoints").glob("[0-9]*[0-9].safetensors"), key=lambda path: int(path.stem))
    if len(paths) < last:
        if not paths:
            raise ValueError(
                f"{run} has no checkpoint yet; it writes one every 200 updates, or as --checkpoint-every says"
            )
        raise ValueError(
            f"--last asks for {last} checkpoints, but {run} has {len(paths)} (it keeps {KEPT}); a smaller --checkpoint-every "
            "makes more"
        )
    translator, weights = load_translator(run), average_weights(paths[-last:])
    write_model(out, run, weights)
    print(f"{out}: the average of {last} checkpoints, {paths[-last].stem} to {paths[-1].stem}")
    before = loss_on_held_out(run, translator)
    load_weights(translator.model, weights, run / "checkpoints")
    if before is not None:
        after = loss_on_held_out(run, translator)
        print(f"validation loss {after:.3f}; the run's own model has {before:.3f}")
        if after > before:
            warn(f"the average is worse than the run's own model, {run}")


def explain(sentence: str, *, out: Path, model: Path | None = None) -> None:
    """Write a page that shows how a sentence is translated: step by step, with all attention weights.

    The page runs the model itself, for any sentence, unless the model is large or has whole words.

    Args:
        sentence: a sentence in the model's source language
        out: the HTML file to write
        model: the folder of a run or a model; by default models/multi30k-de-en
    """
    folder = model_folder(model)
    sentence = readable(sentence)
    translator, data = load_translator(folder), read_json(folder / "config.json").get("data", "")
    translation = explorer.write_page(translator, folder.name, sentence, Path(out), data)
    print(f"{sentence}\n{translation}\n{out}")


def export(
    *, out: Path, to: Literal["ctranslate2", "half"] = "ctranslate2", model: Path | None = None, quantization: str | None = None
) -> None:  # fmt: skip
    """Convert a model for another program, or to half its size.

    Args:
        out: the folder to write; it must not exist
        to: ctranslate2, or half: a model for this program with weights in float16
        model: the folder of a run or a model; by default models/multi30k-de-en
        quantization: for ctranslate2: int8, float16, ...; by default float32
    """
    folder, out = model_folder(model), Path(out)
    translator = load_translator(folder)
    if to == "half":
        if quantization:
            raise ValueError("--quantization is for ctranslate2; half is always float16")
        write_model(out, folder, {name: p.half() for name, p in weights_of(translator.model).items()})
        print(f"{out}: float16")
        return
    if out.exists():
        raise FileExistsError(f"{out}: exists already")
    try:
        from translator import export as converter
    except ImportError as error:
        raise ValueError(f"export needs the package ctranslate2: pip install ctranslate2 ({error})") from error
    converter.write_model(translator, folder, out, quantization)
    words = "its tokens are made with the tokenizer.json beside it, from words cut by spaCy's rules"
    how = words if translator.tokenizer.words else f"python {out / 'translate.py'} translates standard input"
    print(f"{out}: for {to}, {quantization or 'float32'}; {how}")


def program_version() -> str:
    """The version of the installed program, or a hint that it runs from its source."""
    try:
        return version("annotated-transformer")
    except PackageNotFoundError:
        return "from source, not installed"


def main(arguments: list[str] | None = None, name: str = "the_annotated_transformer.py") -> int:
    """Run the command line; `name` is the program's name in the help. Returns the exit status."""
    import cyclopts

    app = cyclopts.App(
        name=name,
        help="Train, use and look into a Transformer.",
        help_format="plaintext",
        version=program_version(),
        suppress_keyboard_interrupt=False,
    )
    for command in (train, translate, evaluate, average, explain, export):
        app.command(command)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return 0
    except BrokenPipeError:  # the reader has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        return 0
    except (cyclopts.CycloptsError, ValueError, OSError) as error:
        given = sys.argv[1:] if arguments is None else arguments
        text = re.sub(
            r'Command "\w+" parameter (\S+) requires an argument\.',
            lambda found: f"{found[1]} {'needs a value' if found[1].strip(chr(34)) in given else 'is missing'}",
            str(error),
        )
        more = "; --help lists them" if isinstance(error, cyclopts.UnknownCommandError) else ""
        print(f"error: {' '.join(text.split())}{more}", file=sys.stderr)
        return 2
    except Stopped as request:
        if os.environ.get("RANK", "0") == "0":
            print(request, file=sys.stderr)
        return 128 + request.number
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def entry() -> int:
    """The command `annotated-transformer`."""
    return main(name="annotated-transformer")
