"""Every launcher's real environment gives the same job; what a launcher says wrongly is refused.

The environments are data in `dialects/`: complete, as the launchers set them, each with its source; three nodes with
two processes each (or the six ranks themselves).
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from entrypoints.pytorch.launch.contract import Contract, contract_of
from entrypoints.pytorch.launch.dialects import DIALECTS, detect
from entrypoints.pytorch.launch.dialects.slurm import first_host
from entrypoints.pytorch.launch.launch_error import Code, LaunchError
from torchbake.core.paths import TOOLKIT

FIXTURES = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "dialects").glob("*.json")}
MASTERS = {
    "bitnami": ("demo-pytorch", 49875),
    "bitnami-statefulset": ("trainer-worker-0.trainer", 49875),
    "indexed-job": ("train-0.train", 49875),
    "mpi-hydra": ("mpi0", 49875),
    "mpi-nodes": ("mpi0", 49875),
    "mpi-openmpi": ("mpi0", 49875),
    "native": ("node0", 29400),
    "openpai": ("10.2.0.5", 20300),
    "pytorchjob": ("mnist-master-0", 23456),
    "pytorchjob-auto": ("mnist-master-0", 23456),
    "pytorchjob-before-pet": ("mnist-master-0", 23456),
    "slurm": ("gpu09", 49875),
    "torchrun": ("10.1.0.10", 29500),
    "torchrun-worker": ("10.1.0.10", 29500),
    "trainjob": ("mnist-node-0-0.mnist", 29500),
}


# Each process there is a rank already, which no number of nodes concerns.
RANKS = {"torchrun-worker", "mpi-openmpi", "mpi-hydra"}


def environments(fixture: Mapping[str, Any]) -> list[dict[str, str]]:
    return [fixture["common"] | node for node in fixture["nodes"]]


def contracts(name: str) -> list[Contract]:
    return [contract_of(env, gpus=FIXTURES[name]["gpus"]) for env in environments(FIXTURES[name])]


def node(name: str, index: int, **changes: str) -> dict[str, str]:
    """One environment of a fixture, with changes; an empty one unsets."""
    return environments(FIXTURES[name])[index] | changes


def launch_error(env: Mapping[str, str], *, gpus: int = 0) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        contract_of(env, gpus=gpus)
    return caught.value


def test_every_dialect_has_a_fixture() -> None:
    assert {name for fixture in FIXTURES.values() for name in fixture["dialects"]} == {item.NAME for item in DIALECTS}
    assert FIXTURES.keys() == MASTERS.keys()


def test_three_nodes_of_two_processes_are_ranks_0_to_5() -> None:
    for name in sorted(FIXTURES):
        fixture, matches = FIXTURES[name], contracts(name)
        assert {contract.dialects for contract in matches} == {tuple(fixture["dialects"])}, name
        assert {(contract.mode, contract.nnodes, contract.nproc_per_node) for contract in matches} == {
            ("distributed", 3, 2)
        }, name
        ranks: list[int]
        if matches[0].already_rank:
            own = [item.rank_environment(0) if item.own else {} for item in matches]
            ranks = [int((env | arguments)["RANK"]) for env, arguments in zip(environments(fixture), own, strict=True)]
            assert [contract.node_rank for contract in matches] == [0, 0, 1, 1, 2, 2], name
        else:
            arguments = [contract.rank_environment(local) for contract in matches for local in (0, 1)]
            ranks = [int(values["RANK"]) for values in arguments]
            assert [values["LOCAL_RANK"] for values in arguments] == ["0", "1"] * 3, name
            assert [values["NODE_RANK"] for values in arguments] == ["0", "0", "1", "1", "2", "2"], name
            assert {values["WORLD_SIZE"] for values in arguments} == {"6"}, name
            assert {values["LOCAL_WORLD_SIZE"] for values in arguments} == {"2"}, name
        assert ranks == [0, 1, 2, 3, 4, 5], name


def test_all_other_nodes_are_sent_to_the_same_master() -> None:
    for name in sorted(FIXTURES):
        matches = {(item.master_addr, item.master_port) for item in contracts(name) if not item.is_master}
        assert matches == {MASTERS[name]}, name


def test_another_count_of_nodes_is_a_conflict_that_names_both() -> None:
    for name in sorted(set(FIXTURES) - RANKS - {"native", "indexed-job"}):
        error = launch_error(node(name, 1, NNODES="4"), gpus=2)
        assert error.code is Code.CONFLICT, name
        assert "4" in error.sentence, name


def test_another_node_rank_is_a_conflict_that_names_both() -> None:
    for name in sorted(set(FIXTURES) - RANKS - {"native", "bitnami-statefulset"}):
        error = launch_error(node(name, 1, NODE_RANK="2"), gpus=2)
        assert (error.code, "NODE_RANK=2" in error.sentence) == (Code.CONFLICT, True), error.sentence


class Spy(dict[str, str]):
    """An environment that remembers what was asked of it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(env)
        self.queries: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.queries.add(key)
        return super().get(key, default)


