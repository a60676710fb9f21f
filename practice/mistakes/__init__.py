"""The catalogue of mistakes that people make in building a Transformer, a room for each kind."""

from practice.mistakes import attention, batches, decoding, layers, loss, masks, positions, updates
from practice.mistakes.catalogue import (
    CATALOGUE,
    GROUPS,
    HEALTHY,
    LONGEST,
    SLIPS,
    Mistake,
    cached,
    examined,
    made,
    numbers,
    place,
    put,
    settings_with,
    translate,
    until_end,
)

# here, and not in the file that is to be read
KEY_OF_THE_INTERVIEW = """\
`.tril(diagonal=1)` in Model.forward: each position sees the token that it has to predict. \
`.tril()`
`self.places[: x.size(0)]` in embed: a sentence's row in its batch, for each word's place. \
`[: x.size(1)]`
`cross_entropy` in update: padding counts, and lowers the loss. \
`ignore_index=PAD`
`loss.backward()` in update adds to the gradient of the update before. \
`adam.zero_grad()` above it"""
