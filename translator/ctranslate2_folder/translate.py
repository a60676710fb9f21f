"""Translate standard input, line by line (python translate.py < FILE).

It needs two packages: pip install ctranslate2 tokenizers. A line is answered when it has come. One
that is too long for the model is left empty, with a note; the status is 2 then.
"""

import html
import os
import re
import sys
from pathlib import Path

import ctranslate2
from tokenizers import Tokenizer

HIDDEN = "\uf8ff"  # ends the names of tokens that stand in no text
FAR = 500  # tokens; hardly any text has sentences that long, so hardly any model can translate one
folder = Path(__file__).resolve().parent
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
model = ctranslate2.Translator(str(folder))
tokenizer.encode_special_tokens = True  # the text "</s>" in a sentence is text


def plain(text):
    """A line with `&` where a web page has `&amp;`, without byte-order mark and space around it."""
    text = text.removeprefix("\ufeff")
    return re.sub(r"&(?:amp;)*(#?\w+;)", lambda m: html.unescape("&" + m[1]), text).strip()


def tokens_of(text):
    """Its tokens; one such as >>fra<<, which names a language, stands in front alone."""
    text = text.replace(HIDDEN, "")
    mark = re.match(">>[^<>]+<<", text)
    if mark and tokenizer.token_to_id(mark[0] + HIDDEN) is not None:
        return [mark[0], *tokenizer.encode(text[mark.end() :]).tokens]
    return tokenizer.encode(text).tokens


def translate(rows, far):
    """The translations of lists of tokens, an empty one for none."""
    length = max(map(len, rows)) + 50
    how = {"beam_size": 1 if far else 5, "length_penalty": 2}
    how |= {"max_decoding_length": length, "max_input_length": 0}
    found = model.translate_batch(rows, max_batch_size=64, **how)
    both = zip(rows, found, strict=True)
    texts = ["".join(result.hypotheses[0]) if row else "" for row, result in both]
    return [plain(text.replace("▁", " ")) for text in texts]


def answer(lines, first):
    """Print the translations of some lines; how many are left empty because they are too long."""
    rows, lost = [tokens_of(line) for line in lines], 0
    short = iter(translate([row for row in rows if len(row) <= FAR] or [[]], False))
    for number, row in enumerate(rows, first):
        if len(row) <= FAR:
            print(next(short))
            continue
        note = f"line {number} has {len(row):,} tokens, far more than a sentence"
        try:
            print(*translate([row], True))
            note += "; it is translated greedily, and badly"
        except (MemoryError, RuntimeError, ValueError) as error:
            # the positions have an end, and so has memory
            print()
            lost, note = lost + 1, f"{note}; it is left empty ({error})"
        print(f"note: {note}", file=sys.stderr)
    sys.stdout.flush()
    return lost


def main():
    """Answer all lines; what went wrong."""
    done, rest, data, lost, error = 0, b"", b"more", 0, None
    while data:
        data = sys.stdin.buffer.read1(1 << 13)
        *found, rest = (rest + data).split(b"\n")  # only a line feed ends a line
        found, rest = (found, rest) if data else ([*found, rest] if rest else found, b"")
        lines = []
        for line in found:
            try:
                if 3 * line.count(0) > len(line):
                    raise ValueError("likely UTF-16")
                lines.append(plain(line.decode("utf-8")))
            except ValueError as wrong:
                number, reason = done + len(lines) + 1, getattr(wrong, "reason", wrong)
                error = f"error: line {number}: not UTF-8 ({reason})"
                break
        lost += answer(lines, done + 1) if lines else 0
        done += len(lines)
        if error:
            break
    if lost and not error:
        error = f"error: {lost} of {done} lines are too long, and left empty"
    return error


if __name__ == "__main__":
    if sys.stdin is None:
        sys.exit("error: nothing to translate: standard input is closed")
    nowhere = open(os.devnull, "w")  # as good as a stream that is closed  # noqa: SIM115
    sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        error = main()
    except OSError as wrong:  # a full disk; or the reader has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        error = None if isinstance(wrong, BrokenPipeError) else f"error: {wrong}"
    if error:
        print(error, file=sys.stderr)
        sys.exit(2)
