"""The meeting of a job's nodes before the ranks start, and the report of a node that cannot start."""

import contextlib

from .checkin import Say, check_in, find_rendezvous, tell_trouble
from .contract import Contract
from .gather import check_port, gather
from .launch_error import LaunchError
from .nodes import NodeConnections


def meet(contract: Contract, commit: str, say: Say) -> NodeConnections:
    """Return when all nodes have connected. Raises LaunchError, in a static job on every node."""
    if contract.elastic:
        if contract.job_token:
            say("JOB_TOKEN does not protect an elastic job: torchrun's rendezvous has no authentication")
        return NodeConnections(master_addr=find_rendezvous(contract, say))
    if contract.nnodes == 1:
        check_port(contract)
        return NodeConnections()
    return NodeConnections(
        gather(contract, commit, say) if contract.is_master else {0: check_in(contract, commit, say)}
    )


def report(contract: Contract, trouble: LaunchError, say: Say) -> None:
    """Report to the other nodes that this node cannot take part; else they would wait until the deadline."""
    if not contract.distributed or contract.nnodes == 1 or contract.elastic or contract.already_rank:
        return
    say(trouble.sentence)
    with contextlib.suppress(LaunchError):
        if contract.is_master:
            gather(contract, "", say, trouble)
        else:
            tell_trouble(contract, trouble, say)
