"""What shows a mistake on real captions: some of the catalogue, in the document's live model."""

import functools
import itertools
import math
import time
from typing import Any, Literal

import torch

import the_annotated_transformer as tat
from benchmarks import clinic
from benchmarks.clinic import NAMES, findings, judged, mean, patient_of, quick_adam, reported
from benchmarks.shared import RESULTS, Rows
from practice import examine
from practice.mistakes import CATALOGUE
from the_annotated_transformer import LIVE, Config, Pair, Tokenizer
from translator.settings import Count

SOME = (
    "healthy", "every_step_at_position_zero", "no_causal_mask", "heads_joined_by_view",
    "softmax_over_queries", "shift_by_two", "eos_cut_off", "cross_attends_to_itself",
    "no_positions_in_encoder", "quarter_misaligned",
)  # fmt: skip


def train(
    config: Config, train: list[Pair], vocab: int, steps: int
) -> tuple[tat.Trainer, list[float]]:
    """Learn from captions, up to the first loss that is no number."""
    torch.manual_seed(config.seed)
    trainer, losses = tat.Trainer(config.make_model(vocab), config), []
    budget = config.tokens_per_batch
    epochs = (tat.token_batches(train, budget, epoch) for epoch in itertools.count())
    for batch in itertools.islice(itertools.chain.from_iterable(epochs), steps):
        try:
            losses.append(trainer.update(batch))
        except ValueError:  # the gradient isn't finite
            losses.append(math.nan)
            break
    return trainer, losses


def measures(
    trainer: tat.Trainer, losses: list[float], val: list[Pair], tokenizer: Tokenizer
) -> dict[str, Any]:
    """What a reader sees of a finished run, and what the examinations of a trained model find."""
    patient, some = examine.of_trainer(trainer), val[:100]
    curve = [mean(losses[i : i + 20]) for i in range(0, len(losses), 20)]
    row = {"loss": mean(losses[-50:]), "curve": curve}
    row |= {f"held_out_{key}": value for key, value in reported(trainer, val[:200]).items()}
    lines = [tokenizer.decode(examine.words(ids)) for ids in patient.decode(some)]
    references = [tokenizer.decode(examine.words(pair.tgt)) for pair in some]
    row["bleu"] = round(tat.bleu(lines, references)[0], 1)
    row |= {"samples": lines[:3], "different": len(set(lines))}
    return row | {"trained": findings(lambda: patient, some[:50], examine.TRAINED)}


def benchmark(
    *, steps: Count = 150, only: tuple[Literal[NAMES], ...] = SOME, rows: Rows = RESULTS
) -> None:
    """Train the document's model with mistakes on Multi30k, and examine it.

    A row that is saved is not made again. Mistakes in decoding share a healthy run.

    Args:
        steps: updates of each
        only: mistakes of the catalogue
    """
    tokenizer = tat.learn_bpe(tat.load_split("train"), LIVE.bpe)
    text, val = (tat.to_pairs(tokenizer, tat.load_split(split)) for split in ("train", "val"))
    healthy = None
    for name in only:
        about = {"mistake": name, "steps": steps}
        if rows.saved(about):
            continue
        start = time.process_time()
        with quick_adam(), patient_of(name, LIVE) as config:
            make = functools.partial(examine.of_document, config, len(tokenizer))
            row = about | {"fresh": findings(make, val[100:132], examine.FRESH[:4])}
            row["examined_s"] = round(time.process_time() - start, 2)
            shared = name in clinic.CONTROLS or not CATALOGUE[name].trains
            run = healthy if shared and healthy else train(config, text, len(tokenizer), steps)
            healthy = run if shared else healthy
            row |= {"updates": len(run[1]), "minutes": round((time.process_time() - start) / 60, 2)}
            if math.isfinite(run[1][-1]):
                row |= measures(*run, val, tokenizer)
        rows.add(judged(row))
        figures = map(row.get, ("loss", "held_out_loss", "held_out_forced", "bleu"))
        print(name, *figures, flush=True)
