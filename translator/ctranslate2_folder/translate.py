"""Translate standard input, line by line (python translate.py < FILE).

It needs two packages: pip install ctranslate2 tokenizers. A line is answered when it has come. One
that is too long for the model is left empty, with a note; the status is 2 then.
"""

import html
import os
import re
import sys
import unicodedata
from pathlib import Path

HIDDEN = "\uf8ff"  # ends the names of tokens that stand in no text
MARK = r"\s*(>>[^<>]+<<)"  # such as >>fra<<, which names a language
# hardly any text has sentences that long, so hardly any model can translate one
LONG_LINE_TOKENS = 500
BATCH_SIZE = 64  # sentences


def plain(text):
    """A line as readers see it: `&` for `&amp;`, letters and accents in one, no space around it."""
    text = re.sub(r"&(?:amp;)*(#?\w+;)", lambda entity: html.unescape("&" + entity[1]), text)
    return unicodedata.normalize("NFC", text.removeprefix("\ufeff")).strip()


def decoded(line):
    """The text of a line of bytes; ValueError if it isn't UTF-8."""
    if 3 * line.count(0) > len(line):
        raise ValueError("not UTF-8 (likely UTF-16)")
    try:
        return plain(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason})") from error


def available_cores():
    """How many threads may compute: OMP_NUM_THREADS, or the cores that this process may use."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) > 0:
        return int(threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Model:
    """A converted model with its tokenizer. `translate` counts in `lost` the lines left empty."""

    def __init__(self, folder, beam=5, alpha=1.8, device="cpu", type="default"):
        """alpha: exponent of the length penalty. device, type: as CTranslate2 names them.

        Raises RuntimeError or ValueError, CTranslate2's own, for what can't be loaded so.
        """
        import ctranslate2
        from tokenizers import Tokenizer

        # many small operations: each core has a batch of its own
        self.translator = ctranslate2.Translator(
            str(folder), device=device, compute_type=type,
            inter_threads=available_cores(), intra_threads=1,
        )  # fmt: skip
        self.rules = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.rules.encode_special_tokens = True  # the text "</s>" in a sentence is text
        self.beam = beam
        self.alpha = alpha
        self.lost = 0  # lines that were left empty

    def tokens(self, text):
        """The tokens of a line; one such as >>fra<<, which names a language, stands in front."""
        text = text.replace(HIDDEN, "")
        mark = re.match(MARK, text)
        if mark and self.rules.token_to_id(mark[1] + HIDDEN) is not None:
            return [mark[1], *self.rules.encode(text[mark.end() :]).tokens]
        return self.rules.encode(text).tokens

    def text(self, tokens):
        """The line that tokens make."""
        return plain("".join(tokens).replace("▁", " "))

    def ranked(self, result):
        """The tokens of a result's best translation, by log-probability over length penalty."""

        def score(hypothesis):
            tokens, log_p = hypothesis
            return log_p / ((5 + len(tokens) + 1) / 6) ** self.alpha  # one more for </s>

        return max(zip(result.hypotheses, result.scores, strict=True), key=score)[0]

    def translated(self, rows, beam):
        """Translations of lists of tokens; each has at most 50 tokens more than its source."""
        # CTranslate2 divides by another penalty, so it returns the sums, and we rank them
        results = self.translator.translate_batch(
            rows, beam_size=beam, num_hypotheses=beam, length_penalty=0, return_scores=True,
            max_decoding_length=max(map(len, rows)) + 50, max_input_length=0,
            max_batch_size=BATCH_SIZE,
        )  # fmt: skip
        answers = zip(rows, results, strict=True)
        return [self.text(self.ranked(result)[: len(row) + 50]) for row, result in answers]

    def translate(self, lines, tell, first=1):
        """A translation for each line, in order, "" for a blank one; `first`: the first's number.

        A line of more than LONG_LINE_TOKENS, with </s>, is translated alone and greedily, because a
        beam would take minutes, or left empty, where memory or the model's positions end; `tell`
        hears of it.
        """
        rows = [self.tokens(line) if line.strip() else [] for line in lines]
        short = [i for i, row in enumerate(rows) if 0 < len(row) < LONG_LINE_TOKENS]
        short.sort(key=lambda i: -len(rows[i]))  # so that batches have sentences of one length
        translations = [""] * len(lines)
        group = 2 * BATCH_SIZE * available_cores()  # between two, Ctrl-C is heard
        for start in range(0, len(short), group):
            numbers = short[start : start + group]
            texts = self.translated([rows[i] for i in numbers], self.beam)
            for i, text in zip(numbers, texts, strict=True):
                translations[i] = text
        for i, row in enumerate(rows):
            if len(row) < LONG_LINE_TOKENS:
                continue
            outcome = "it is translated greedily, and badly"
            try:
                translations[i] = self.translated([row], 1)[0]
            except (MemoryError, RuntimeError, ValueError) as error:
                self.lost += 1
                outcome = f"it is left empty ({error})"
            count = len(row) + 1  # with </s>
            tell(f"line {first + i} has {count:,} tokens, far more than a sentence; " + outcome)
        return translations


def note(text):
    """One line on standard error."""
    print(f"note: {text}", file=sys.stderr)


def main():
    """Answer all lines; what went wrong."""
    model = Model(Path(__file__).resolve().parent)
    answered = 0  # lines
    line_start = b""  # of the line that has not arrived as a whole
    data = b"more"
    error = None
    while data and not error:
        # pyrefly: ignore[missing-attribute] standard input is buffered
        data = sys.stdin.buffer.read1(1 << 13)
        *arrived, line_start = (line_start + data).split(b"\n")  # only a line feed ends a line
        if line_start and not data:
            arrived.append(line_start)
        lines = []
        for line in arrived:
            try:
                lines.append(decoded(line))
            except ValueError as fault:
                error = f"error: line {answered + len(lines) + 1}: {fault}"
                break
        if lines:
            print(*model.translate(lines, note, answered + 1), sep="\n", flush=True)
            answered += len(lines)
    if model.lost and not error:
        error = f"error: {model.lost} of {answered} lines are too long, and left empty"
    return error


if __name__ == "__main__":
    if sys.stdin is None:
        sys.exit("error: nothing to translate: standard input is closed")
    nowhere = open(os.devnull, "w")  # as good as a stream that is closed  # noqa: SIM115
    sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        # pyrefly: ignore[missing-attribute] both are text
        stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        fault = main()
    except OSError as error:  # a full disk; or the reader has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        fault = None if isinstance(error, BrokenPipeError) else f"error: {error}"
    if fault:
        print(fault, file=sys.stderr)
        sys.exit(2)
