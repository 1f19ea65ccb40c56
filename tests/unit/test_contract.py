"""The contract: the job that the image's variables describe, and the errors for contradictions."""

import itertools
import string
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entrypoints.pytorch.launch.contract import Contract, contract_of, without_distributed
from entrypoints.pytorch.launch.dialects import DIALECTS
from entrypoints.pytorch.launch.launch_error import Code, LaunchError
from tests.unit.conftest import NIGHTLY

THREE = {"NNODES": "3", "NODE_RANK": "1", "MASTER_ADDR": "node0"}


def launch_error(env: Mapping[str, str], *, gpus: int = 0) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        contract_of(env, gpus=gpus)
    return caught.value


def test_every_code_has_a_sentence_of_its_own() -> None:
    meanings = [code.meaning for code in Code]
    assert len(set(meanings)) == len(meanings)
    assert all(meaning.endswith(".") for meaning in meanings)
    assert [int(code) for code in Code] == [64, 70, *range(80, 94)]


class TestStandalone:
    def test_is_the_default(self) -> None:
        value = contract_of({"PATH": "/bin"}, gpus=8)
        assert value == Contract(mode="standalone")
        assert value.rank_environment(0) == {"MODE": "standalone"}

    def test_cannot_have_several_processes(self) -> None:
        for more in ({"NNODES": "3"}, {"NPROC_PER_NODE": "2"}, {"ELASTIC": "1:2"}, {"WORLD_SIZE": "2"}):
            error = launch_error({"MODE": "standalone", **more})
            assert error.code is Code.CONFLICT, more
            assert "MODE=standalone" in error.sentence, more
            assert "=".join(*more.items()) in error.sentence, more

    def test_needs_no_processes_for_gpus_that_nobody_asked_for(self) -> None:
        env = {"MODE": "standalone", "NPROC_PER_NODE": "auto", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "4"}
        assert contract_of(env, gpus=4).nproc_per_node == 1

    def test_lets_no_distributed_variable_through(self) -> None:
        job = contract_of(THREE | {"NPROC_PER_NODE": "2"}).rank_environment(0)
        torchrun = {"TORCHELASTIC_RUN_ID": "x", "PET_NNODES": "2", "ROLE_RANK": "0"}
        others = {"PATH": "/bin", "NCCL_SOCKET_IFNAME": "^lo", "SLURM_JOB_ID": "7"}
        assert without_distributed(others | job | torchrun) == others


class TestMode:
    def test_distributed_is_implied_or_asked_for(self) -> None:
        for env in (THREE, {"NPROC_PER_NODE": "2"}, {"ELASTIC": "1:1"}, {"MODE": "distributed"}):
            assert contract_of(env).distributed, env

    def test_whoever_counts_to_one_gets_a_group_of_one(self) -> None:
        for env in (
            {"NNODES": "1"},
            {"NPROC_PER_NODE": "1"},
            {"NPROC_PER_NODE": "auto"},
            {"WORLD_SIZE": "1", "RANK": "0"},
            {"PET_NNODES": "1"},
            {"SLURM_NNODES": "1"},
            {"JOB_COMPLETION_INDEX": "4", "NNODES": "1"},
        ):
            value = contract_of(env, free_port=40123)
            assert value.distributed, env
            arguments = value.rank_environment(0)
            assert (arguments["RANK"], arguments["WORLD_SIZE"], arguments["LOCAL_RANK"]) == ("0", "1", "0"), env
            assert (arguments["MASTER_ADDR"], arguments["MASTER_PORT"]) == ("127.0.0.1", "40123"), env
            assert not contract_of(env | {"MODE": "standalone"}).distributed, env

    def test_where_nothing_is_counted_the_script_is_alone(self) -> None:
        for env in ({}, {"MASTER_ADDR": "node0"}, {"NODE_RANK": "0"}, {"RANK": "0"}):
            assert not contract_of(env).distributed, env

    def test_auto_is_the_gpus(self) -> None:
        assert contract_of({"NPROC_PER_NODE": "auto"}, gpus=4).world_size == 4

    def test_a_free_port_is_only_for_nodes_that_no_other_must_find(self) -> None:
        assert contract_of({"NPROC_PER_NODE": "2"}, free_port=40123).master_port == 40123
        assert contract_of({"NNODES": "1", "MASTER_PORT": "29500"}, free_port=40123).master_port == 29500
        assert contract_of(THREE, free_port=40123).master_port == 49875
        assert contract_of({"ELASTIC": "1:1"}, free_port=40123).master_port == 49875


