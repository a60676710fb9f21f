"""The functions that a reader writes on the page, in plain lists, and how a mistake changes them.

The page runs them in MicroPython and compares what they give with what the reader's function gives,
so that it can name a mistake of the catalogue.
"""

from typing import NamedTuple


# In plain lists, because MicroPython has no NumPy; a text and not code, because a mistake is a
# change of the text, and the page runs all its forms.
class Function(NamedTuple):
    """A function that is right, and the names of mistakes: what they write for what of its text."""

    text: str
    mistakes: list[tuple[str, dict[str, str]]]

    def forms(self) -> list[tuple[str, str]]:
        """The name of each mistake and the whole text with it; one may have several forms."""
        # a name may stand several times: one mistake can be written in several ways
        forms = []
        for name, changes in self.mistakes:
            text = self.text
            for old, new in changes.items():
                text = text.replace(old, new)
            forms.append((name, text))
        return forms


FUNCTIONS: dict[str, Function] = {}

# what mistakes replace has a name where several do so
HIDE, WEIGH = "s if m else -inf", "weights = [softmax(row) for row in scores]"
DIVIDED = "[p / sum(powers) for p in powers]"
FUNCTIONS["attention"] = Function(
    """\
from math import exp, inf, sqrt

def softmax(row):
    powers = [exp(z - max(row)) for z in row]
    return [p / sum(powers) for p in powers]

def attention(Q, K, V, mask):
    scores = [[sum(a * b for a, b in zip(q, k)) / sqrt(len(k)) for k in K] for q in Q]
    if mask is not None:
        scores = [[s if m else -inf for s, m in zip(*rows)] for rows in zip(scores, mask)]
    weights = [softmax(row) for row in scores]
    return [[sum(w * v for w, v in zip(row, column)) for column in zip(*V)] for row in weights]
""",
    [
        ("not_scaled", {" / sqrt(len(k))": ""}),
        ("scaled_by_d_k", {"/ sqrt(len(k))": "/ len(k)"}),
        ("scaled_by_length", {"/ sqrt(len(k))": "/ sqrt(len(K))"}),
        ("multiplied_by_root", {"/ sqrt(len(k))": "* sqrt(len(k))"}),
        (
            "softmax_over_queries",
            {WEIGH: "weights = zip(*[softmax(keys) for keys in zip(*scores)])"},
        ),
        ("powers_not_divided", {"z - max(row)": "z", DIVIDED: "powers"}),
        ("powers_of_differences_not_divided", {DIVIDED: "powers"}),
        ("no_softmax", {HIDE: "s * m", WEIGH: "weights = scores"}),
        ("mask_the_other_way_round", {HIDE: "-1e9 if m else s"}),
        ("mask_the_other_way_round", {HIDE: "-inf if m else s"}),
        (
            "mask_after_softmax",
            {
                HIDE: "s",
                WEIGH: f"""{WEIGH}
    if mask is not None:
        weights = [[w * m for w, m in zip(*rows)] for rows in zip(weights, mask)]""",
            },
        ),
        ("mask_ignored", {HIDE: "s"}),
        ("mask_added", {HIDE: "s + m"}),
        ("mask_times_scores", {HIDE: "s * m"}),
    ],
)

WAVE, COLUMNS = "cos(angle) if j % 2 else sin(angle)", "for j in range(d_model)"
FUNCTIONS["positions"] = Function(
    """\
from math import cos, sin

def positions(length, d_model):
    rows = []
    for p in range(length):
        row = []
        for j in range(d_model):
            i = j - j % 2
            angle = p / 10000 ** (i / d_model)
            row.append(cos(angle) if j % 2 else sin(angle))
        rows.append(row)
    return rows
""",
    [
        (
            "sines_then_cosines",
            {COLUMNS: "for j in list(range(0, d_model, 2)) + list(range(1, d_model, 2))"},
        ),
        ("positions_from_one", {"range(length)": "range(1, length + 1)"}),
        ("cosine_with_its_own_frequency", {"i = j - j % 2": "i = j"}),
        ("frequency_of_half_the_exponent", {"(i / d_model)": "(i / d_model / 2)"}),
        ("frequency_of_twice_the_exponent", {"(i / d_model)": "(2 * i / d_model)"}),
        ("frequency_of_twice_the_dimension", {"(i / d_model)": "(2 * j / d_model)"}),
        ("base_of_1000", {"10000": "1000"}),
        ("positions_multiplied", {"p / 10000": "p * 10000"}),
        ("sines_alone", {WAVE: "sin(angle)"}),
        ("cosine_first", {WAVE: "sin(angle) if j % 2 else cos(angle)"}),
    ],
)

