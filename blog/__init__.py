"""What executes the notebooks and makes the pages; `python -m blog --help` lists the commands."""
