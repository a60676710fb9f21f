r"""Ray Train, with `pip install "ray[train]"`, from the project's folder, which all nodes must see:

    python recipes/ray_train.py --processes 8 --gpu \
        --data multi30k --preset base --run runs/base --steps 100000

Ray starts the processes and makes their group, and the program uses it. If a process dies, Ray
starts all of them again, up to three times, and the run goes on from its last checkpoint. Options
that are not named here are options of `train`.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def work(config: dict[str, Any]) -> None:
    """What each process does.

    Ray starts it in a folder of Ray's, but the paths in the options start from ours.
    """
    os.chdir(config["folder"])
    from translator.__main__ import main

    if status := main(["train", *config["arguments"]]):
        raise RuntimeError(f"the training ended with status {status}")


def main(
    *arguments: Annotated[str, cyclopts.Parameter(allow_leading_hyphen=True)],
    processes: int = 2,
    gpu: bool = False,
) -> None:
    """Train under Ray; `gpu` gives each process one, and other options are those of `train`."""
    TorchTrainer(
        work,
        train_loop_config={"folder": str(Path.cwd()), "arguments": list(arguments)},
        # the first process may read a large corpus for hours
        torch_config=TorchConfig(timeout_s=86_400),
        scaling_config=ScalingConfig(num_workers=processes, use_gpu=gpu),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    ).fit()


if __name__ == "__main__":
    cyclopts.run(main)
