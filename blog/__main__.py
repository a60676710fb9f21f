"""The one door: python -m blog COMMAND. Each command's room is imported when it is asked for."""

import sys

import cyclopts

COMMANDS = {
    "notebook": "blog.notebook:main",
    "page": "blog.page:main",
    "listing": "blog.page:listing_page",
    "edition": "blog.editions:main",
    "companion": "blog.companion:main",
    "pdf": "blog.pdf:main",
    "quotes": "blog.quotes:main",
    "address": "blog.address:main",
}

app = cyclopts.App("python -m blog", help="Execute the notebooks, and make pages of them.")
for name, function in COMMANDS.items():
    app.command(function, name=name)

if __name__ == "__main__":
    try:
        sys.exit(app())
    except (OSError, ValueError) as error:  # a file that is missing or damaged
        sys.exit(f"error: {error}")
