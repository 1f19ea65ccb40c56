"""Starts two process groups of the same ranks in sequence, each in a separate process, as payloads are started.

The first group's process on rank 0, which holds the store, still runs while the other ranks start the second group.
"""

import os
import sys
import time
from importlib import import_module
from importlib.machinery import SourceFileLoader

import torch

LINGERS = 5  # seconds

SourceFileLoader("bench", "/opt/torchbake/bench").load_module()  # lets its packages be imported as it does
group = import_module("toolbox.payloads.group")


def take_part(turn: int) -> None:
    device = torch.device("cpu")
    group.start_group("gloo", device, turn)
    group.leave_group(device)
    if turn == 0 and os.environ["RANK"] == "0":
        time.sleep(LINGERS)


for turn in range(2):
    child = os.fork()
    if child == 0:
        take_part(turn)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(f"group {turn + 1} ended with {code}")
