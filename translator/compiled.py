"""The decoding step as one compiled call.

A step is about a hundred small operations, and at the sizes of `tiny` Python takes longer to start them than the processor to
compute them. torch.export records a step once, and AOTInductor makes a C++ library of the record, in which neighbouring
operations are one loop. That takes a compiler and about 25 seconds. The library is kept in the user's cache. It belongs to
the model's weights, the processor and the version of PyTorch, whose digest is its name.

PyTorch's own way to call such a library, `torch._inductor.aoti_load_package`, holds Python's global lock during the call, so
that threads wait for each other. Here the library's C interface (`aoti_runtime/interface.h` in PyTorch) is called through
`ctypes`, which gives the lock away.
"""

import ctypes
import hashlib
import inspect
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import warnings
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

import the_annotated_transformer as document
from the_annotated_transformer import Transformer, attend_once, evaluating, largest, split_heads
from translator.architecture import state

Mode = Literal["auto", "always", "never"]
SECONDS = 25  # that building a step takes, about
KEPT = 60  # days without use after which a step leaves the cache
Call = Callable[..., tuple[Tensor, Tensor, list[list[Tensor]]]]
IN_USE: weakref.WeakKeyDictionary[Transformer, dict[int, tuple[int, Call]]] = (
    weakref.WeakKeyDictionary()
)  # by model and beam


class Step(nn.Module):
    """A decoding step as a function of tensors alone: keys and values of earlier steps come in and go out, one longer.

    The parts of the model are called as they are; only its two attentions are written anew.
    """

    def __init__(self, model: Transformer, beam: int):
        super().__init__()
        self.model, self.beam, weight = model, beam, model.generator.proj.weight.detach()
        padding = -len(weight) % 64
        self.output = nn.Buffer(nn.functional.pad(weight, (0, 0, 0, padding)).t().contiguous())
        bias = model.generator.proj.bias
        bias = weight.new_zeros(len(weight)) if bias is None else bias.detach()
        self.bias = nn.Buffer(nn.functional.pad(bias, (0, padding), value=-torch.inf))
        own = [layer.self_attn for layer in model.decoder.layers]
        together = [torch.cat([W.weight.detach() for W in (attn.W_q, attn.W_k, attn.W_v)]).t() for attn in own]
        self.together = nn.ParameterList(
            [nn.Parameter(matrix.contiguous(), requires_grad=False) for matrix in together]
        )

    def forward(
        self, tokens: Tensor, position: Tensor, rows: Tensor, sources: Tensor, mask: Tensor,
        past: list[list[Tensor]], source: list[list[Tensor]],
    ) -> tuple[Tensor, Tensor, list[list[Tensor]]]:  # fmt: skip
        """tokens (R) to the log-probabilities and ids of the likeliest next ones, both (R, beam), and the longer past.

        position (d_model) is added to the embeddings. Row i goes on from row rows[i] of the past, and translates the source
        sources[i]. mask (B, S) is 0 or -inf. past has keys (P, h, t, d_k) and values (P, h, t, d_v) of each layer, source the
        same of the sources, (B, h, S, ...). Greedy decoding, beam 0, needs one id and no log-probability; it gets a logit.
        """
        x, longer = self.model.tgt_embed.embeddings(tokens) + position, []
        mask = mask[sources].unsqueeze(1)  # (R, 1, S)
        for layer, together, earlier, known in zip(self.model.decoder.layers, self.together, past, source, strict=True):
            own, cross = layer.self_attn, layer.src_attn

            def look_back(x: Tensor, own=own, together=together, earlier=earlier) -> Tensor:
                sizes = [W.out_features for W in (own.W_q, own.W_k, own.W_v)]
                q, *new = (y.unflatten(-1, (own.h, -1)) for y in (x @ together).split(sizes, dim=-1))
                longer.append(
                    [torch.cat((old[rows], y.unsqueeze(2)), dim=2) for old, y in zip(earlier, new, strict=True)]
                )
                return own.W_o(attend_once(q, *longer[-1]).flatten(1))

            def look_across(x: Tensor, cross=cross, known=known) -> Tensor:
                q = cross.W_q(x).unflatten(-1, (cross.h, -1))
                return cross.W_o(attend_once(q, *(y[sources] for y in known), mask).flatten(1))

            x = layer.sublayer[0](x, look_back)
            x = layer.sublayer[1](x, look_across)
            x = layer.sublayer[2](x, layer.feed_forward)
        logits = self.model.decoder.norm(x) @ self.output + self.bias
        values, ids = largest(logits, max(1, self.beam))
        return values - logits.logsumexp(-1, keepdim=True) if self.beam else values, ids, longer