# one mask or both may be the wrong way round, and each way is a form of its own
SOURCE, TARGET = "[source]", "target\n"
NO_SOURCE, NO_TARGET = "[[not s for s in source]]", "[[not s for s in row] for row in target]\n"
FUNCTIONS["masks"] = Function(
    """\
def masks(src, tgt, pad):
    source = [token != pad for token in src]
    target = [[k <= t and tgt[k] != pad for k in range(len(tgt))] for t in range(len(tgt))]
    return [source], target
""",
    [
        ("no_causal_mask", {"k <= t and ": ""}),
        ("causal_mask_one_too_far", {"k <= t": "k <= t + 1"}),
        ("target_mask_without_padding", {" and tgt[k] != pad": ""}),
        ("causal_mask_transposed", {"k <= t": "k >= t"}),
        ("causal_mask_without_diagonal", {"k <= t": "k < t"}),
        ("or_for_and", {"and": "or"}),
        ("padded_queries_masked", {"k <= t": "k <= t and tgt[t] != pad"}),
        ("padding_seen", {"token != pad": "True"}),
        ("pad_written_in", {"!= pad": "!= 0"}),
        ("masks_inverted", {SOURCE: NO_SOURCE, TARGET: NO_TARGET}),
        ("masks_inverted", {SOURCE: NO_SOURCE}),
        ("masks_inverted", {TARGET: NO_TARGET}),
    ],
)

LAST = "g * (a - mean) / root + b"
FUNCTIONS["layer_norm"] = Function(
    """\
from math import sqrt

def layer_norm(x, gain, bias):
    out = []
    for row in x:
        values = row
        mean = sum(values) / len(values)
        variance = sum((a - mean) ** 2 for a in values) / len(values)
        root = sqrt(variance + 1e-5)
        out.append([g * (a - mean) / root + b for a, g, b in zip(row, gain, bias)])
    return out
""",
    [
        (
            "variance_of_a_sample",
            {"a in values) / len(values)": "a in values) / (len(values) - 1)"},
        ),
        ("epsilon_outside_the_root", {"variance + 1e-5)": "variance) + 1e-5"}),
        ("no_epsilon", {" + 1e-5": ""}),
        ("norm_without_mean", {"mean = sum(values) / len(values)": "mean = 0"}),
        ("no_gain_and_bias", {LAST: "(a - mean) / root"}),
        ("norm_by_variance", {"sqrt(variance": "(variance"}),
        ("norm_by_sum", {"a in values) / len(values)": "a in values)"}),
        ("norm_of_the_whole", {"values = row": "values = [a for other in x for a in other]"}),
        (
            "norm_over_time",
            {
                "def layer_norm(x, gain, bias):": """\
def layer_norm(x, gain, bias):
    size = len(x)
    columns = [
        norm([column], [g] * size, [b] * size)[0] for column, g, b in zip(zip(*x), gain, bias)
    ]
    return [list(row) for row in zip(*columns)]

def norm(x, gain, bias):"""
            },
        ),
        ("gain_forgotten", {LAST: "(a - mean) / root + b"}),
        ("bias_forgotten", {LAST: "g * (a - mean) / root"}),
        ("bias_before_gain", {LAST: "g * ((a - mean) / root + b)"}),
    ],
)

