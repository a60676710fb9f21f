"""What a reader does: the catalogue of mistakes, and the examination that finds them."""

# The end of each rung of practice, wherever it is, names the next one in these words; all of them
# stand in the document under "What to do now".
NEXT_RUNG = {
    "diagnose": "Next rung: diagnose. Find the mistake in a trained model: on the web page, below what the loss can't see, then in the clinic's notebook and its interview.",
    "let it learn": "Next rung: let it learn. If all its functions compute with PyTorch, `judge mine.py --learn` gives them fresh weights: in a minute they read German numbers; with `--learn multi30k --run runs/learned`, they learn a language.",
    "change it and train": "Next rung: change it and train. Exercises 1.1, 2.1 and 2.2 fit what you've read. Then change a part of your choice.",
}
