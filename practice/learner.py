"""How a reader's functions learn, inside the judge's worker: one object for a training.

`worker.py` reads this room when it is asked for `learn`, and imports nothing else of ours. A weight
is a leaf of autograd that lives here; the reader's functions get it in the dictionaries of the
gates, and their `adam` says what comes next. Pairs are lists of ids: a source that ends with the
end, a target from the beginning to the end.
"""

import linecache
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

PAIRS_COMPARED = 4  # to see whether sentences together give the numbers of sentences one by one
CLOSE = 1e-3  # of a gradient in single precision, relative to its largest number
# what leaves PyTorch gives Python's numbers or NumPy's arrays; a place has no gradient, either
LEAVING = {"item", "tolist", "numpy", "__float__", "__array__", "__set__", "argmax"}
# that learning calls
FUNCTIONS = "encoder", "decoder", "logits", "masks", "shift", "loss", "rate", "adam", "translate"
OTHER_TABLE = "w['decoder']['table']"
NO_TENSORS = (
    "gate 20 needs tensors, which remember how they were computed, and `take` gives {}. In NumPy "
    "or lists, gates 15 to 19 stand for learning; to see it, let `take` give "
    "torch.from_numpy(array), and compute with torch"
)


class NotLearning(Exception):
    """Why a file can't learn, in a sentence for its reader."""


def leaves(weights: Any, name: str = "w") -> Iterator[tuple[str, Any, Any, Any]]:
    """Each array in nested dicts and lists: its name, where it is, under which key, and itself.

    The decoder's table is the encoder's, and comes once.
    """
    items = weights.items() if isinstance(weights, dict) else enumerate(weights)
    for key, value in items:
        inner = f"{name}[{key!r}]"
        if isinstance(value, (dict, list)):
            yield from leaves(value, inner)
        elif inner != OTHER_TABLE:
            yield inner, weights, key, value


def and_others(names: list[str]) -> str:
    """The first of some weights, and how many more there are."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


class Trace(TorchFunctionMode):
    """Watches PyTorch's functions, and notes in which line of the file gradients get lost.

    A tensor that depends on weights goes in, and what comes out depends on none: a tensor without
    a history, or a number of Python's. The last such line of a weight counts; an `item()` that
    only prints comes before, and takes nothing away. Also the first line in which a NaN comes out
    of numbers.
    """

    def __init__(self, learner: "Learner"):
        super().__init__()
        self.name_of = {id(w): name for name, w in learner.named.items()}
        self.path = learner.module.__file__
        self.place = learner.place
        self.lost: dict[str, str] = {}  # the line, by the weight's name
        self.nan = ""  # a line

    def __enter__(self) -> "Trace":
        create = nn.Parameter.__new__  # which doesn't ask a TorchFunctionMode

        def parameter(cls: type, data: Any = None, *more: Any, **options: Any) -> Any:
            result = create(cls, data, *more, **options)
            self.see("Parameter", [data], result)  # which forgets the history of its data
            return result

        self.patch = mock.patch.object(nn.Parameter, "__new__", parameter)
        self.patch.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.patch.stop()

    def __torch_function__(self, function, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        self.see(getattr(function, "__name__", ""), tree_leaves((args, kwargs)), result)
        return result

    def see(self, name: str, inputs: list, result: Any) -> None:
        """Note what a function of PyTorch's has done."""
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        floating = isinstance(result, Tensor) and result.is_floating_point()
        from_numbers = tensors and not any(x.isnan().any() for x in tensors)
        # what `empty` gives is whatever was in the memory
        if from_numbers and floating and not self.nan and not name.startswith("empty"):
            self.nan = self.line() if result.isnan().any() else ""
        # a function may change its first argument in place, and give it back
        new = all(result is not x for x in tensors[:1])
        without_history = floating and new and result.grad_fn is None
        if without_history or name in LEAVING or name == "copy_":
            for weight in set().union(*(self.reached(x) for x in tensors if x.requires_grad)):
                if line := self.line():
                    self.lost[weight] = line

    def line(self) -> str:
        """The line of the file that is at work; empty if it is none of the file's."""
        frame = sys._getframe()
        while frame and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        if frame is None:
            return ""
        text = linecache.getline(self.path, frame.f_lineno).strip()
        off = (
            "" if torch.is_grad_enabled() else ", where torch.no_grad or inference_mode is in force"
        )
        return f"{self.place(frame.f_lineno)}, {text}{off}"

    def reached(self, tensor: Tensor) -> set[str]:
        """The weights that a tensor was computed from."""
        names = {self.name_of[id(tensor)]} if id(tensor) in self.name_of else set()
        nodes = [tensor.grad_fn]  # of autograd's graph, still to be visited
        visited = set()
        while nodes:
            node = nodes.pop()
            if node is None or node in visited:
                continue
            visited.add(node)
            leaf = getattr(node, "variable", None)  # only where the graph ends, in a leaf
            if id(leaf) in self.name_of:
                names.add(self.name_of[id(leaf)])
            nodes += [inner for inner, _ in node.next_functions]
        return names


