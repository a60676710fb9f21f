"""A command that runs for long needs no more memory than at the beginning."""

import itertools
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import ROOT, SOAK
from translator.captions import caption_pairs


def resident(pid: int) -> float:
    """The memory of a process that is in the machine's memory, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")
def test_translating_for_long_takes_no_more_memory(record_property):
    """Lines of 1 to 60 words: groups of up to 300 for an hour (`make soak`), or a few smaller."""
    command = [sys.executable, "the_annotated_transformer.py", "translate", "--beam", "2"]
    sentences = [german for german, _ in itertools.islice(caption_pairs("train"), 200)]
    draw = random.Random(0)
    begun, groups, lines, sizes, most = time.monotonic(), 0, 0, [], 300 if SOAK else 6
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, encoding="utf-8", **pipes) as process:
        while time.monotonic() - begun < 3600 if SOAK else groups < 16:
            long = [" ".join(draw.choices(sentences, k=10)) for _ in range(draw.randint(1, most))]
            group = [" ".join(line.split()[: draw.randint(1, 60)]) for line in long]
            process.stdin.write("".join(line + "\n" for line in group))
            process.stdin.flush()
            for _ in group:
                assert process.stdout.readline()
            groups, lines = groups + 1, lines + len(group)
            sizes.append(resident(process.pid))
        process.stdin.close()
    some = max(8, len(sizes) // 20)
    early, late = max(sizes[:some]), max(sizes[-some:])
    record_property("lines", lines)
    record_property("megabytes", f"{early:.0f} early, {max(sizes):.0f} at most, {late:.0f} late")
    assert process.returncode == 0
    assert late - early < 50
