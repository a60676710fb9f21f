"""Ray Train: `python recipes/ray_train.py` from the project's folder, with ray[train] installed.

Ray makes the group of processes, and the program uses it. The folder of the run must be one that all nodes see.
"""

from pathlib import Path

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

RUN = Path("runs/base").resolve()


def work() -> None:
    """What each process does."""
    from translator.commands import main

    if status := main(["train", "--data", "multi30k", "--preset", "base", "--run", str(RUN), "--steps", "100000"]):
        raise RuntimeError(f"the training ended with status {status}")


if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=2, use_gpu=True)
    TorchTrainer(work, scaling_config=scaling, run_config=RunConfig(failure_config=FailureConfig(max_failures=3))).fit()
