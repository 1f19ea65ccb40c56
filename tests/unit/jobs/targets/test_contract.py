"""The dialect of each launcher reads the variables of a manifest back as the same job."""

from functools import cache

from entrypoints.pytorch.launch.contract import Contract, contract_of
from tests.unit.jobs.cases import ALL_CASES, EXPECTED, job_of, task_of, text_of, written_by_libyaml
from tests.unit.jobs.launchers import ELASTIC_MASTERS, LAUNCHERS, MASTERS, PORTS
from torchbake.jobs.expressible import unsupported_keys
from torchbake.jobs.targets import TARGETS

GPUS = 8  # of each machine, as `auto` counts them


def refuses(target: str, case: str) -> bool:
    """Return True if the launcher has no such jobs: the target refuses a key that decides the nodes or the command."""
    return any(
        location[0] in ("command", "elastic", "processes")
        for location, _ in unsupported_keys(job_of(text_of(case)), TARGETS[target])
    )


REFUSED = {(target, case) for target in TARGETS for case in ALL_CASES if refuses(target, case)}
OUTPUT = [(target, case) for target in TARGETS for case in ALL_CASES if (target, case) not in REFUSED]


@cache
@written_by_libyaml()
def contracts(target: str, case: str) -> list[Contract]:
    task = task_of(text_of(case))
    envs = LAUNCHERS[target](TARGETS[target].render(task), task)
    return [contract_of(env, gpus=GPUS) for env in envs]


def test_every_target_has_its_launcher() -> None:
    assert set(LAUNCHERS) == set(TARGETS) == set(MASTERS)
    assert set(EXPECTED) == set(ALL_CASES)


def test_a_target_that_cannot_say_who_runs_is_known() -> None:
    """Every other job must be read back."""
    of_torchrun = {(target, "torchrun-elastic") for target in ("helm", "leaderworkerset", "trainjob")}
    refused_targets = of_torchrun | {
        *(("trainjob", "elastic"), ("trainjob", "auto"), ("torchrun", "auto"), ("leaderworkerset", "elastic")),
        *(("helm", "command"), ("helm", "torchrun")),
    }
    assert refused_targets == REFUSED


def test_the_nodes_read_the_job_that_was_written() -> None:
    """Each node's contract is the job's: its counts, its own rank, and the address and port of node 0."""
    for target, case in OUTPUT:
        expected, matches = EXPECTED[case], contracts(target, case)
        assert len(matches) == expected.nodes, (target, case)
        # A command sees what its launcher sets, which counts one node too: `run` in it makes a group of one.
        assert {each.distributed for each in matches} == {expected.distributed} or case == "command", (target, case)
        assert {(each.nnodes, each.nproc_per_node, each.elastic) for each in matches} == {
            (expected.nodes, expected.processes, expected.elastic)
        }, (target, case)
        if not expected.elastic:
            assert [each.node_rank for each in matches] == list(range(expected.nodes)), (target, case)
        masters, port = ELASTIC_MASTERS if expected.elastic else MASTERS, PORTS.get(target, expected.port)
        places = {(each.master_addr, each.master_port) for each in matches[1:]}
        assert places <= {(masters[target], port)}, (target, case)


def test_times_are_the_jobs() -> None:
    for target in TARGETS:
        for each in contracts(target, "everything"):
            assert (each.rendezvous_timeout, each.group_timeout, each.stop_grace) == (300, 120, 60), target


def test_an_elastic_job_has_the_restarts_of_the_file() -> None:
    for target in (target for target, case in OUTPUT if case == "elastic"):
        assert {each.max_restarts for each in contracts(target, "elastic")} == {3}, target


def test_torchrun_finds_the_group_in_its_own_variables_alone() -> None:
    """`run` also reads the variables of launchers, torchrun does not."""
    for target in [target for target, case in OUTPUT if case == "torchrun"]:
        task, port = task_of(text_of("torchrun")), PORTS.get(target, 49875)
        for rank, env in enumerate(LAUNCHERS[target](TARGETS[target].render(task), task)):
            own = {name.removeprefix("PET_"): value for name, value in env.items() if name.startswith("PET_")}
            counted = [own[name] for name in ("NNODES", "NODE_RANK", "NPROC_PER_NODE")]
            assert counted == ["4", str(rank), "2"], target
            place = own.get("MASTER_ADDR", env.get("MASTER_ADDR")), own.get("MASTER_PORT", env.get("MASTER_PORT"))
            assert place == (MASTERS[target], str(port)), target
    for target in [target for target, case in OUTPUT if case == "torchrun-elastic"]:
        task, port = task_of(text_of("torchrun-elastic")), PORTS.get(target, 49875)
        for env in LAUNCHERS[target](TARGETS[target].render(task), task):
            assert (env["PET_NNODES"], env["PET_RDZV_BACKEND"]) == ("2:3", "c10d"), target
            assert env["PET_RDZV_ENDPOINT"] == f"{ELASTIC_MASTERS[target]}:{port}", target
            assert env["PET_NPROC_PER_NODE"] == "2", target
