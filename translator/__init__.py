"""The program that stands on the document: what it takes to use its Transformer for real.

Where sentences come from: `sources`, `captions`. How they are kept: `vocabulary`, `store`, `files`. Training: `settings`,
`losses`, `optimizers`, `trainer`, `processes`, `runs`, `training`. Using a model: `weights`, `decoding`, `architecture`,
`scoring`, `explorer`, `export`. The command line: `commands`.
"""