def _is_declared(name: str, variables: tuple[str, ...]) -> bool:
    return any(re.fullmatch(re.sub(r"<\w+>", r"\\w+", pattern), name) for pattern in variables)


def test_a_dialect_declares_all_that_its_answer_rests_on() -> None:
    """It says the same when nothing but its declared variables is there, and asks for nobody's undeclared ones."""
    for dialect in DIALECTS:
        everyone = tuple(name for item in DIALECTS for name in item.VARIABLES)
        of_ranks = dialect.NAME == "torchrun-worker"
        fixtures = [item for item in FIXTURES.values() if ("torchrun-worker" in item["dialects"]) == of_ranks]
        count = 0
        for env in (env for fixture in fixtures for env in environments(fixture)):
            spy = Spy(env)
            answer = dialect.read(spy)
            assert [name for name in spy.queries if name and not _is_declared(name, everyone)] == [], dialect
            if answer is not None:
                count += 1
                assert (
                    dialect.read({name: env[name] for name in env if _is_declared(name, dialect.VARIABLES)}) == answer
                ), dialect
        assert count >= 3, dialect


def _sections() -> dict[str, str]:
    """The sections of docs/reference/dialects.md that are about one dialect each, in their order."""
    parts = (TOOLKIT / "docs/reference/dialects.md").read_text().split("\n## `")[1:]
    return {name: body for name, _, body in (part.partition("`\n") for part in parts)}


def test_the_page_of_dialects_has_each_once_and_no_others() -> None:
    assert list(_sections()) == [dialect.NAME for dialect in DIALECTS]


def test_the_page_of_dialects_has_the_variables_and_sources() -> None:
    for dialect in DIALECTS:
        rows = re.findall(r"^\| (`.+?) \|", _sections()[dialect.NAME], re.MULTILINE)
        names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
        assert sorted(names) == sorted(dialect.VARIABLES), dialect
        sources = re.search(r"^Sources?: (.+)", _sections()[dialect.NAME], re.MULTILINE)
        assert sources, dialect
        assert "\nSource" in (dialect.__doc__ or ""), dialect.NAME


# One by one.


def test_bitnami_counts_its_workers_after_the_master() -> None:
    worker = {"WORLD_SIZE": "3", "MASTER_ADDR": "demo", "POD_NAME": "demo-worker-1"}
    assert contract_of(worker).node_rank == 2
    assert contract_of(worker | {"MASTER_ADDR": "demo-worker-0.demo"}).node_rank == 1
    assert contract_of(worker | {"POD_NAME": "trainer-1"}).node_rank == 1
    assert contract_of(worker | {"RANK": "1"}).node_rank == 1
    assert contract_of(worker | {"NODE_RANK": "1"}).node_rank == 1


def test_world_size_counts_nodes_only_where_nothing_else_does() -> None:
    rank = {"RANK": "1", "MASTER_ADDR": "a"}
    assert contract_of(rank | {"WORLD_SIZE": "6"}).nnodes == 6
    assert contract_of(rank | {"WORLD_SIZE": "6", "NNODES": "3", "NPROC_PER_NODE": "2"}).nnodes == 3
    error = launch_error(rank | {"WORLD_SIZE": "6", "NNODES": "3"})
    assert error.code is Code.CONFLICT
    assert "NPROC_PER_NODE=2 would fit" in error.sentence