def test_a_node_gives_its_ranks_all_variables() -> None:
    env = THREE | {"NPROC_PER_NODE": "2", "GROUP_TIMEOUT": "60", "MASTER_PORT": "29400"}
    assert contract_of(env).rank_environment(1) == {
        "MODE": "distributed",
        "NNODES": "3",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "2",
        "MASTER_ADDR": "node0",
        "MASTER_PORT": "29400",
        "WORLD_SIZE": "6",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_TIMEOUT": "60",
    }
    with pytest.raises(ValueError, match="no local rank 2"):
        contract_of(env).rank_environment(2)


def test_times() -> None:
    value = contract_of({"RENDEZVOUS_TIMEOUT": "2.5", "GROUP_TIMEOUT": "60", "STOP_GRACE": "0"})
    assert (value.rendezvous_timeout, value.group_timeout, value.stop_grace) == (2.5, 60, 0)


def test_a_value_that_cannot_be_is_named() -> None:
    for variable, value in (
        *[("NNODES", value) for value in ("three", "0", "-1", "1.5", "1_0", "٣", "9999999999", "1e3", "0x3", "2:3")],
        *[("NODE_RANK", value) for value in ("-1", "a")],
        *[("NPROC_PER_NODE", value) for value in ("0", "many", "-2")],
        *[("MASTER_PORT", value) for value in ("0", "65536", "http")],
        *[("MASTER_ADDR", value) for value in ("node0:29500", "http://node0", "a b", "-x", "a" * 300, "bücher")],
        *[
            ("MASTER_ADDR", value)
            for value in ("a\nb", "fe80::1%a b", "fe80::1%\n$(x)", "fe80::1%", "::1%-x", "a;b", "/a")
        ],
        *[("NNODES", value) for value in ("100001", "999999999")],
        *[("NPROC_PER_NODE", value) for value in ("4097", "999999999")],
        ("ELASTIC", "1:100001"),
        *[("RENDEZVOUS_TIMEOUT", value) for value in ("0", "-1", "nan", "inf", "5m", "99999999", "1e9")],
        *[("GROUP_TIMEOUT", value) for value in ("0", "1.5", "99999999")],
        *[("STOP_GRACE", value) for value in ("-1", "x", "99999999")],
        *[("ELASTIC", value) for value in ("3:1", "0:2", "1:2:3", ":", "a:b", "1:")],
        *[("MODE", value) for value in ("Distributed", "auto")],
        *[("GLOO_SOCKET_IFNAME", value) for value in ("^lo", "^docker0,lo", "eth0 eth1", "e\nth")],
    ):
        error = launch_error(THREE | {variable: value})
        assert error.code is Code.BAD_VALUE, (variable, value)
        assert error.sentence.startswith(f"{variable}="), (variable, value)
        assert value in error.sentence or ascii(value)[1:30] in error.sentence, (variable, value)
        assert error.sentence.endswith("."), (variable, value)


@pytest.mark.parametrize("interface", ["^lo", "eth0"])
def test_alone_the_interface_does_not_matter(interface: str) -> None:
    assert not contract_of({"GLOO_SOCKET_IFNAME": interface}).distributed


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_variable_is_not_set(empty: str) -> None:
    names = [name for dialect in DIALECTS for name in dialect.VARIABLES]
    assert contract_of(dict.fromkeys([*names, "MODE", "GROUP_TIMEOUT"], empty)) == Contract(mode="standalone")


class TestNodes:
    def test_a_rank_out_of_range_is_named_with_the_count(self) -> None:
        error = launch_error(THREE | {"NODE_RANK": "3"})
        assert (error.code, "NODE_RANK" in error.sentence, "NNODES" in error.sentence) == (Code.BAD_VALUE, True, True)
        assert launch_error({"NODE_RANK": "1"}).code is Code.BAD_VALUE
        assert launch_error({"RANK": "1"}).code is Code.BAD_VALUE

    def test_a_node_must_know_which_it_is(self) -> None:
        error = launch_error({"NNODES": "3", "MASTER_ADDR": "node0"})
        assert (error.code, "NODE_RANK is not set" in error.sentence) == (Code.BAD_VALUE, True)
        assert "WORLD_SIZE counts nodes" in launch_error({"WORLD_SIZE": "3", "MASTER_ADDR": "node0"}).sentence

    def test_several_nodes_must_know_their_master(self) -> None:
        for rank in ("0", "1"):
            error = launch_error({"NNODES": "3", "NODE_RANK": rank})
            assert (error.code, "MASTER_ADDR is not set" in error.sentence) == (Code.BAD_VALUE, True)
        assert contract_of({"NPROC_PER_NODE": "3"}).master_addr == "127.0.0.1"

    def test_only_the_master_may_be_itself(self) -> None:
        for master in (
            "localhost",
            "LOCALHOST",
            "localhost.",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "[::1]",
            "0.0.0.0",
            "::ffff:127.0.0.1",
        ):
            error = launch_error(THREE | {"MASTER_ADDR": master})
            assert error.code is Code.LOOPBACK_MASTER, master
            assert "MASTER_ADDR=" in error.sentence, master
            assert "node 1" in error.sentence, master
            assert contract_of(THREE | {"MASTER_ADDR": master, "NODE_RANK": "0"}).is_master, master

    def test_masters_elsewhere(self) -> None:
        for master in (
            "10.0.0.1",
            "fe80::1",
            "fe80::1%eth0.7",
            "::ffff:10.0.0.1",
            "node_0.ns.svc.cluster.local.",
            "localhost.example.org",
        ):
            assert contract_of(THREE | {"MASTER_ADDR": master}).master_addr == master, master


