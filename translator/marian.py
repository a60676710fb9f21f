"""Models that Marian trained, such as those of OPUS-MT.

The hub's folders and Marian's own files can be opened. `since_2017` explains the parts in which
these models differ from the paper's, and the names of the arrays. What a file holds is read as
numbers and text; nothing in it is ever executed.
"""

import itertools
import json
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import since_2017 as since
from the_annotated_transformer import BOS, PAD, SPECIALS, UNK, Translator
from translator import files
from translator.corpus import HIDDEN, SidedTokenizer, tokenizer_text
from translator.files import (
    MODEL_FILES,
    Refused,
    new_folder,
    read_json,
    refusing,
    write_tensors,
    write_text,
)
from translator.model_folder import build_for
from translator.settings import Settings

# the bias of a token that is never written: a softmax makes 0 of it, and in a smoothed loss it
# stays small
NEVER = -100.0
FAR_SCORE = -1e6  # of a token that no text is split into
HUB_FILES = ["*.json", "model.safetensors", "pytorch_model.bin", "*.spm"]  # what a model needs
USUAL = {  # the only values of Marian's options that are known here
    "type": "transformer", "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": "false", "transformer-no-affine": "false",
    "transformer-no-bias": "false", "transformer-ffn-depth": "2",
    "transformer-decoder-ffn-depth": "0", "transformer-decoder-dim-ffn": "0",
    "transformer-depth-scaling": "false", "transformer-train-position-embeddings": "false",
    "transformer-disable-position-embeddings": "false", "transformer-rnn-projection": "false",
    "transformer-tied-layers": "[]", "transformer-pool": "false", "input-types": "[]",
    "factors-dim-emb": "0", "lemma-dim-emb": "0", "right-left": "false", "ulr": "false",
    "output-omit-bias": "false",
}  # fmt: skip
USUAL_OF_THE_HUB = {  # and of a configuration there
    "model_type": "marian", "scale_embedding": True, "normalize_before": False,
    "normalize_embedding": False, "add_final_layer_norm": False, "add_bias_logits": False,
    "static_position_embeddings": True, "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}  # fmt: skip
# where Marian's sublayers begin, end, and what follows the last: d dropout, a addition, n norm
NORMS: dict[tuple[str, ...], Any] = {
    ("", "dan", ""): "post", ("", "an", ""): "post",
    ("n", "da", "n"): "pre", ("n", "a", "n"): "pre",
}  # fmt: skip
WHERE = {"self_attn": "self", "src_attn": "context", "feed_forward": "ffn"}  # Marian's names


class Arrays(NamedTuple):
    """What a model's file holds: its settings, and its arrays under their names."""

    path: Path
    settings: Settings
    parts: dict[str, Any]  # the `marian` part of its configuration
    arrays: dict[str, Tensor]
    name_of: Callable[[str], str]  # from our name of a parameter to theirs
    matrices: tuple[str, str, str, str | None]  # names: both embeddings, output matrix, its bias


# --- Files ---
def find_source(source: str) -> Path:
    """The folder or file of a model; one that is on the hub is fetched into its cache first.

    Raises FileNotFoundError or Refused if it is neither here nor there, or if there is no network.
    """
    if Path(source).exists():
        return Path(source)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        raise FileNotFoundError(
            f"{source}: no such folder or file, and not a name on the hub, OWNER/NAME"
        )
    needed = "a model on the hub needs the package huggingface_hub: pip install huggingface_hub"
    with refusing(needed, ImportError):
        from huggingface_hub import snapshot_download
    with refusing(f"{source}: not here, and not from the hub", Exception):  # errors of many kinds
        return Path(snapshot_download(source, allow_patterns=HUB_FILES))


def read_hub(folder: Path, ids: dict[str, int]) -> Arrays:
    """A model in the hub's layout, with the vocabulary `ids`; Refused for what is unknown here."""
    # Its configuration comes first: what the model asks for and this program lacks, left out in
    # silence, would give fluent nonsense.
    path = folder / "config.json"
    config = read_json(path)
    for name, value in USUAL_OF_THE_HUB.items():
        if config.get(name, value) != value:
            raise Refused(f"{path}: {name} is {config[name]!r}, which is not known here")
    activation = config.get("activation_function")
    if activation not in ("swish", "silu", "relu"):
        raise Refused(f"{path}: activation_function is {activation!r}, which is not known here")
    damages = KeyError, TypeError, ValueError, OverflowError
    with refusing(f"{path}: not the configuration of a model", *damages):
        depths = [int(config["encoder_layers"]), int(config["decoder_layers"])]
        heads = [int(config["encoder_attention_heads"]), int(config["decoder_attention_heads"])]
        widths = [int(config["encoder_ffn_dim"]), int(config["decoder_ffn_dim"])]
        names = "d_model", "decoder_start_token_id", "pad_token_id"
        d_model, start, pad = (int(config[name]) for name in names)
    if heads[0] != heads[1] or widths[0] != widths[1] or start != pad:
        raise Refused(
            f"{path}: encoder and decoder of different widths, or a start token that is not the padding"
        )
    for name, token in (("pad_token_id", "<pad>"), ("eos_token_id", "</s>")):
        if token not in ids or config.get(name, ids[token]) != ids[token]:
            raise Refused(
                f"{path}: {name} is {config.get(name)}, "
                f"but vocab.json has {token} at {ids.get(token)}"
            )
    file = next(filter(Path.is_file, (folder / name for name in HUB_FILES[1:3])), None)
    if file is None:
        raise FileNotFoundError(f"{folder}: neither model.safetensors nor pytorch_model.bin")
    sizes = {"N": max(depths), "d_model": d_model, "d_ff": widths[0], "h": heads[0]}
    settings = Settings(**sizes, norm="post", tie="all")
    parts = {"depths": depths, "swish": activation != "relu", "closed": False, "eps": 1e-5}
    table = "model.shared.weight"
    matrices = table, table, table, "final_logits_bias"
    return Arrays(file, settings, parts, read_arrays(file), since.their_name, matrices)


def read_arrays(file: Path) -> dict[str, Tensor]:
    """The arrays of a file of safetensors, PyTorch or Marian; Refused if it is damaged."""
    from safetensors.torch import load_file

    with refusing(f"{file}: damaged, or not a file of arrays", Exception):  # of three libraries
        if not file.is_file():
            raise ValueError("it is no regular file")
        if file.suffix == ".safetensors":
            arrays = load_file(file)
        elif file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as archive_of_arrays:
                arrays = {
                    name: torch.from_numpy(archive_of_arrays[name])
                    for name in archive_of_arrays.files
                }
        else:
            # weights_only runs nothing, and refuses most objects
            with warnings.catch_warnings(action="ignore"):
                arrays = torch.load(file, map_location="cpu", weights_only=True)
        if not isinstance(arrays, dict) or not all(isinstance(a, Tensor) for a in arrays.values()):
            raise ValueError("there are other things than arrays in it")
        for name, array in arrays.items():
            if array.is_floating_point() and not array.isfinite().all():
                raise Refused(f"{file}: {name} has weights that are not finite")
    return arrays


def read_npz(file: Path) -> Arrays:
    """A model in Marian's own file; Refused names what is unknown here or damaged."""
    # Marian keeps its options in the same file, as text. An option that is not known here may
    # change what is computed, so only the usual value of each is let through.
    arrays = read_arrays(file)
    with refusing(f"{file}: no configuration of Marian in it", KeyError, UnicodeDecodeError):
        text = arrays.pop("special:model.yml").numpy().tobytes().rstrip(b"\0").decode("utf-8")
    # one option a line; an empty value is the default
    options = re.findall(r"(?m)^([\w-]+):[ ]*(.*)$", text)
    options_by_name = {name: value.strip("\"' ") for name, value in options}
    for name, value in USUAL.items():
        if options_by_name.get(name, value) not in (value, ""):
            raise Refused(
                f"{file}: its option --{name} is {options_by_name[name]}, which is not known here"
            )
    names = "preprocess", "postprocess", "postprocess-top"
    places = tuple(options_by_name.get(f"transformer-{name}", "") for name in names)
    activation = options_by_name.get("transformer-ffn-activation", "swish")
    bare = options_by_name.get("transformer-postprocess-emb", "d") in ("d", "")  # dropout at most
    if places not in NORMS or activation not in ("swish", "relu") or not bare:
        raise Refused(
            f"{file}: norms {places} or activation {activation}, which are not known here"
        )
    with refusing(f"{file}: its configuration is not whole", KeyError, ValueError):
        names = "dim-emb", "transformer-dim-ffn", "transformer-heads", "enc-depth", "dec-depth"
        d_model, d_ff, h, *depths = (int(options_by_name[name]) for name in names)
    # a matrix that is shared is there once, and the names of those that share it aren't
    src, tgt = (name if name in arrays else "Wemb" for name in ("encoder_Wemb", "decoder_Wemb"))
    output = "decoder_ff_logit_out_Wt" if "decoder_ff_logit_out_Wt" in arrays else tgt
    tie = "all" if src == tgt == output else "target" if tgt == output else "none"
    sizes = {"N": max(depths), "d_model": d_model, "d_ff": d_ff, "h": h}
    settings = Settings(**sizes, norm=NORMS[places], tie=tie)
    parts = {"depths": depths, "swish": activation == "swish", "closed": True, "eps": 1e-6}
    bias = "decoder_ff_logit_out_b" if "decoder_ff_logit_out_b" in arrays else None
    name_of = partial(marian_name, pre=settings.norm == "pre")
    return Arrays(file, settings, parts, arrays, name_of, (src, tgt, output, bias))


def marian_name(name: str, pre: bool) -> str:
    """Marian's name of one of our parameters, in a layer or in the norm behind a stack.

    pre: whether the layers' norms come before the sublayers, where their names have an ending.
    """
    if top := re.fullmatch(r"(encoder|decoder)\.norm\.(weight|bias)", name):
        return f"{top[1]}_top_ln_{'scale' if top[2] == 'weight' else 'bias'}"
    # theirs is counted from 1, and norms are named after the sublayer that they belong to
    stack, layer, inner = re.fullmatch(r"(encoder|decoder)\.layers\.(\d+)\.(.+)", name).groups()
    if norm := re.fullmatch(r"sublayer\.(\d)\.norm\.(weight|bias)", inner):
        context = [] if stack == "encoder" else ["context_Wo"]
        sublayer = ["self_Wo", *context, "ffn_ffn"][int(norm[1])]
        their_name = f"{sublayer}_ln_{'scale' if norm[2] == 'weight' else 'bias'}{'_pre' * pre}"
    else:
        owner, matrix, kind = re.fullmatch(r"(\w+)\.W_(\w)\.(weight|bias)", inner).groups()
        their_name = f"{WHERE[owner]}_{'W' if kind == 'weight' else 'b'}{matrix}"
    return f"{stack}_l{int(layer) + 1}_{their_name}"


# --- Weights ---
def ordered(ids: dict[str, int]) -> tuple[list[str], list[int]]:
    """Our tokens, special ones first, and the row of theirs that each is; -1 if they lack it."""
    # our special tokens have the first ids, theirs stand anywhere; all others keep their order
    tokens = SPECIALS + sorted(ids.keys() - set(SPECIALS), key=ids.__getitem__)
    rows = [ids.get(token, -1) for token in tokens]
    rows[BOS] = rows[PAD]  # the decoder starts from padding, a vector of zeros
    return tokens, rows


def filled(source: Arrays, rows: list[int]) -> nn.Module:
    """The model with these arrays; `rows` says which of their rows is each of our tokens.

    That is -1 for a token that they lack. Refused names what does not fit.
    """
    # Each parameter takes one array; what none has taken is of a model that is built otherwise.
    path, arrays = source.path, source.arrays
    own_file = path.suffix == ".npz"  # Marian's, where matrices are transposed
    with refusing(f"{path}: not a whole model", ValueError):
        model = build_for(arrays, source.settings, len(rows), source.parts)
    embeddings = [f"{side}_embed.embeddings.table.weight" for side in ("src", "tgt")]
    ours = *embeddings, "generator.proj.weight", "generator.proj.bias"
    theirs = dict(zip(ours, source.matrices, strict=True))
    # positions, which are computed here, copies, and notes about the model
    ignored = "special:|embed_positions|embed_tokens|lm_head|^config|Wpos"
    unread = {name for name in arrays if not re.search(ignored, name)}
    weights = {}
    for our, parameter in model.named_parameters(remove_duplicate=False):  # a tied one under each
        per_token = our in theirs  # a row, or a number, for each token
        their = theirs[our] if per_token else source.name_of(our)
        if their is None:  # only the output layer's bias may be lacking
            weights[our] = torch.zeros(len(rows))
            continue
        if their not in arrays:
            raise Refused(f"{path}: it has no array {their}")
        unread.discard(their)
        array = laid_out(arrays[their].float(), parameter, per_token, own_file)
        needed = (max(rows) + 1, *parameter.shape[1:]) if per_token else tuple(parameter.shape)
        if array.shape != needed:
            raise Refused(f"{path}: {their} has shape {tuple(array.shape)}, but {needed} is needed")
        added = torch.zeros_like(array[:1])  # a last row, -1, for tokens that they lack
        weights[our] = torch.cat([array, added])[rows] if per_token else array
    if unread:
        raise Refused(f"{path}: its array {min(unread)} belongs to no part that is known here")
    # Marian itself writes no <unk> unless told to
    never = [PAD, BOS, UNK] if own_file else [PAD, BOS]
    weights["generator.proj.bias"][never] = NEVER
    model.load_state_dict(weights)
    return model.eval()


def laid_out(array: Tensor, parameter: Tensor, per_token: bool, own_file: bool) -> Tensor:
    """One of their arrays in the layout of a parameter of ours."""
    if parameter.dim() == 1 and (own_file or per_token):
        return array.flatten()  # a bias may be a matrix of one row there
    return array.T if own_file and not per_token else array


# --- Vocabularies ---
def read_spm(path: Path) -> tuple[dict[str, float | None], bytes]:
    """A SentencePiece model's pieces, in its order, and its table of normalised characters.

    The pieces have scores; that of a mark is None.
    """
    needed = "a SentencePiece model needs two packages: pip install sentencepiece protobuf"
    with refusing(needed, ImportError):
        from google.protobuf.message import DecodeError
        from sentencepiece.sentencepiece_model_pb2 import ModelProto
    with refusing(f"{path}: damaged, or not a SentencePiece model", DecodeError):
        model = ModelProto.FromString(path.read_bytes())
    trainer = model.trainer_spec
    normalizer = model.normalizer_spec
    # both specifications stand behind the pieces: where they are, no piece has been cut off
    if not model.HasField("trainer_spec") or not model.HasField("normalizer_spec"):
        raise Refused(f"{path}: damaged, or not a SentencePiece model")
    if (
        trainer.model_type != trainer.UNIGRAM
        or trainer.byte_fallback
        or trainer.treat_whitespace_as_suffix
    ):
        raise Refused(
            f"{path}: not a unigram model without bytes, with the spaces in front of the words"
        )
    spaces = normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces
    if not all(spaces) or not normalizer.escape_whitespaces:
        raise Refused(f"{path}: it treats spaces in a way that is not known here")
    scored = ModelProto.SentencePiece.NORMAL, ModelProto.SentencePiece.USER_DEFINED
    scores = {p.piece: p.score if p.type in scored else None for p in model.pieces}
    return scores, normalizer.precompiled_charsmap


def unigram(path: Path, tokens: list[str]) -> Any:
    """A vocabulary of these tokens, in this order, that cuts text as SentencePiece's model does."""
    # A piece that is no token is cut into smaller ones. Special tokens are in no text, nor is one
    # such as `>>fra<<`, which names a language; `SidedTokenizer` finds it in front of a sentence.
    from tokenizers import Regex, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Vocabulary
    from tokenizers.models import Unigram

    scores, charsmap = read_spm(path)
    marks = {*SPECIALS, *(token for token in tokens if re.fullmatch(r">>.+<<", token))}
    scores_of_pieces = {piece: score for piece, score in scores.items() if score is not None}
    scored = [
        (t + HIDDEN, FAR_SCORE) if t in marks else (t, scores_of_pieces.get(t, FAR_SCORE))
        for t in tokens
    ]
    vocabulary = Vocabulary(Unigram(scored, UNK, False))
    with refusing(f"{path}: damaged", Exception):  # the library raises no other kind
        steps = [normalizers.Precompiled(charsmap)] if charsmap else []
    steps.insert(0, normalizers.NFC())  # the table knows composed letters only
    steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    vocabulary.normalizer = normalizers.Sequence(steps)
    vocabulary.pre_tokenizer = pre_tokenizers.Metaspace()
    if lacking := scores_of_pieces.keys() - {*tokens}:
        files.warn(
            f"{len(lacking):,} pieces of {path.name} are not in the vocabulary: "
            "cut into smaller ones"
        )
    return vocabulary


def read_yaml(path: Path) -> Any:
    """The tokens in Marian's vocab.yml, as written there, even `null`, with their numbers."""
    import yaml

    damages = yaml.YAMLError, AttributeError, TypeError, ValueError, RecursionError
    with refusing(f"{path}: not a vocabulary of Marian", *damages):
        numbers = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # as text
        return {token: int(number) for token, number in numbers.items()}


def read_vocabulary(folder: Path, hub: bool) -> tuple[dict[str, int], Path, Path]:
    """The tokens' numbers in the model, and the SentencePiece models of source and target."""
    # Two vocabularies make one: ids are rows of one table, whichever side a piece is from. The
    # hub's are in vocab.json, Marian's in vocab.yml or in the .spm itself.
    pieces = sorted(folder.glob("[!.]*.spm"), key=lambda p: (len(p.name), p))  # copies come last
    only = pieces[0] if len(pieces) == 1 else None
    patterns = "source|src", "target|trg|tgt"
    named = ([path for path in pieces if re.search(pattern, path.stem)] for pattern in patterns)
    sides: list[Any] = [paths[0] if paths else only for paths in named]
    if None in sides:
        raise FileNotFoundError(f"{folder}: neither source.spm and target.spm nor a single .spm")
    yamls = set(folder.glob("*vocab*.yml")) - {*folder.glob(".*")}
    names = [folder / "vocab.json"] if hub else sorted(yamls)
    for path in (*names, *sides):
        if path.exists() and not path.is_file():
            raise Refused(f"{path}: not a regular file")
    for first, second in itertools.pairwise(names or sides):  # one embedding table, one vocabulary
        if not hub and first.read_bytes() != second.read_bytes():
            raise Refused(f"{first} and {second.name}: two vocabularies, which is not known here")
    if hub or names:
        path = names[0]
        ids = read_json(path) if hub else read_yaml(path)
    else:
        path = sides[0]
        ids = {token: i for i, token in enumerate(read_spm(path)[0])}
    if not isinstance(ids, dict) or sorted(ids.values()) != [*range(len(ids))]:
        raise Refused(f"{path}: its ids are not 0, 1, 2, ...")
    if missing := [token for token in ("</s>", "<unk>") if token not in ids]:
        raise Refused(f"{path}: it has no {missing[0]}")
    return ids, *sides


def languages_of(folder: Path, source: str, src: str | None, tgt: str | None) -> tuple[str, str]:
    """The languages given, or in tokenizer_config.json, or at a name's end: `opus-mt-de-en`."""
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    named = re.search(r"-([A-Za-z_]+)-([A-Za-z_]+)/?$", source) or [None] * 3
    src = src or config.get("source_lang") or named[1]
    tgt = tgt or config.get("target_lang") or named[2]
    if src is None or tgt is None:
        raise Refused(f"{source}: its languages are not known; give --src and --tgt")
    if src == tgt:
        raise Refused(f"{source}: both languages are {src!r}; give --src and --tgt")
    return str(src), str(tgt)


# --- Models ---
def read_marian(
    source: str, src: str | None = None, tgt: str | None = None
) -> tuple[Translator, Settings, dict]:  # fmt: skip
    """A translator, its settings and its `marian` parts, of a model that Marian trained.

    source: a folder in the hub's layout, a name on the hub, or an .npz.
    """
    path = find_source(source)
    folder, hub = (path, True) if path.is_dir() else (path.parent, False)
    if not hub and path.suffix != ".npz":
        raise Refused(f"{path}: neither a folder nor an .npz of Marian")
    languages = languages_of(folder, source, src, tgt)
    ids, *sides = read_vocabulary(folder, hub)
    tokens, rows = ordered(ids)
    arrays = read_hub(path, ids) if hub else read_npz(path)
    model = filled(arrays, rows)
    source_rules, target_rules = (unigram(side, tokens) for side in sides)
    tokenizer = SidedTokenizer(source_rules, target_rules, languages[1])
    return Translator(model, tokenizer, languages), arrays.settings, arrays.parts


def import_marian(
    source: str, out: Path, src: str | None = None, tgt: str | None = None
) -> Translator:  # fmt: skip
    """Write a model that Marian trained as a folder of ours; FileExistsError if it exists."""
    translator, settings, parts = read_marian(source, src, tgt)
    config: dict[str, Any] = dict(zip(("src", "tgt"), translator.languages, strict=True))
    config["vocab"] = len(translator.tokenizer)
    names = "N", "d_model", "d_ff", "h", "norm", "tie"
    config["settings"] = {name: getattr(settings, name) for name in names}
    config |= {"marian": parts, "source": Path(source).name}
    with new_folder(out):
        write_text(out / "config.json", json.dumps(config, indent=1) + "\n")
        write_text(out / "tokenizer.json", tokenizer_text(translator.tokenizer))
        write_tensors(out / "model.safetensors", dict(translator.model.named_parameters()))
        files.write_sums(out, MODEL_FILES)
    return translator