def test_a_rank_of_another_launcher_is_left_alone() -> None:
    value = contract_of({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "NNODES": "9", "PET_NNODES": "x"})
    assert (value.already_rank, value.mode, value.world_size) == (True, "distributed", 4)
    assert launch_error({"RANK": "3", "LOCAL_RANK": "1"}).code is Code.BAD_VALUE
    uneven = {"RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "3"}
    assert launch_error(uneven).sentence.startswith("RANK=3 is out of range with WORLD_SIZE=3")
    assert (
        launch_error({"RANK": "1", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}).code
        is Code.BAD_VALUE
    )


def test_a_rank_of_run_itself_is_recognised() -> None:
    outer = contracts("native")[2]
    inner = contract_of(outer.rank_environment(1))
    assert (inner.already_rank, inner.nnodes, inner.node_rank, inner.nproc_per_node) == (True, 3, 2, 2)


class TestTorchrun:
    def test_a_range_or_c10d_makes_the_job_elastic(self) -> None:
        place = {"PET_RDZV_ENDPOINT": "mnist-worker-0:23456", "PET_RDZV_BACKEND": "c10d"}
        value = contract_of(place | {"PET_NNODES": "1:3", "PET_NPROC_PER_NODE": "2"})
        assert (value.elastic, value.nnodes, value.nproc_per_node) == ((1, 3), 3, 2)
        assert (value.master_addr, value.master_port) == ("mnist-worker-0", 23456)
        assert contract_of(place | {"PET_NNODES": "2"}).elastic == (2, 2)

    @pytest.mark.parametrize(
        ("endpoint", "address", "port"),
        [
            ("node0:29400", "node0", 29400),
            ("node0", "node0", 49875),
            ("node0:0", "node0", 49875),
            ("[fe80::1]:29400", "fe80::1", 29400),
            ("[fe80::1]", "fe80::1", 49875),
            ("fe80::1", "fe80::1", 49875),
        ],
    )
    def test_endpoints(self, endpoint: str, address: str, port: int) -> None:
        env = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": endpoint}
        value = contract_of(env)
        assert (value.master_addr, value.master_port) == (address, port)

    @pytest.mark.parametrize("endpoint", ["node0:x", "node0:70000", ":29400", "tcp://node0:1", "a b:1"])
    def test_bad_endpoints(self, endpoint: str) -> None:
        error = launch_error({"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": endpoint})
        assert error.code is Code.BAD_VALUE
        assert "PET_RDZV_ENDPOINT" in error.sentence

    def test_a_static_endpoint_and_a_master_must_agree(self) -> None:
        env = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": "a:1", "PET_MASTER_ADDR": "b"}
        error = launch_error(env)
        assert error.code is Code.CONFLICT
        assert "PET_RDZV_ENDPOINT=a" in error.sentence
        assert "PET_MASTER_ADDR=b" in error.sentence

    @pytest.mark.parametrize(
        ("words", "gpus", "count"), [("auto", 0, 1), ("auto", 4, 4), ("gpu", 4, 4), ("cpu", 4, 8), ("3", 4, 3)]
    )
    def test_words_for_processes(self, words: str, gpus: int, count: int) -> None:
        for variable in ("PET_NPROC_PER_NODE", "NPROC_PER_NODE"):
            assert contract_of({variable: words}, gpus=gpus, cpus=8).nproc_per_node == count

    def test_gpu_without_one_is_refused(self) -> None:
        assert launch_error({"PET_NPROC_PER_NODE": "gpu"}).code is Code.BAD_VALUE
        assert launch_error({"PET_NPROC_PER_NODE": "xpu"}).code is Code.BAD_VALUE

    def test_auto_gives_way_to_a_number(self) -> None:
        assert contract_of({"PET_NPROC_PER_NODE": "auto", "NPROC_PER_NODE": "3"}, gpus=2).nproc_per_node == 3

    def test_other_backends_are_refused(self) -> None:
        error = launch_error({"PET_NNODES": "2", "PET_RDZV_BACKEND": "etcd-v2"})
        assert (error.code, "PET_RDZV_BACKEND=etcd-v2" in error.sentence) == (Code.BAD_VALUE, True)


class TestPyTorchJob:
    def test_rank_is_the_nodes(self) -> None:
        error = launch_error(node("pytorchjob", 1, RANK="2"))
        assert error.code is Code.CONFLICT
        assert "RANK=2, but PET_NODE_RANK=1" in error.sentence

    @pytest.mark.parametrize("world", ["3", "12"])
    def test_world_size_counts_processes(self, world: str) -> None:
        error = launch_error(node("pytorchjob", 1, WORLD_SIZE=world))
        assert error.code is Code.CONFLICT
        assert f"WORLD_SIZE={world}" in error.sentence

    def test_auto_counts_as_one(self) -> None:
        assert contract_of(node("pytorchjob-auto", 1), gpus=8).world_size == 24
        assert launch_error(node("pytorchjob-auto", 1, WORLD_SIZE="6"), gpus=2).code is Code.CONFLICT

    def test_nodes_are_computed_if_the_operator_does_not_count_them(self) -> None:
        assert contract_of(node("pytorchjob", 1, PET_NNODES="")).nnodes == 3
        assert launch_error(node("pytorchjob", 1, PET_NNODES="", WORLD_SIZE="7")).code is Code.CONFLICT

    def test_processes_that_do_not_divide_the_world_are_a_conflict(self) -> None:
        for world, each in (("4", "8"), ("12", "8"), ("1", "3")):
            error = launch_error({"WORLD_SIZE": world, "PET_NPROC_PER_NODE": each})
            assert error.code is Code.CONFLICT
            assert f"WORLD_SIZE={world}, but PET_NPROC_PER_NODE={each}" in error.sentence
        assert contract_of({"WORLD_SIZE": "8", "PET_NPROC_PER_NODE": "8"}).nnodes == 1

    def test_one_replica_is_a_distributed_job(self) -> None:
        env = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "1", "RANK": "0", "WORLD_SIZE": "1", "PET_NODE_RANK": "0"}
        assert contract_of(env | {"MASTER_ADDR": "mnist-master-0"}).distributed
        assert not contract_of(env | {"MASTER_ADDR": "mnist-master-0", "MODE": "standalone"}).distributed

    def test_an_elastic_policy_meets_at_the_endpoint(self) -> None:
        elastic = {"PET_NNODES": "1:3", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "mnist-worker-0:23456"}
        value = contract_of(node("pytorchjob", 2, **elastic))
        assert (value.elastic, value.master_addr) == ((1, 3), "mnist-worker-0")