class Learner:
    """Weights, Adam's averages and the number of updates of a file that learns."""

    def __init__(self, module: Any, place: Callable[[int], str], task: dict[str, Any]):
        """`task`: weights, h, pad, bos, eos, smoothing, warmup, factor, step, averages, threads."""
        self.module = module
        self.place = place
        self.task = task
        self.take = getattr(module, "take", lambda array: array)
        self.step = task["step"]
        torch.set_num_threads(task["threads"])  # the worker was started with one, for the gates
        pairs = task["pairs"]
        for kind in (np.float32, np.float64):  # some files make numbers of 64 bits themselves
            self.fill(kind)
            try:
                self.one_by_one(pairs[:1])
                break
            except NotLearning:
                raise
            except Exception:
                if kind is np.float64:
                    raise
        self.notes = self.check_gradients(pairs)
        self.together = self.agrees(pairs)

    def fill(self, kind: type) -> None:
        """Make the leaves and Adam's averages, in numbers of a kind."""
        self.weights = self.task["weights"]
        self.named: dict[str, Tensor] = {}
        for name, holder, key, array in leaves(self.weights):
            array = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
            tensor = self.take(array.astype(kind))
            if not isinstance(tensor, Tensor):
                raise NotLearning(NO_TENSORS.format(type(tensor).__name__))
            # the leaf takes the array's place, so that the functions get it in the dictionaries
            self.named[name] = holder[key] = tensor.detach().clone().requires_grad_()
        self.output = self.weights["decoder"]["table"] = self.weights["encoder"]["table"]
        leaf_tensors = list(self.named.values())
        averages = self.task["averages"] or [[0 * w.detach() for w in leaf_tensors]] * 2
        self.m, self.v = (list(map(self.tensor, side, leaf_tensors)) for side in averages)

    @staticmethod
    def tensor(value: Any, like: Tensor) -> Tensor:
        """What came from another process or the reader's function, as a tensor like a weight."""
        return torch.as_tensor(value, dtype=like.dtype, device=like.device)

    # --- a loss and its gradient ---

    def masks(self, src: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
        """The reader's masks of a pair."""
        return self.module.masks(src, read, self.task["pad"])

    def logits(self, src: Tensor, read: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """The reader's model: logits (T, vocab) from the ids of a source and what is read."""
        file = self.module
        w = self.weights
        h = self.task["h"]
        memory = file.encoder(src, src_mask, w["encoder"], h)
        x = file.decoder(read, memory, src_mask, tgt_mask, w["decoder"], h)
        return file.logits(x, self.output)

    def loss(self, pair: tuple[list[int], list[int]]) -> Tensor:
        """The reader's loss of a pair, summed over the tokens of the target."""
        src, read, target = self.ids(pair)
        scores = self.logits(src, read, *self.masks(src, read))
        return self.module.loss(scores, target, self.task["smoothing"], self.task["pad"])

    def ids(self, pair: tuple[list[int], list[int]]) -> tuple[Any, Any, Any]:
        """A pair as the reader's functions take it: the source, what is read, what is predicted."""
        src, tgt = (self.take(np.array(side)) for side in pair)
        return src, *self.module.shift(tgt)

    def one_by_one(self, pairs: list) -> float:
        """Add the gradients of the pairs' losses, and give the sum of these."""
        total = 0.0
        for pair in pairs:
            loss = self.loss(pair)
            if not isinstance(loss, Tensor):
                raise NotLearning(
                    f"loss gives {type(loss).__name__}, and no tensor with a gradient"
                )
            if loss.requires_grad:  # where it isn't, `check_gradients` says why
                loss.sum().backward()
            total += float(loss.detach())
        return total

    def all_at_once(self, pairs: list) -> float:
        """The same for a padded batch, by torch.func.vmap."""
        pad = self.task["pad"]
        src, read, target = (
            nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
            for rows in zip(*map(self.ids, pairs), strict=True)
        )
        masks = (torch.stack(rows) for rows in zip(*map(self.masks, src, read), strict=True))
        # only the model: many a loss picks the tokens that count, which vmap can't
        scores = torch.func.vmap(self.logits, randomness="different")(src, read, *masks)
        loss = self.module.loss(scores.flatten(0, 1), target.flatten(), self.task["smoothing"], pad)
        loss.backward()
        return float(loss.detach())

    def gradients(self, pairs: list, loss_of: Callable) -> tuple[float, list[Tensor]]:
        """The loss per token and its gradients by one of the two ways above."""
        for w in self.named.values():
            w.grad = None
        # losses are sums, so one division at the end makes them and the gradients means
        tokens = sum(len(tgt) - 1 for _, tgt in pairs)
        loss = loss_of(pairs) / tokens
        return loss, [
            torch.zeros_like(w) if w.grad is None else w.grad / tokens for w in self.named.values()
        ]

    def agrees(self, pairs: list) -> bool:
        """Whether sentences together have the gradients that they have one by one."""
        few = pairs[:PAIRS_COMPARED]
        with suppress(Exception):  # of many kinds: whatever vmap can't do
            loss, gradients = self.gradients(few, self.one_by_one)
            loss_together, together = self.gradients(few, self.all_at_once)
            return math.isclose(loss, loss_together, rel_tol=CLOSE) and all(
                torch.allclose(a, b, CLOSE, CLOSE * float(a.abs().max()))
                for a, b in zip(gradients, together, strict=True)
            )
        return False

    # --- what goes wrong ---

    def check_gradients(self, pairs: list) -> list[str]:
        """Notes on weights that aren't used; NotLearning names the line that loses a gradient."""
        # three tables here: those that encoder and decoder read would hide what they lose, if they
        # had the gradient of the one that the logits are made with
        table, output = (self.output.detach().clone().requires_grad_() for _ in range(2))
        with (
            mock.patch.dict(self.weights["decoder"], table=table),
            mock.patch.dict(self.named, {OTHER_TABLE: table}),
            mock.patch.object(self, "output", output),
        ):
            return self.lost_gradients(pairs)

    def lost_gradients(self, pairs: list) -> list[str]:
        """What `check_gradients` gives, with the tables that the weights have now."""
        # the trace makes each function of PyTorch's slower: only where something is lost, and once
        _, gradients = self.gradients(pairs, self.one_by_one)
        zeros = [not gradient.any() for gradient in gradients]
        names = [name for name, zero in zip(self.named, zeros, strict=True) if zero]
        if not names:
            return []
        trace = Trace(self)
        with trace:
            self.loss(pairs[0])
        for line in dict.fromkeys(trace.lost.values()):
            lost = [name for name in names if trace.lost.get(name) == line]
            if lost:
                raise NotLearning(f"no gradient reaches {and_others(lost)}: it is lost in {line}")
        return [f"no gradient reaches {and_others(names)}, which your code doesn't use"]

    def nan_line(self, pairs: list) -> str:
        """The line of the file that makes a NaN of numbers; empty if none does."""
        for pair in pairs:
            trace = Trace(self)
            with trace, suppress(Exception):
                self.loss(pair)
            if trace.nan:
                return f": first in {trace.nan}"
        return ""

    # --- what the judge asks ---

    def update(self, pairs: list) -> float:
        """An update of all weights by the reader's rate and adam; the loss per token before it."""
        loss, gradients = self.gradients(
            pairs, self.all_at_once if self.together else self.one_by_one
        )
        self.step += 1
        if not math.isfinite(loss):
            line = self.nan_line(pairs)
            raise NotLearning(f"the loss is {loss} in update {self.step}{line}")
        if loss < 0:
            raise NotLearning(
                f"the loss is {loss:.2f} in update {self.step}: a cross-entropy is never below 0"
            )
        d_model = self.named["w['encoder']['table']"].shape[1]
        lrate = self.task["factor"] * self.module.rate(self.step, d_model, self.task["warmup"])
        with torch.no_grad():
            for i, name in enumerate(self.named):
                self.change(i, name, gradients[i], lrate)
        return loss

    def change(self, i: int, name: str, gradient: Tensor, lrate: float) -> None:
        """Change a weight by the reader's adam; NotLearning for what isn't finite."""
        w = self.named[name]
        new = self.module.adam(w.detach(), gradient, self.m[i], self.v[i], self.step, lrate)
        new, self.m[i], self.v[i] = (self.tensor(value, w) for value in new)
        # a sum is quicker than a look at each number, and can only find too much
        if not math.isfinite(new.sum()) and not new.isfinite().all():
            why = f"adam makes {name} not finite in update {self.step}, by a rate of {float(lrate):.3g}"
            if not gradient.isfinite().all():
                why = f"the gradient of {name} isn't finite in update {self.step}"
            raise NotLearning(why)
        w.copy_(new)

    def translate(self, src: list[int], longest: int) -> list[int]:
        """The ids that the reader's translate writes."""
        ends = self.task["bos"], self.task["eos"]
        ids = self.module.translate(
            self.take(np.array(src)), self.weights, self.task["h"], *ends, longest
        )
        return [int(i) for i in ids]

    def predict(self, pairs: list) -> list[np.ndarray]:
        """Logits (T, vocab) of each pair, whatever is padded in it."""
        with torch.no_grad():
            ids = [[self.take(np.array(side)) for side in (src, tgt[:-1])] for src, tgt in pairs]
            return [self.logits(src, tgt, *self.masks(src, tgt)).cpu().numpy() for src, tgt in ids]

    def state(self) -> list[list[np.ndarray]]:
        """Weights and both averages, as arrays in the order of the dictionaries."""
        lists = (self.named.values(), self.m, self.v)
        return [[tensor.detach().cpu().numpy() for tensor in tensors] for tensors in lists]


LEARNERS: dict[str, Learner] = {}  # of a file, by its path


def check_written(module: Any) -> None:
    """NotLearning names functions that aren't there, or as empty as `judge --new` writes them."""
    codes = {name: getattr(getattr(module, name, None), "__code__", None) for name in FUNCTIONS}
    empty = [
        name
        for name, code in codes.items()
        if not hasattr(module, name) or (code and "NotImplementedError" in code.co_names)
    ]
    if empty:
        file = os.path.basename(module.__file__)
        raise NotLearning(f"write the functions first ({and_others(empty)}): judge {file}")


def answer(
    module: Any, place: Callable[[int], str], action: str, *arguments: Any
) -> dict[str, Any]:
    """What came of an action: `begin` makes a learner, every other is a method of it."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            if action == "begin":
                check_written(module)
                learner = LEARNERS[module.__file__] = Learner(module, place, *arguments)
                return {"result": {"together": learner.together, "notes": learner.notes}}
            return {"result": getattr(LEARNERS[module.__file__], action)(*arguments)}
        except NotLearning as error:
            return {"error": str(error)}
