"""The program built on the document: what it takes to use its Transformer for real.

Reading sentences: `sources`, `captions`. Storing them: `vocabulary`, `store`, `files`. Training: `settings`, `losses`,
`optimizers`, `trainer`, `processes`, `runs`, `training`. Using a model: `weights`, `decoding`, `architecture`, `scoring`,
`explorer`, `export`. The command line: `commands`.
"""
