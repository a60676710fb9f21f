"""The program built on the document: what it takes to use its Transformer for real.

Text: `sources`, `captions`, and `corpus`, which keeps it as numbers. Training: `settings`,
`trainer`, `processes`, `run` (its folder) and `training` (its loop). A trained model:
`model_folder`, `search`, `scoring`, `explorer`, `export`, `marian`. Files of all kinds: `files`.
The command line: `__main__`.
"""