def test_a_trainjob_says_its_node_twice() -> None:
    error = launch_error(node("trainjob", 1, PET_NODE_RANK="2"))
    assert (error.code, "PET_NODE_RANK=2, but JOB_COMPLETION_INDEX=1" in error.sentence) == (Code.CONFLICT, True)


class TestIndexedJob:
    def test_without_a_count_of_nodes_it_is_a_plain_array(self) -> None:
        assert contract_of({"JOB_COMPLETION_INDEX": "4"}).dialects == ()
        assert contract_of({"JOB_COMPLETION_INDEX": "4", "NNODES": "1"}).world_size == 1

    def test_world_size_may_count_the_nodes(self) -> None:
        value = contract_of({"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "train-0.train"})
        assert (value.nnodes, value.node_rank) == (3, 2)

    def test_the_master_cannot_be_known(self) -> None:
        error = launch_error(node("indexed-job", 2, MASTER_ADDR=""))
        assert error.code is Code.BAD_VALUE
        assert "MASTER_ADDR is not set" in error.sentence
        assert "train-0.SERVICE" in error.sentence


class TestOpenPai:
    def test_roles_are_counted_in_their_order(self) -> None:
        turned = {"PAI_TASK_ROLE_LIST": "my_worker,Chief"}
        matches = [contract_of(node("openpai", index, **turned)) for index in range(3)]
        assert [item.node_rank for item in matches] == [2, 0, 1]
        assert {item.master_addr for item in matches} == {"10.2.0.6"}

    def test_the_port_is_the_jobs_own_or_http(self) -> None:
        env = node("openpai", 1)
        own = "PAI_PORT_LIST_chief_0_SynPort"
        assert contract_of(env | {own: "20300,20301"}).master_port == 20300
        assert contract_of(env | {"MASTER_PORT": "29500"}).master_port == 29500
        assert contract_of({name: value for name, value in env.items() if name != own}).master_port == 20200

    def test_of_several_ports_one_must_be_chosen(self) -> None:
        env = node("openpai", 1, PAI_PORT_LIST_chief_0_tensorboard="20400")
        error = launch_error(env)
        assert (error.code, "SynPort, tensorboard" in error.sentence) == (Code.BAD_VALUE, True)
        assert contract_of(env | {"MASTER_PORT": "29500"}).master_port == 29500
        assert contract_of(env | {"PAI_PORT_LIST_chief_0_Master": "20500"}).master_port == 20500

    @pytest.mark.parametrize(
        "changes",
        [
            {"PAI_TASK_ROLE_LIST": "Chief"},
            {"PAI_TASK_ROLE_LIST": "Chief,my_worker,other"},
            {"PAI_TASK_ROLE_LIST": "Chief,my_worker,so so"},
            {"PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "2"},
            {"PAI_PORT_LIST_chief_0_SynPort": "x"},
            {"PAI_TASK_ROLE_TASK_COUNT_Chief": "0"},
        ],
    )
    def test_what_does_not_fit_is_refused(self, changes: dict[str, str]) -> None:
        assert launch_error(node("openpai", 1, **changes)).code is Code.BAD_VALUE

    def test_names_as_the_user_wrote_them_are_read_too(self) -> None:
        env = {
            "PAI_CURRENT_TASK_ROLE_NAME": "Train_er",
            "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "1",
            "PAI_TASK_ROLE_TASK_COUNT_Train_er": "2",
            "PAI_HOST_IP_Train_er_0": "10.0.0.1",
            "PAI_PORT_LIST_Train_er_0_http": "8080",
        }
        value = contract_of(env)
        assert (value.nnodes, value.node_rank, value.master_addr, value.master_port) == (2, 1, "10.0.0.1", 8080)


class TestSlurm:
    @pytest.mark.parametrize(
        ("hosts", "first"),
        [
            ("gpu[01-03,07],login1", "gpu01"),
            ("gpu[7,9-11]", "gpu7"),
            ("login1,gpu[01-03]", "login1"),
            ("gpu01", "gpu01"),
            ("rack[2-3]node[08-09]-ib,x", "rack2node08-ib"),
            ("10-0-3-12", "10-0-3-12"),
            ("n[001]", "n001"),
        ],
    )
    def test_the_first_host_of_a_list(self, hosts: str, first: str) -> None:
        assert first_host("SLURM_NODELIST", hosts) == first

    @pytest.mark.parametrize("hosts", ["gpu[01", "gpu[]", "gpu[a-b]", "[,]", ",gpu1", "gpu]1", "gpu 1", "(null)"])
    def test_what_is_no_list(self, hosts: str) -> None:
        with pytest.raises(LaunchError) as caught:
            first_host("SLURM_NODELIST", hosts)
        assert caught.value.code is Code.BAD_VALUE
        assert "SLURM_NODELIST=" in caught.value.sentence

    @pytest.mark.parametrize(
        "changes",
        [
            {"SLURM_STEP_TASKS_PER_NODE": "2(x3)"},
            {"SLURM_STEP_TASKS_PER_NODE": "1(x2),2"},
            {"SLURM_STEP_TASKS_PER_NODE": "", "SLURM_STEP_NUM_TASKS": "6"},
            {"SLURM_STEP_TASKS_PER_NODE": "", "SLURM_STEP_NUM_TASKS": "", "SLURM_NTASKS_PER_NODE": "2"},
        ],
    )
    def test_several_tasks_on_a_node_are_refused(self, changes: dict[str, str]) -> None:
        error = launch_error(node("slurm", 1, **changes))
        assert (error.code, "--ntasks-per-node=1" in error.sentence) == (Code.BAD_VALUE, True)

    def test_the_step_goes_before_its_job(self) -> None:
        sized = {"SLURM_NTASKS_PER_NODE": "8", "SLURM_NTASKS": "24", "SLURM_NNODES": "4"}
        assert contract_of(node("slurm", 1, **sized)).nnodes == 3

    def test_outside_of_srun_no_node_knows_itself(self) -> None:
        error = launch_error(node("slurm", 1, SLURM_NODEID=""))
        assert (error.code, "srun" in error.sentence) == (Code.BAD_VALUE, True)
        assert contract_of(node("slurm", 1, SLURM_NODEID="", NODE_RANK="2")).node_rank == 2

    def test_what_the_user_says_goes_before_what_is_concluded(self) -> None:
        value = contract_of(node("slurm", 1, NPROC_PER_NODE="4", MASTER_ADDR="10.3.0.9", MASTER_PORT="29500"))
        assert (value.nproc_per_node, value.master_addr, value.master_port) == (4, "10.3.0.9", 29500)

    def test_usual_exports_of_a_batch_script_agree(self) -> None:
        exports = {"WORLD_SIZE": "6", "RANK": "1", "MASTER_ADDR": "gpu09", "NNODES": "3"}
        assert contract_of(node("slurm", 1, **exports)).first_rank == 2

    def test_the_calling_host_serves_without_a_list(self) -> None:
        lists = {"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": "", "SLURM_NODELIST": ""}
        assert contract_of(node("slurm", 1, **lists)).master_addr == "10.3.0.2"


class TestMpi:
    def test_each_process_is_a_rank_with_torchs_variables(self) -> None:
        for name in ("mpi-openmpi", "mpi-hydra"):
            value = contract_of(node(name, 3, MASTER_PORT="29500"))
            assert value.already_rank
            assert value.rank_environment(0) == {
                "MODE": "distributed",
                "RANK": "3",
                "WORLD_SIZE": "6",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "mpi0",
                "MASTER_PORT": "29500",
                "GROUP_TIMEOUT": "600",
            }

    def test_ranks_may_be_spread_over_nodes_in_any_way(self) -> None:
        sizes = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
        arguments = contract_of(node("mpi-openmpi", 2, **sizes)).rank_environment(0)
        assert (arguments["RANK"], arguments["WORLD_SIZE"], arguments["LOCAL_RANK"]) == ("2", "3", "1")

    def test_only_ranks_of_one_node_need_no_master(self) -> None:
        one = {"PMI_SIZE": "4", "PMI_RANK": "3", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "3"}
        arguments = contract_of(one, free_port=40123).rank_environment(0)
        assert (arguments["MASTER_ADDR"], arguments["MASTER_PORT"]) == ("127.0.0.1", "49875")  # the same for all four
        error = launch_error(node("mpi-openmpi", 0, MASTER_ADDR=""))
        assert (error.code, "mpirun -x MASTER_ADDR" in error.sentence) == (Code.BAD_VALUE, True)
        assert launch_error(node("mpi-openmpi", 2, MASTER_ADDR="localhost")).code is Code.LOOPBACK_MASTER

    def test_several_processes_on_a_node_are_no_nodes(self) -> None:
        for variable in ("NNODES", "NODE_RANK", "NPROC_PER_NODE"):
            error = launch_error(node("mpi-openmpi", 1, **{variable: "1"}))
            assert (error.code, "ppr:1:node" in error.sentence) == (Code.BAD_VALUE, True)
            assert variable in error.sentence

    def test_slurms_own_variables_are_those_of_the_daemons(self) -> None:
        assert [contract_of(node("mpi-nodes", index)).node_rank for index in range(3)] == [0, 1, 2]

    @pytest.mark.parametrize("bare", ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"])
    def test_a_rank_that_cannot_be_known_does_not_run_alone(self, bare: str) -> None:
        error = launch_error({bare: "1"})
        assert (error.code, f"{bare}=1" in error.sentence) == (Code.BAD_VALUE, True)
        assert not contract_of({bare: "1", "MODE": "standalone"}).distributed
        assert contract_of(node("slurm", 1, **{bare: "1"})).dialects == ("slurm",)
        assert contract_of({bare: "1", "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "a"}).node_rank == 1

    def test_each_alone_if_that_is_said(self) -> None:
        value = contract_of(node("mpi-openmpi", 3, MODE="standalone"))
        assert (value.distributed, value.own, value.already_rank) == (False, None, False)

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"OMPI_COMM_WORLD_RANK": "6"}, Code.BAD_VALUE),
            ({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, Code.BAD_VALUE),
            ({"OMPI_COMM_WORLD_LOCAL_SIZE": "0"}, Code.BAD_VALUE),
            ({"OMPI_COMM_WORLD_LOCAL_SIZE": "7"}, Code.CONFLICT),
            ({"WORLD_SIZE": "4"}, Code.CONFLICT),
            ({"RANK": "0"}, Code.CONFLICT),
        ],
    )
    def test_what_does_not_fit_is_refused(self, changes: dict[str, str], code: Code) -> None:
        assert launch_error(node("mpi-openmpi", 1, **changes)).code is code

    def test_who_sets_torchs_variables_in_the_command_is_left_alone(self) -> None:
        own = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "6"}
        assert contract_of(node("mpi-openmpi", 1, **own)).dialects == ("torchrun-worker",)


def test_two_launchers_at_once_are_a_conflict_unless_they_agree() -> None:
    slurm = node("slurm", 1)
    assert contract_of(slurm | node("torchrun", 1, PET_MASTER_ADDR="gpu09")).dialects == ("torchrun", "slurm")
    error = launch_error(slurm | node("torchrun", 2))
    assert error.code is Code.CONFLICT
    assert "PET_NODE_RANK=2, but SLURM_NODEID=1" in error.sentence


def test_nothing_set_is_no_dialect() -> None:
    assert detect({"PATH": "/bin", "HOME": "/root", "NNODES": " ", "WORLD_SIZE": ""}) == ()
