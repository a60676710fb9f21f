// What MicroPython lacks of Python's library, and what people use by habit in plain lists, as the
// files of its folder /lib. `set_up` puts it where MicroPython has a part of it.
export const LIBRARY = {
  __future__: "annotations = None\n",
  typing: `
class Hint:  # anything that hints are made of; called, as in TypeVar("T"), it is what it got last
    def __getitem__(self, key):
        return self

    def __call__(self, *given, **named):
        return given[-1]

    def __or__(self, other):
        return self

    __ror__ = __or__

TYPE_CHECKING = False

def __getattr__(name):
    return Hint()
`,
  statistics: `
def mean(values):
    values = list(values)
    return sum(values) / len(values)

fmean = mean

def pvariance(values, mu=None):
    values = list(values)
    middle = mean(values) if mu is None else mu
    return sum((value - middle) ** 2 for value in values) / len(values)

def pstdev(values, mu=None):
    return pvariance(values, mu) ** 0.5
`,
  mathematics: `
from math import *

fsum = sum

def prod(values, *, start=1):
    for value in values:
        start *= value
    return start

def sumprod(p, q):
    return sum(a * b for a, b in zip(p, q, strict=True))
`,
  set_up: `
import builtins, collections, itertools, mathematics, sys, typing
from builtins import print as show, sorted as ordered, sum as total, zip as together

sys.modules["math"] = mathematics
sys.modules["collections.abc"] = collections.abc = typing

def zip(*rows, strict=False):
    if strict:
        rows = [list(row) for row in rows]
        if len({len(row) for row in rows}) > 1:
            raise ValueError(f"zip() of rows of {', '.join(str(len(row)) for row in rows)} values")
    return together(*rows)

def sum(values, start=0):
    return total(values, start)

def sorted(values, *, key=None, reverse=False):  # which leaves equals in their order
    keyed = [
        (key(value) if key else value, -n if reverse else n, value)
        for n, value in enumerate(values)
    ]
    return [value for _, _, value in ordered(keyed, reverse=reverse)]

def print(*values, sep=" ", end="\\n", file=None, flush=False):
    show(*values, sep=sep, end=end)

class Strided:  # a list whose slices with a step can be assigned to
    def __init__(self, row):
        self.row = row

    def __getitem__(self, key):
        return self.row[key]

    def __setitem__(self, key, values):
        if not isinstance(self.row, list) or key.step in (None, 1):
            self.row[key] = values
            return
        places, values = range(*key.indices(len(self.row))), list(values)
        if len(values) != len(places):
            raise ValueError(f"{len(values)} values for the {len(places)} places of a slice")
        for place, value in zip(places, values):
            self.row[place] = value

for name, value in {
    "zip": zip, "sum": sum, "sorted": sorted, "print": print, "_strided": Strided,
    "_list": lambda *items: list(items), "_tuple": lambda *items: items,
    "_set": lambda *items: set(items),
}.items():
    setattr(builtins, name, value)

class Chain:
    def __call__(self, *parts):
        return self.from_iterable(parts)

    def from_iterable(self, parts):
        return (item for part in parts for item in part)

itertools.chain = Chain()

def accumulate(values, func=lambda a, b: a + b, *, initial=None):
    values = iter(values)
    try:
        result = next(values) if initial is None else initial
    except StopIteration:
        return
    yield result
    for value in values:
        result = func(result, value)
        yield result

itertools.accumulate = accumulate
`,
};
