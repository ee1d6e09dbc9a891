"""Ranks of torch.distributed save together: DTensors, shards, replicas, failures, other numbers."""

import multiprocessing
import os
import time
import traceback

import numpy as np
import pytest

import ferry

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

SHAPES = {"a": (8, 6), "odd": (7, 5), "small": (1, 3), "vector": (13,), "cube": (4, 6, 5)}


def whole(name):
    shape = SHAPES[name]
    return torch.arange(np.prod(shape), dtype=torch.float32).reshape(shape) + len(name)


def value_of(path, name):
    import torch.distributed.checkpoint as dcp  # which takes seconds, and not on every rank

    like = dcp.FileSystemReader(path).read_metadata().state_dict_metadata[name]
    state = {name: torch.empty(like.size, dtype=like.properties.dtype)}
    dcp.load(state, checkpoint_id=path, no_dist=True)
    return state[name]


def expect_whole(path):
    for name in SHAPES:
        assert torch.equal(value_of(path, name), whole(name)), name


def _rank(work, rank, size, port, results, arguments):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(size), TORCHELASTIC_USE_AGENT_STORE="True")  # fmt: skip
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        results.put((rank, work(rank, size, *arguments)))
    except BaseException as error:
        results.put((rank, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    finally:
        results.close()
        results.join_thread()


def on_ranks(size, work, *arguments, lost=(), seconds=120):
    """What work(rank, size, ...) returns on each rank, or the text of what it raises; None for
    those which are lost."""
    context = multiprocessing.get_context("spawn")
    # As torchrun does it: the store is this process's, whose port nobody else can take meanwhile.
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    results = context.Queue()
    ranks = [
        context.Process(target=_rank, args=(work, rank, size, store.port, results, arguments))
        for rank in range(size)
    ]
    for each in ranks:
        each.start()
    found = [None] * size
    try:
        for _ in range(size - len(lost)):
            rank, result = results.get(timeout=seconds)
            found[rank] = result
        for each in ranks:
            each.join(30)
            assert each.exitcode is not None, "a rank hangs at its end"
    finally:
        for each in ranks:
            each.kill()
    return found


def dtensors(mesh, placements):
    from torch.distributed.tensor import distribute_tensor

    return {name: distribute_tensor(whole(name), mesh, placements) for name in SHAPES}


def save_dtensors(rank, size, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    line = init_device_mesh("cpu", (size,))
    square = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
    cases = {
        0: (line, [Shard(0)]),
        1: (line, [Replicate()]),
        2: (square, [Replicate(), Shard(0)]),
        3: (square, [Shard(0), Shard(0)]),
        4: (square, [Shard(0), Shard(-1)]),
    }
    for iteration, (mesh, placements) in cases.items():
        ferry.save(dtensors(mesh, placements), folder, iteration=iteration)
    sums = distribute_tensor(whole("a"), line, [Replicate()])
    sums = type(sums).from_local(sums.to_local(), line, [Partial()])
    try:
        ferry.save({"a": sums}, folder, iteration=9)
    except ferry.Invalid as error:
        assert "redistribute()" in str(error)
    else:
        raise AssertionError("a sum is not a tensor yet")
    return len(cases)


def test_dtensors_of_all_placements(tmp_path):
    found = on_ranks(4, save_dtensors, str(tmp_path / "run"))
    assert found == [5] * 4
    for iteration in range(5):
        expect_whole(tmp_path / "run" / f"iter_{iteration:07d}")


def train(rank, size, folder, resume):
    """Some steps of a model whose ranks are those of FSDP2, and of tensor parallelism at 4."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 14), torch.nn.ReLU(), torch.nn.Linear(14, 6))
    if size == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def state():
        tensors = dict(model.state_dict())
        for name, parameter in model.named_parameters():
            for key, value in optimizer.state[parameter].items():
                tensors[f"optimizer.{name}.{key}"] = value
        return tensors

    def step():
        torch.manual_seed(1)
        model(torch.randn(8, 10)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    if resume:
        import torch.distributed.checkpoint as dcp

        dcp.load(state(), checkpoint_id=os.path.join(folder, "iter_0000003"))
    with ferry.AsyncSaver(folder, most_in_flight=2, overwrite=True) as saver:
        ticket = None
        for iteration in range(4, 6) if resume else range(1, 4):
            if ticket:
                ticket.wait()
            step()
            ticket = saver.save(state(), iteration, objects={"progress": {"step": iteration}})
    return {
        name: (value.full_tensor() if hasattr(value, "full_tensor") else value).numpy()
        for name, value in state().items()
    }


def test_a_training_resumes_at_another_number_of_ranks(tmp_path):
    run = tmp_path / "run"
    before = on_ranks(4, train, str(run), False)
    assert isinstance(before[0], dict), before[0]
    for name, array in before[0].items():
        assert np.array_equal(value_of(run / "iter_0000003", name), array), name
    straight = on_ranks(2, train, str(run), True)
    assert isinstance(straight[0], dict), straight[0]
    for name, array in straight[0].items():
        assert np.array_equal(value_of(run / "iter_0000005", name), array), name
    assert not np.array_equal(straight[0]["0.weight"], before[0]["0.weight"])


def save_shards(rank, size, folder):
    rows = np.arange(40, dtype="f4").reshape(10, 4)
    begin, end = 10 * rank // size, 10 * (rank + 1) // size
    tensors = {
        "rows": ferry.Shard(rows[begin:end], (10, 4), (begin, 0)),
        "same": np.arange(3),
        "none": ferry.Shard(np.empty((0, 4)), (4, 4), (0, 0)) if rank else np.ones((4, 4)),
        f"own.{rank}": np.full(2, rank),
    }
    objects = {"step": 3, "rng": [rank]}
    ferry.save(tensors, folder, iteration=1, objects=objects)
    # One alone, while the others do something else.
    if rank == 1:
        ferry.save({"alone": np.ones(2)}, folder + "-alone", group=False)
    # Some of them.
    pair = dist.new_group([0, 2])
    if rank in (0, 2):
        ferry.save({"pair": ferry.Shard(np.ones(1), (2,), (rank // 2,))}, folder + "-pair", group=pair)
    return True


def test_shards_replicas_and_groups(tmp_path):
    folder = str(tmp_path / "run")
    assert on_ranks(3, save_shards, folder) == [True] * 3
    path = tmp_path / "run" / "iter_0000001"
    assert torch.equal(value_of(path, "rows"), torch.arange(40.0).reshape(10, 4))
    assert torch.equal(value_of(path, "same"), torch.arange(3))
    assert torch.equal(value_of(path, "none"), torch.ones(4, 4, dtype=torch.float64))
    assert [int(value_of(path, f"own.{rank}")[0]) for rank in range(3)] == [0, 1, 2]
    assert torch.equal(value_of(folder + "-alone/iter_0000000", "alone"), torch.ones(2).double())
    assert torch.equal(value_of(folder + "-pair/iter_0000000", "pair"), torch.ones(2).double())


def fail_on_one(rank, size, folder):
    errors = []

    def attempt(work):
        try:
            work()
            errors.append("")
        except ferry.Error as error:
            errors.append(f"{error.kind}: {error}")

    bad = torch.eye(2).to_sparse() if rank == 1 else torch.ones(2, 2)
    attempt(lambda: ferry.save({"a": bad}, folder, iteration=1))
    attempt(lambda: ferry.save({"a": torch.ones(2)}, folder, iteration=2))
    attempt(lambda: ferry.save({"a": torch.ones(2 + rank)}, folder, iteration=3))
    with ferry.AsyncSaver(folder) as saver:
        attempt(lambda: saver.save({"a": bad}, 4).wait())
        attempt(saver.finish)
        attempt(lambda: saver.save({"a": torch.ones(2)}, 5).wait())
        attempt(saver.finish)
    return errors


def test_one_rank_fails(tmp_path):
    found = on_ranks(3, fail_on_one, str(tmp_path / "run"))
    for rank, errors in enumerate(found):
        assert isinstance(errors, list), errors
        assert "unsupported" in errors[0] and "tensor a is sparse" in errors[0]
        assert errors[1] == "" and errors[2] and errors[6] == ""
        of_the_async_save = "".join(errors[3:6])
        assert "tensor a is sparse" in of_the_async_save
        assert rank == 1 or "rank 1: " in of_the_async_save
    saved = sorted(path.name for path in (tmp_path / "run").glob("iter_*"))
    assert saved == ["iter_0000002", "iter_0000005"]


def die(rank, size, folder, when):
    with ferry.AsyncSaver(folder) as saver:
        saver.save({"a": np.ones(2)}, 1)
        saver.finish()
        if rank == 1 and when == "killed":
            os.kill(os.getpid(), 9)
        if rank == 1 and when == "raises":
            raise LookupError("a bug of the loop")
        begin = time.monotonic()
        try:
            saver.save({"a": np.ones(2)}, 2).wait()
            saver.finish()
        except ferry.Error as error:
            return f"{error.kind}: {error}", time.monotonic() - begin
    return "saved without rank 1", 0


@pytest.mark.parametrize("when", ["killed", "raises"])
def test_one_rank_ends(tmp_path, when):
    lost = (1,) if when == "killed" else ()
    found = on_ranks(3, die, str(tmp_path / "run"), when, lost=lost)
    for rank in (0, 2):
        message, seconds = found[rank]
        assert "rank 1" in message and seconds < 30, message
    assert found[1] is None if lost else "a bug of the loop" in found[1]
    assert not (tmp_path / "run" / "iter_0000002").exists()


def never_come(rank, size, folder):
    if rank == 1:
        ferry.save({"a": np.ones(2)}, folder, iteration=1, timeout=3)
        time.sleep(8)
        return "late"
    ferry.save({"a": np.ones(2)}, folder, iteration=1, timeout=3)
    try:
        ferry.save({"a": np.ones(2)}, folder, iteration=2, timeout=3)
    except ferry.Exhausted as error:
        return str(error)
    return "saved without rank 1"


def test_one_rank_does_not_come(tmp_path):
    found = on_ranks(2, never_come, str(tmp_path / "run"))
    assert found[1] == "late"
    assert "rank 1" in found[0] and "sends nothing" in found[0]


def interrupted(rank, size, folder):
    import signal
    import threading

    ferry.save({"a": np.ones(2)}, folder, iteration=1)
    if rank == 1:  # comes late: rank 0 waits for it, and is interrupted
        time.sleep(3)
    else:
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        ferry.save({"a": np.ones(2)}, folder, iteration=2)
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    except ferry.Error as error:
        return f"{error.kind}: {error}"


def test_ctrl_c_on_one_rank(tmp_path):
    found = on_ranks(2, interrupted, str(tmp_path / "run"))
    assert found[0] == "KeyboardInterrupt"
    assert found[1] == "cancelled: rank 0: interrupted"


def forget_to_close(rank, size, folder):
    global kept
    kept = ferry.AsyncSaver(folder)
    kept.save({"a": np.ones(1 << 20)}, 1)
    return True


def test_ranks_that_do_not_close_it(tmp_path):
    assert on_ranks(2, forget_to_close, str(tmp_path / "run")) == [True, True]
    assert value_of(tmp_path / "run" / "iter_0000001", "a").sum() == 1 << 20


def load_with_ferry_like_ranks(rank, size, folder):
    """A child that is forked from a rank has no group of its own."""
    ferry.save({"a": np.ones(2)}, folder, iteration=1)
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    ferry.save({"a": np.ones(2)}, folder, iteration=2)
    return True


def test_a_fork_between_saves(tmp_path):
    assert on_ranks(2, load_with_ferry_like_ranks, str(tmp_path / "run")) == [True, True]


def convert_together(rank, size, run, folder):
    """Each operation by all ranks, an error of it, and the next one."""
    report = ferry.convert(run, f"{folder}/hf", group=None)
    try:
        ferry.convert(run, f"{folder}/hf", group=dist.group.WORLD)
    except ferry.Invalid as error:
        assert "overwrite=True" in str(error)
    else:
        raise AssertionError("the target is there")
    ferry.reshard(run, f"{folder}/resharded", tensor=1, pipeline=2, group=None)
    if rank == 0:
        ferry.convert(run, f"{folder}/alone")  # no others needed
    return report.parameters


def test_ranks_convert_and_reshard_together(run, tmp_path):
    whole = ferry.convert(run, tmp_path / "expected").parameters
    assert on_ranks(3, convert_together, str(run), str(tmp_path)) == [whole] * 3
    for name in ("hf", "alone"):
        assert ferry.verify(tmp_path / name)
        expected, found = tmp_path / "expected", tmp_path / name
        for file in ("model.safetensors", "config.json"):
            assert (expected / file).read_bytes() == (found / file).read_bytes()
    assert ferry.open(tmp_path / "resharded").layout.pipeline == 2
    assert ferry.diff(run, tmp_path / "resharded").equal
