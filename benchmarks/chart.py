"""Draw the charts of training speed and of the gain from each idea, from the saved rows, in build/

python benchmarks/chart.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.rows import ROOT
from the_annotated_transformer import example_gains, example_training_speed


def main() -> None:
    """Write the charts and print their names."""
    (ROOT / "build").mkdir(exist_ok=True)
    for name, draw in (("training_speed", example_training_speed), ("gains", example_gains)):
        chart = draw()
        if chart is not None:
            chart.save(ROOT / "build" / f"{name}.svg")
            print(f"build/{name}.svg")


if __name__ == "__main__":
    main()
