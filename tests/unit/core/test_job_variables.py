"""The toolkit derives its list of a job's variables: it removes every variable that `run` or torch would read."""

from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.launch.contract import Contract, contract_of
from entrypoints.pytorch.launch.dialects import DIALECTS
from torchbake.checks.smoke_jobs import RankLayout, SmokeJob, nodes_of
from torchbake.core.job_variables import without_job

RANK = {**contract_of({"NNODES": "1"}).rank_environment(0), "JOB_TOKEN": "secret", "TORCHELASTIC_RUN_ID": "x"}
NAMES = {name.replace("<role>", "worker").replace("<label>", "http") for item in DIALECTS for name in item.VARIABLES}


def test_variables_of_a_job_are_removed_and_others_stay() -> None:
    others = dict.fromkeys(("HOME", "PATH", "HTTP_PROXY", "GLOO_SOCKET_IFNAME", "MY_RANK", "RANKS", "PAI", "POD"), "1")
    for name in NAMES | RANK.keys():
        assert without_job({name: "1", **others}) == others, name


@given(st.dictionaries(st.sampled_from(sorted(NAMES | RANK.keys())), st.sampled_from(["1", "2", "x"])))
def test_whatever_a_launcher_said_what_is_left_is_no_job(env: dict[str, str]) -> None:
    assert contract_of(without_job(env)) == Contract(mode="standalone")


def test_run_understands_the_variables_of_smoke_test_jobs() -> None:
    job = SmokeJob(payloads=("ddp",), device="cpu", layout=RankLayout(nodes=3, nproc=2, order="workers-first"))
    matches = [contract_of(node.env) for node in nodes_of(job, {}, 300)]
    assert [(one.mode, one.nnodes, one.node_rank, one.nproc_per_node) for one in matches] == [
        ("distributed", 3, rank, 2) for rank in range(3)
    ]
    assert {(one.master_addr, one.rendezvous_timeout, one.group_timeout, one.stop_grace) for one in matches} == {
        ("node0", 50, 60, 5)
    }
