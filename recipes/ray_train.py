r"""Ray Train, with `pip install "ray[train]"`, from the project's folder, which all nodes must see:

    python recipes/ray_train.py --processes 8 --gpu \
        --data multi30k --preset base --run runs/base --steps 100000

Ray starts the processes and makes their group, and the program uses it. If a process dies, Ray
starts all of them again, up to three times, and the run goes on from its last checkpoint. Options
that are not named here are options of `train`.
"""

import argparse
import os
from pathlib import Path
from typing import Any

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition(",")[0], allow_abbrev=False)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--gpu", action="store_true", help="give each process a GPU")
    options, arguments = parser.parse_known_args()
    TorchTrainer(
        work,
        train_loop_config={"folder": str(Path.cwd()), "arguments": arguments},
        # the first process may read a large corpus for hours
        torch_config=TorchConfig(timeout_s=86_400),
        scaling_config=ScalingConfig(num_workers=options.processes, use_gpu=options.gpu),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    ).fit()
