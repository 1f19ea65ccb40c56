"""Breaks things of torch, which the variable SABOTAGE names, in every Python that has this folder in PYTHONPATH."""

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any


def det_is_a_little_off(torch: Any) -> None:
    _wrap(torch.linalg, "det", lambda value: value * 1.001)


def one_number_of_a_product_is_wrong(torch: Any) -> None:
    def spoil(product: Any) -> Any:
        if product.dtype == torch.bfloat16:
            product.view(-1)[-1] += 1
        return product

    _wrap(torch.Tensor, "__matmul__", spoil)


def convolutions_are_computed_elsewhere(torch: Any) -> None:
    _wrap(torch.nn.functional, "conv2d", lambda value: value.to("meta"))


def one_seed_gives_many_results(torch: Any) -> None:
    _wrap(torch, "randn", lambda value: value * (1 + time.perf_counter() % 0.01))


def gradients_are_a_little_off(torch: Any) -> None:
    true = torch.Tensor.backward

    def backward(self: Any, gradient: Any = None, **more: Any) -> None:
        true(self, torch.full_like(self, 1.01) if gradient is None else gradient, **more)

    torch.Tensor.backward = backward


def optimizers_do_nothing(torch: Any) -> None:
    for kind in (torch.optim.SGD, torch.optim.Adam):
        kind.step = lambda *_: None


def infinite_gradients_are_used(torch: Any) -> None:
    torch.amp.GradScaler._maybe_opt_step = lambda _self, optimizer, *_: optimizer.step()


def autocast_does_nothing(torch: Any) -> None:
    class Autocast(torch.autocast):  # type: ignore[misc]
        def __init__(self, kind: str, **_: Any) -> None:
            super().__init__(kind, enabled=False)

    torch.autocast = Autocast


def anything_is_unpickled(torch: Any) -> None:
    true = torch.load
    torch.load = lambda holder, **more: true(holder, **{**more, "weights_only": False})


def optimizers_forget(torch: Any) -> None:
    torch.optim.AdamW.load_state_dict = lambda *_: None


def scripts_forget_their_loop(torch: Any) -> None:
    torch.jit.load = lambda holder, **_: lambda x: x[0]


def loaders_have_no_workers(torch: Any) -> None:
    true = torch.utils.data.DataLoader.__init__

    def init(self: Any, *words: Any, **more: Any) -> None:
        true(self, *words, **{**more, "num_workers": 0, "timeout": 0, "multiprocessing_context": None})

    torch.utils.data.DataLoader.__init__ = init


def samples_come_unshared(torch: Any) -> None:
    torch.Tensor.is_shared = lambda _: False


def cuda_is_of_another_release(torch: Any) -> None:
    torch.version.cuda = "12.4"


def nothing_is_compiled(torch: Any) -> None:
    torch.compile = lambda function, **_: function


def losses_have_no_slope(torch: Any) -> None:
    torch.nn.functional.cross_entropy = lambda result, _: (result * 0).sum()


def ranks_train_alone(torch: Any) -> None:
    torch.nn.parallel.DistributedDataParallel = lambda model: model


def ranks_do_not_add(torch: Any) -> None:
    torch.distributed.all_reduce = lambda *_, **__: None


def ranks_hear_nothing(torch: Any) -> None:
    torch.distributed.broadcast = lambda *_, **__: None


def messages_do_not_come(torch: Any) -> None:
    torch.distributed.batch_isend_irecv = lambda _: []


def barriers_do_not_wait(torch: Any) -> None:
    torch.distributed.barrier = lambda *_, **__: None
    if os.environ.get("RANK") == "1":
        _wrap(torch.distributed.distributed_c10d, "_get_default_store", lambda store: (time.sleep(2), store)[1])  # type: ignore[func-returns-value]


def one_rank_raises(torch: Any) -> None:
    def spoil(_: Any) -> Any:
        raise ValueError("sabotage")

    if os.environ.get("RANK") == "1":
        _wrap(torch.distributed, "all_gather", spoil)


def one_rank_is_wrong(torch: Any) -> None:
    if os.environ.get("RANK") == "1":
        _wrap(torch, "equal", lambda _: False)


def torch_cannot_be_imported(_: Any) -> None:
    raise OSError("libtorch_cpu.so: cannot open shared object file")


def linalg_crashes(torch: Any) -> None:
    _wrap(torch.linalg, "solve", lambda _: os.kill(os.getpid(), signal.SIGSEGV))


def linalg_hangs(torch: Any) -> None:
    _wrap(torch.linalg, "solve", lambda _: time.sleep(600))


def libraries_print(torch: Any) -> None:
    _wrap(torch.linalg, "solve", lambda value: (os.write(1, b'{"payload": "noise"}\n'), value)[1])


def _wrap(owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Replace a function of torch by one that returns ``change`` of its result."""
    true = getattr(owner, name)
    setattr(owner, name, lambda *words, **more: change(true(*words, **more)))


class _After(MetaPathFinder):
    """Sabotages torch when it is imported; a Python process without torch starts as fast as before."""

    def find_spec(self, name: str, *_: Any) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        assert spec
        assert spec.loader
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            for sabotage in os.environ["SABOTAGE"].split(","):
                globals()[sabotage](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("SABOTAGE"):
    sys.meta_path.insert(0, _After())