class TestElastic:
    def test_a_range_of_nodes_without_ranks(self) -> None:
        value = contract_of({"ELASTIC": "2:4", "NPROC_PER_NODE": "2", "MASTER_ADDR": "node0"})
        assert (value.elastic, value.nnodes, value.nproc_per_node, value.distributed) == ((2, 4), 4, 2, True)
        assert contract_of({"ELASTIC": "3", "MASTER_ADDR": "node0"}).elastic == (3, 3)

    def test_a_number_of_nodes_must_lie_in_the_range(self) -> None:
        env = {"ELASTIC": "2:4", "MASTER_ADDR": "node0"}
        assert contract_of(env | {"NNODES": "3"}).elastic == (2, 4)
        error = launch_error(env | {"NNODES": "5"})
        assert (error.code, "NNODES=5, but ELASTIC=2:4" in error.sentence) == (Code.CONFLICT, True)

    def test_two_ranges_must_agree(self) -> None:
        error = launch_error({"ELASTIC": "2:4", "PET_NNODES": "1:4", "MASTER_ADDR": "node0"})
        assert (error.code, "ELASTIC=2:4, but PET_NNODES=1:4" in error.sentence) == (Code.CONFLICT, True)

    def test_needs_a_place_to_meet(self) -> None:
        assert "MASTER_ADDR" in launch_error({"ELASTIC": "1:2"}).sentence


# Properties.

counts = st.integers(min_value=1, max_value=9)