class CompiledDecoder:
    """`decoding.CachedDecoder` with a compiled step: the same methods, the same results."""

    def __init__(self, model: Transformer, src: Tensor, src_mask: Tensor, call: Call):
        self.model, self.call, memory = model, call, model.encode(src, src_mask)
        closed = (src_mask == 0).expand(len(src), 1, -1).squeeze(1)
        self.mask = memory.new_zeros(closed.shape).masked_fill(closed, -torch.inf)
        self.source, self.past = [], []
        for layer in model.decoder.layers:
            own, cross = layer.self_attn, layer.src_attn
            self.source.append([split_heads(W(memory), cross.h).contiguous() for W in (cross.W_k, cross.W_v)])
            widths = (W.out_features // own.h for W in (own.W_k, own.W_v))
            self.past.append([memory.new_empty(len(src), own.h, 0, width) for width in widths])
        self.length, self.nothing = 0, memory.new_zeros(1, 1, memory.size(-1))
        self.rows = self.sources = torch.arange(len(src))

    def likeliest(self, tokens: Tensor, live: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The next token of each row (rows) to log-probabilities and ids of those after it; `live` as in `CachedDecoder.step`."""
        sources = self.sources if live is None else self.sources[live.nonzero()[:, 0]]
        position = self.model.tgt_embed.positions(self.nothing, self.length)[0, 0]
        tokens = tokens.contiguous()  # compiled code takes this for granted
        values, ids, self.past = self.call(tokens, position, self.rows, sources, self.mask, self.past, self.source)
        self.length, self.rows = self.length + 1, torch.arange(len(tokens))
        return values, ids

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Continue with these rows, in this order, and with these sources (None: with all). Nothing is copied yet."""
        self.rows = self.rows[rows]
        if sources is not None:
            self.sources = self.sources[sources]


def example_inputs(
    model: Transformer, rows: int = 6, earlier: int = 8, sources: int = 5, length: int = 7, t: int = 3
) -> tuple:
    """Random inputs of `Step.forward`; the default sizes all differ, so that none is taken for another."""
    draw, dtype = torch.Generator().manual_seed(0), next(model.parameters()).dtype
    random = lambda *shape: torch.randn(*shape, generator=draw, dtype=dtype)  # noqa: E731

    def heads(count: int, positions: int, attentions: list[nn.Module]) -> list[list[Tensor]]:
        widths = [(attn.h, attn.W_k.out_features // attn.h, attn.W_v.out_features // attn.h) for attn in attentions]
        return [[random(count, h, positions, width) for width in (d_k, d_v)] for h, d_k, d_v in widths]

    layers, embeddings = model.decoder.layers, model.tgt_embed.embeddings.table
    past, source = (
        heads(earlier, t, [x.self_attn for x in layers]),
        heads(sources, length, [x.src_attn for x in layers]),
    )
    mask = torch.zeros(sources, length, dtype=dtype)
    mask[0, length // 2 + 1 :] = -torch.inf
    tokens, position = torch.arange(rows) % embeddings.num_embeddings, random(embeddings.embedding_dim)
    return tokens, position, torch.arange(rows).flip(0) % earlier, torch.arange(rows) % sources, mask, past, source


@torch.no_grad()
def build(model: Transformer, beam: int, path: Path) -> None:
    """Compile the step and write the library to `path`; raises whatever torch does, such as for a missing compiler."""
    from torch._inductor import aoti_compile_and_package
    from torch.export import Dim, export

    R, P, B, S, t = (Dim(name, min=least, max=10**6) for name, least in zip("RPBSt", (1, 1, 1, 1, 0), strict=True))
    layers = len(model.decoder.layers)
    past, source = ([[{0: count, 2: length}] * 2] * layers for count, length in ((P, t), (B, S)))
    shapes = ({0: R}, None, {0: R}, {0: R}, {0: B, 1: S}, past, source)
    with evaluating(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        exported = export(Step(model, beam), example_inputs(model), dynamic_shapes=shapes, strict=False)
        # each thread takes a batch of its own, so a step runs in one; frozen weights are stored as products read them
        options = {"cpp.threads": 1, "freezing": True}
        package = aoti_compile_and_package(
            exported, package_path=str(path.with_suffix(".pt2")), inductor_configs=options
        )
    with zipfile.ZipFile(package) as members:
        library = next(name for name in members.namelist() if name.endswith(".so"))
        path.write_bytes(members.read(library))


class Library:
    """A compiled step as a function with the inputs and results of `Step.forward`; as many threads may call it at once."""

    def __init__(self, path: Path, layers: int, threads: int):
        self.library, self.container = ctypes.CDLL(str(path)), ctypes.c_void_p()
        self.results = 2 + 2 * layers
        create = self.library.AOTInductorModelContainerCreateWithDevice
        check(create(ctypes.byref(self.container), ctypes.c_size_t(threads), b"cpu", None))
        weakref.finalize(self, self.library.AOTInductorModelContainerDelete, self.container)

    def __call__(
        self, tokens: Tensor, position: Tensor, rows: Tensor, sources: Tensor, mask: Tensor,
        past: list[list[Tensor]], source: list[list[Tensor]],
    ) -> tuple[Tensor, Tensor, list[list[Tensor]]]:  # fmt: skip
        """As `Step.forward`; raises RuntimeError if the library reports an error."""
        from torch._C import _aoti

        layers = [tensor for pair in (*past, *source) for tensor in pair]
        handles = _aoti.unsafe_alloc_void_ptrs_from_tensors([tokens, position, rows, sources, mask, *layers])
        inputs = (ctypes.c_void_p * len(handles))(*[POINTER_OF(handle, None) for handle in handles])
        results = (ctypes.c_void_p * self.results)()
        sizes = ctypes.c_size_t(len(inputs)), ctypes.c_size_t(len(results))
        check(self.library.AOTInductorModelContainerRun(
            self.container, inputs, sizes[0], results, sizes[1], None, None
        ))  # fmt: skip
        values, ids, *longer = _aoti.alloc_tensors_by_stealing_from_void_ptrs(
            [HANDLE_OF(pointer, None, None) for pointer in results]
        )
        return values, ids, [list(pair) for pair in zip(longer[::2], longer[1::2], strict=True)]


# Python's own functions for the capsules in which PyTorch hands out pointers
POINTER_OF = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
HANDLE_OF = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def check(status: int) -> None:
    """Raise RuntimeError for a status other than 0."""
    if status:
        raise RuntimeError(f"the compiled step ended with status {status}")


def processor() -> str:
    """What a library that is compiled for this machine depends on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().split("\n\n")[0].splitlines() if cpuinfo.is_file() else [platform.processor()]
    return platform.machine() + "".join(line for line in lines if not re.search("MHz|bogomips|processor", line, re.I))


def place(model: Transformer, beam: int) -> tuple[Path, str]:
    """The folder of compiled steps in the user's cache, and how the name of this one begins there."""
    import pooch

    code = [inspect.getsource(module) for module in (sys.modules[__name__], document)]
    digest = hashlib.sha256(repr((torch.__version__, processor(), beam, repr(model), code)).encode())
    for name, parameter in model.named_parameters():
        digest.update(name.encode() + parameter.detach().contiguous().numpy().tobytes())
    return Path(pooch.os_cache("annotated-transformer")) / "steps", digest.hexdigest()[:32]


def digest_of(path: Path) -> str:
    """The beginning of a file's SHA-256, with which the name of a compiled step ends."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def cached(model: Transformer, beam: int) -> Path | None:
    """The compiled step of this model and machine, if it is in the cache."""
    folder, name = place(model, beam)
    return next(iter(sorted(folder.glob(f"{name}-*.so"))), None)


def write(model: Transformer, beam: int) -> Path:
    """Build the step and put it into the cache in one piece; steps that nobody has used for KEPT days go."""
    folder, name = place(model, beam)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        new = Path(temporary) / "step.so"
        build(model, beam, new)
        path = folder / f"{name}-{digest_of(new)}.so"
        os.replace(new, path)
    for old in folder.iterdir():  # also what an interrupted build has left
        if old != path and old.stat().st_mtime < time.time() - KEPT * 86400:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    return path


@torch.inference_mode()
def load(model: Transformer, beam: int, path: Path) -> Call:
    """The step at `path`; raises an error, and removes it, if it is damaged or computes something else than the model."""
    try:
        if not path.stem.endswith(digest_of(path)):
            raise ValueError(f"{path}: damaged")
        call = Library(path, len(model.decoder.layers), torch.get_num_threads())
        step = Step(model, beam).eval()
        for sizes in ({}, {"rows": 1, "earlier": 1, "sources": 1, "t": 0}, {"rows": 40, "earlier": 9, "t": 30}):
            inputs = example_inputs(model, **sizes)
            (values, _, past), (expected, _, known) = call(*inputs), step(*inputs)
            pairs = [(values, expected), *zip(sum(past, []), sum(known, []), strict=True)]
            if not all(torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3) for ours, theirs in pairs):
                raise ValueError(f"{path}: computes something else than the model")
    except Exception:
        path.unlink(missing_ok=True)
        raise
    os.utime(path)  # used today
    return call


def use(model: Transformer, beam: int, mode: Mode = "always", tell: Callable[[str], None] = lambda text: None) -> bool:
    """Have the searches use the compiled step for this model and beam (1: greedy); false if they go on with the eager one.

    `always` builds a step that is not in the cache, and says so on standard error; `auto` takes it only if it is there.
    Whatever goes wrong is told to `tell` in one line, and does no harm.
    """
    parameter, beam = next(model.parameters()), beam if beam > 1 else 0
    if mode == "never":
        return False
    if parameter.device.type != "cpu" or parameter.dtype != torch.float32:
        tell("the decoding step is compiled only for processors, in float32")
        return False
    try:
        path = cached(model, beam)
        if path is None and mode == "auto":
            tell("there is no compiled step for this model and machine; --compile always makes one")
            return False
        if path is None:
            print(
                "compiling the decoding step, once for this model and machine; it takes about 25 seconds",
                file=sys.stderr,
            )
            path = write(model, beam)
        call = load(model, beam, path)
    except Exception as error:  # a compiler may fail in any way
        tell(f"the decoding step is not compiled: {' '.join(str(error).split())[:200]}")
        return False
    IN_USE.setdefault(model, {})[beam] = (state(model), call)
    return True


def in_use(model: Transformer, beam: int) -> Call | None:
    """The compiled step that `use` has found, unless the model has changed since."""
    known, call = IN_USE.get(model, {}).get(beam, (None, None))
    return call if call is not None and known == state(model) else None