FUNCTIONS["decode"] = Function(
    """\
def decode(scores, bos, eos, longest):
    ids = [bos]
    while len(ids) <= longest and ids[-1] != eos:
        row = scores(ids)
        ids.append(row.index(max(row)))
    return ids[1:]
""",
    [
        ("bos_given_back", {"ids[1:]": "ids"}),
        ("bos_counted", {"ids[1:]": "ids", "<= longest": "< longest"}),
        ("eos_not_given_back", {"ids[1:]": "[token for token in ids[1:] if token != eos]"}),
        ("one_token_too_many", {"<= longest": "<= longest + 1"}),
        ("one_token_too_few", {"<= longest": "< longest"}),
        ("longest_ignored", {"len(ids) <= longest and ": ""}),
        ("least_probable", {"max(row)": "min(row)"}),
        ("last_token_alone", {"scores(ids)": "scores(ids[-1:])"}),
        ("eos_ignored", {" and ids[-1] != eos": ""}),
    ],
)

# smoothing shares itself out among all tokens but padding, whose share is taken back
SHARE = "(1 - smoothing) * (k == right) + share"
LEFT_OUT = "[0] * len(p) if right == pad else "
NO_ZERO = {"        q[pad] = 0\n": ""}
FUNCTIONS["loss_gradient"] = Function(
    """\
from math import exp

def loss_gradient(logits, target, smoothing, pad):
    out = []
    for scores, right in zip(logits, target):
        powers = [exp(z - max(scores)) for z in scores]
        p = [power / sum(powers) for power in powers]
        share = smoothing / (len(p) - 1)
        q = [(1 - smoothing) * (k == right) + share for k in range(len(p))]
        q[pad] = 0
        out.append([0] * len(p) if right == pad else [a - b for a, b in zip(p, q)])
    return out
""",
    [
        ("gradient_upside_down", {"a - b": "b - a"}),
        ("no_smoothing", {SHARE: "k == right"}),
        ("gradient_without_target", {"a - b": "a"}),
        ("scores_for_probabilities", {"zip(p, q)": "zip(scores, q)"}),
        ("padding_has_a_share", NO_ZERO),
        ("padding_has_a_share", {**NO_ZERO, "len(p) - 1": "len(p)"}),
        (
            "right_token_without_share",
            {SHARE: "1 - smoothing if k == right else share", "len(p) - 1": "len(p) - 2"},
        ),
        ("shared_by_all_others", {SHARE: "1 - smoothing if k == right else share"}),
        ("shared_by_all_others", {SHARE: "1 - smoothing if k == right else share", **NO_ZERO}),
        ("pad_written_in", {"q[pad]": "q[0]", "right == pad": "right == 0"}),
        ("gradient_where_padding_is", {LEFT_OUT: "p if right == pad else "}),
        ("pads_are_tokens", {LEFT_OUT: ""}),
        ("pads_are_tokens", {LEFT_OUT: "", "= 0\n": "= (1 - smoothing) * (right == pad)\n"}),
        ("mean_for_sum", {"a - b": "(a - b) / sum(y != pad for y in target)"}),
        ("mean_with_padding", {"a - b": "(a - b) / len(target)"}),
    ],
)

RATE = "min(step ** -0.5, step * warmup ** -1.5)"
FUNCTIONS["rate"] = Function(
    """\
def rate(step, d_model, warmup):
    return d_model ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)
""",
    [
        ("rate_with_max", {"min": "max"}),
        ("rate_without_width", {"d_model ** -0.5 * ": ""}),
        ("rate_without_warmup", {"-1.5": "-0.5"}),
        ("rate_only_rises", {RATE: "step * warmup ** -1.5"}),
        ("rate_only_falls", {RATE: "step ** -0.5"}),
        ("rate_grows_with_width", {"d_model ** -0.5": "d_model ** 0.5"}),
        ("rate_one_step_late", {RATE: RATE.replace("step", "(step + 1)")}),
        ("rate_falls_like_the_step", {"step ** -0.5": "1 / step"}),
        ("rate_beside_its_peak", {RATE: "min((step / warmup) ** -0.5, step / warmup)"}),
        ("warmup_written_in", {"warmup ** -1.5": "4000 ** -1.5"}),
        ("width_written_in", {"d_model **": "512 **"}),
    ],
)