def _dialects(nodes: int, procs: int, rank: int) -> list[dict[str, str]]:
    """One node's environment as several launchers would say it."""
    each = {"NPROC_PER_NODE": str(procs)}
    master = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    pet = {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str(procs), "PET_NODE_RANK": str(rank)}
    return [
        {**each, **master, "NNODES": str(nodes), "NODE_RANK": str(rank), "WORLD_SIZE": str(nodes * procs)},
        {**each, **master, "WORLD_SIZE": str(nodes), "RANK": str(rank)},
        {**pet, "PET_MASTER_ADDR": "node0", "PET_MASTER_PORT": "29500"},
        {**pet, **master, "WORLD_SIZE": str(nodes * procs), "RANK": str(rank)},
        {**pet, "PET_MASTER_ADDR": "node0", "PET_MASTER_PORT": "29500", "JOB_COMPLETION_INDEX": str(rank)},
        {
            **{"SLURM_NNODES": str(nodes), "SLURM_NODEID": str(rank), "SLURM_NODELIST": f"node[0-{nodes}]"},
            **{"SLURM_GPUS_ON_NODE": str(procs), "MASTER_PORT": "29500"},
        },
        {
            **{"PAI_CURRENT_TASK_ROLE_NAME": "w", "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(rank)},
            **{"PAI_TASK_ROLE_TASK_COUNT_w": str(nodes), "PAI_HOST_IP_w_0": "node0", "PAI_PORT_LIST_w_0_http": "29500"},
            **each,
        },
    ]


@given(nodes=counts, procs=counts)
def test_ranks_are_0_to_n_once_each_under_every_dialect(nodes: int, procs: int) -> None:
    everywhere = []
    for dialect in range(len(_dialects(1, 1, 0))):
        matches = [
            contract_of(_dialects(nodes, procs, rank)[dialect] | {"MODE": "distributed"}) for rank in range(nodes)
        ]
        environments = [item.rank_environment(local) for item in matches for local in range(procs)]
        assert [int(env["RANK"]) for env in environments] == list(range(nodes * procs))
        assert {(item.master_addr, item.master_port) for item in matches} == {("node0", 29500)}
        everywhere.append(environments)
    assert all(environments == everywhere[0] for environments in everywhere)


PAIRS = [
    ("NNODES", "PET_NNODES", 2, 9),
    ("NNODES", "SLURM_NNODES", 2, 9),
    ("NODE_RANK", "PET_NODE_RANK", 0, 1),
    ("NODE_RANK", "JOB_COMPLETION_INDEX", 0, 1),
    ("NODE_RANK", "RANK", 0, 1),
    ("NODE_RANK", "SLURM_NODEID", 0, 1),
    ("NPROC_PER_NODE", "PET_NPROC_PER_NODE", 1, 9),
    ("MASTER_PORT", "PET_MASTER_PORT", 1, 65535),
    ("MASTER_ADDR", "PET_MASTER_ADDR", 1, 99),
]


@given(data=st.data(), pair=st.sampled_from(PAIRS))
def test_only_pairs_that_differ_are_refused(data: st.DataObject, pair: tuple[str, str, int, int]) -> None:
    one, other, least, most = pair
    values = data.draw(st.tuples(st.integers(least, most), st.integers(least, most)))
    lines = [f"10.0.0.{value}" if "ADDR" in one else str(value) for value in values]
    count = {"SLURM_NNODES": lines[0] if one == "NNODES" else "2"} if "SLURM" in other else {}
    env = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.9", **count, one: lines[0], other: lines[1]}
    if values[0] == values[1]:
        assert contract_of(env).nnodes >= 2
        return
    error = launch_error(env)
    assert error.code is Code.CONFLICT
    assert f"{one}={lines[0]}, but {other}={lines[1]}" in error.sentence


NAMES = sorted(
    {name.replace("<role>", "w").replace("<label>", "x") for dialect in DIALECTS for name in dialect.VARIABLES}
    | {"MODE", "RENDEZVOUS_TIMEOUT", "GROUP_TIMEOUT", "STOP_GRACE", "GLOO_SOCKET_IFNAME", "PAI_PORT_LIST_w_0_http"}
)
LIKELY = ["0", "1", "2", "3", "6", "auto", "gpu", "1:3", "w", "w,v", "node0", "node0:1", "127.0.0.1", "::1", "c10d"]
LIKELY += ["static", "standalone", "distributed", "n[0-2],m", "2(x3),1", "pod-worker-1", "^lo", "", "1.5"]
garbage = st.dictionaries(
    st.sampled_from(NAMES) | st.text(max_size=12),
    st.sampled_from(LIKELY) | st.text(max_size=20) | st.text(alphabet=string.digits + ":[],-x", max_size=14),
    max_size=16,
)


def outcome(env: Mapping[str, str], *, gpus: int) -> Contract | LaunchError:
    try:
        return contract_of(env, gpus=gpus)
    except LaunchError as refused:
        return refused


likely = st.builds(
    lambda base, more: base | more, st.sampled_from([{}, *_dialects(3, 2, 1), *_dialects(1, 1, 0)]), garbage
)


plausible = st.dictionaries(
    st.sampled_from(NAMES), st.integers(0, 12).map(str) | st.sampled_from(LIKELY), min_size=3, max_size=8
)


def valid(value: Contract | LaunchError) -> bool:
    if isinstance(value, LaunchError):
        is_known = value.code in (Code.BAD_VALUE, Code.CONFLICT, Code.LOOPBACK_MASTER)
        return is_known and value.sentence.isprintable() and value.sentence.endswith(".")
    of_last = value.rank_environment(value.nproc_per_node - 1)
    return (
        0 <= value.node_rank < value.nnodes
        and (value.distributed or value.world_size == 1)
        and of_last["MODE"] == value.mode
    )


TWO_VALUES = [*itertools.product(("0", "4", "8", "auto"), repeat=2)]


def test_any_two_variables_give_a_contract_or_a_short_sentence() -> None:
    for one, other in itertools.combinations(NAMES, 2):
        for lines in TWO_VALUES if NIGHTLY else TWO_VALUES[::3]:
            env = dict(zip((one, other), lines, strict=True))
            assert valid(outcome(env, gpus=2)), env


@settings(max_examples=200 if NIGHTLY else 60)
@given(env=likely | plausible, gpus=st.integers(0, 8))
def test_any_environment_gives_a_contract_or_a_short_sentence(env: dict[str, str], gpus: int) -> None:
    assert valid(outcome(env, gpus=gpus))
