"""What the tests of examples share: little data, and a training of a few updates."""

from collections.abc import Iterator

import pytest

import the_annotated_transformer as tat

CACHED = (tat.choose_data, tat.load_split, tat.live_run, tat.our_model)


@pytest.fixture(scope="module")
def few_phrases(tmp_path_factory) -> Iterator[None]:
    """The data are some phrases, and the document's training run has a few updates, in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("phrases"))
        patch.setenv("ANNOTATED_DATA", "phrases")
        patch.setenv("ANNOTATED_STEPS", "8")
        for cached in CACHED:
            cached.cache_clear()
        few = {split: tat.load_split(split)[:size] for split, size in (("train", 400), ("val", 16))}
        patch.setattr(tat, "load_split", few.get)
        yield
        for cached in CACHED:
            cached.cache_clear()
