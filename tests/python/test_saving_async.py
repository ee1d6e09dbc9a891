"""ferry.AsyncSaver on one rank: tickets, errors, its end, interrupts, forks."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import ferry

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def value_of(path, name="a"):
    like = dcp.FileSystemReader(path).read_metadata().state_dict_metadata[name]
    state = {name: torch.empty(like.size, dtype=like.properties.dtype)}
    dcp.load(state, checkpoint_id=path)
    return state[name]


def outside(first):
    """What no save can take, as the saver finds when it copies it."""
    return ferry.Shard(torch.ones(2), (4,), (first,))


def test_what_changes_after_wait_is_not_saved(tmp_path):
    tensor = torch.zeros(1 << 20)
    with ferry.AsyncSaver(tmp_path / "run", most_in_flight=2) as saver:
        saver.prepare({"a": tensor})
        for step in range(6):
            tensor.fill_(step)
            ticket = saver.save({"a": tensor}, step)
            ticket.wait()
            assert ticket.is_ready()
            ticket.wait()  # again: nothing happens
        saver.finish()
        status = saver.status()
        assert status.last_saved == 5 and status.in_flight == 0 and status.staging_bytes > 0
        assert status.to_dict()["last_saved"] == 5
    for step in range(6):
        assert torch.all(value_of(tmp_path / "run" / f"iter_{step:07d}") == step)


def test_more_than_staging_goes_in_pieces(tmp_path):
    tensors = {f"t{i}": torch.full((1 << 18,), float(i)) for i in range(16)}
    with ferry.AsyncSaver(tmp_path / "run", staging="2MiB") as saver:
        saver.save(tensors, 1).wait()
        saver.finish()
        assert saver.status().in_pieces == 1
    for name, tensor in tensors.items():
        assert torch.equal(value_of(tmp_path / "run" / "iter_0000001", name), tensor)


def test_tensors_live_until_they_are_copied(tmp_path):
    class Kept(torch.Tensor):
        pass

    with ferry.AsyncSaver(tmp_path / "run") as saver:
        references = []
        for step in range(4):
            tensor = torch.full((1 << 20,), float(step)).as_subclass(Kept)
            references.append(weakref.ref(tensor))
            ticket = saver.save({"a": tensor}, step)
            del tensor
            gc.collect()
            assert ticket.is_ready() or references[-1]() is not None
        saver.finish()
        del ticket
        saver.check()
        gc.collect()
        assert [reference() for reference in references] == [None] * 4
    for step in range(4):
        assert torch.all(value_of(tmp_path / "run" / f"iter_{step:07d}") == step)


def test_an_error_arrives_once_and_the_next_save_goes_on(tmp_path):
    saver = ferry.AsyncSaver(tmp_path / "run")
    saver.save({"a": torch.ones(2)}, 1).wait()
    saver.finish()
    with pytest.raises(ferry.Invalid, match="saving iteration 1: .*exists"):
        saver.save({"a": torch.ones(2)}, 1).wait()  # which may fail that soon, or later
        saver.finish()
    saver.finish()
    saver.check()
    with pytest.raises(ferry.Invalid, match="iteration=-3: the first is 0"):
        saver.save({"a": torch.ones(2)}, -3)
    ticket = saver.save({"a": outside(3)}, 3)
    with pytest.raises(ferry.Invalid, match="3:5. is not inside"):
        ticket.wait()
    saver.save({"a": outside(4)}, 4)  # nobody waits for its ticket
    with pytest.raises(ferry.Invalid, match="4:6. is not inside"):
        for _ in range(1000):
            saver.check()
            time.sleep(0.01)
    with pytest.raises(ferry.Unsupported, match="tensor a is sparse"):
        saver.save({"a": torch.eye(2).to_sparse()}, 2)
    with pytest.raises(ferry.Unsupported, match="objects"):
        saver.save({}, 2, objects={"a": object()})
    saver.save({"a": torch.ones(2)}, 2, objects={"b": [1]}).wait()
    saver.close()
    saver.close()
    with pytest.raises(ferry.Invalid, match="closed"):
        saver.save({"a": torch.ones(2)}, 3)
    assert torch.all(value_of(tmp_path / "run" / "iter_0000002") == 1)


def test_the_body_raises(tmp_path):
    with pytest.raises(LookupError):
        with ferry.AsyncSaver(tmp_path / "run") as saver:
            saver.save({"a": torch.ones(2)}, 1)
            raise LookupError
    assert torch.all(value_of(tmp_path / "run" / "iter_0000001") == 1)


def test_an_error_while_the_body_raises_is_a_warning(tmp_path):
    with pytest.warns(RuntimeWarning, match="3:5. is not inside"):
        with pytest.raises(LookupError):
            with ferry.AsyncSaver(tmp_path / "run") as saver:
                saver.save({"a": outside(3)}, 1)
                raise LookupError


def test_stop(tmp_path):
    with ferry.AsyncSaver(tmp_path / "run") as saver:
        saver.save({"a": torch.ones(2)}, 1).wait()
        assert not saver.is_stopped
        with pytest.raises(ferry.Invalid):
            saver.stop("later")
        saver.stop()
        assert saver.is_stopped
        with pytest.raises(ferry.Error, match="the saver was stopped") as raised:
            saver.save({"a": torch.ones(2)}, 2).wait()
        assert raised.value.kind == "cancelled"
    assert torch.all(value_of(tmp_path / "run" / "iter_0000001") == 1)
    assert not (tmp_path / "run" / "iter_0000002").exists()


def test_given_up_at_once(tmp_path):
    big = {f"t{i}": torch.ones(1 << 20) for i in range(100)}
    saver = ferry.AsyncSaver(tmp_path / "run")
    saver.save(big, 1).wait()
    saver.stop("at_once")
    try:
        saver.finish()
    except ferry.Error as error:
        assert error.kind == "cancelled"
    saver.close()
    left = set(os.listdir(tmp_path / "run")) if (tmp_path / "run").exists() else set()
    assert left <= {"iter_0000001", "latest_checkpointed_iteration.txt"}


def test_ctrl_c_while_it_waits(tmp_path):
    big = {f"t{i}": torch.ones(1 << 20) for i in range(50)}
    with ferry.AsyncSaver(tmp_path / "run") as saver:
        interrupts = 0
        for step in range(6):
            saver.save(big, step).wait()
            try:
                threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                saver.finish()
                time.sleep(1)
            except KeyboardInterrupt:
                interrupts += 1
        saver.finish()
        assert interrupts == 6 and saver.status().last_saved == 5


PROGRAM = """
import os, sys, numpy, ferry
saver = ferry.AsyncSaver(sys.argv[1])
for step in range(3):
    saver.save({"a": numpy.full(1 << 22, step, "f4")}, step)
"""


@pytest.mark.parametrize(
    "end", ["", "del saver", "sys.exit(0)", "import gc; saver = [saver]; saver.append(saver)",
            "threading = __import__('threading'); threading.Thread(target=saver.finish).start()"],
)  # fmt: skip
def test_a_program_that_does_not_close_it(tmp_path, end):
    run = tmp_path / "run"
    subprocess.run([sys.executable, "-c", PROGRAM + end, str(run)], check=True, timeout=120)
    assert torch.all(value_of(run / "iter_0000002") == 2)
    assert sorted(os.listdir(run))[-1] == "latest_checkpointed_iteration.txt"


def test_an_error_at_the_end_of_a_program_is_printed(tmp_path):
    program = PROGRAM + "saver.save({'a': numpy.ones(1)}, 0)"
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "run")],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0
    assert "RuntimeWarning: AsyncSaver(" in ended.stderr and "saving iteration 0" in ended.stderr


def _in_child(saver, ticket, queue):
    problems = []
    for call in (saver.finish, saver.check, saver.status, ticket.wait, ticket.is_ready,
                 lambda: saver.save({"a": np.ones(1)}, 9)):  # fmt: skip
        try:
            call()
        except ferry.Invalid as error:
            problems.append(str(error))
    queue.put(problems)


def test_a_forked_child_neither_uses_nor_hangs(tmp_path):
    big = {f"t{i}": np.ones(1 << 20, "f4") for i in range(20)}
    context = multiprocessing.get_context("fork")
    with ferry.AsyncSaver(tmp_path / "run") as saver:
        for step in range(5):
            ticket = saver.save(big, step)
            queue = context.SimpleQueue()
            child = context.Process(target=_in_child, args=(saver, ticket, queue))
            child.start()
            problems = queue.get()
            child.join(60)
            assert child.exitcode == 0
            assert len(problems) == 6 and all("was forked" in problem for problem in problems)
            ticket.wait()
        plain = os.fork()
        if plain == 0:
            try:
                del saver, ticket
                gc.collect()
            finally:
                os._exit(0)
        assert os.waitpid(plain, 0)[1] == 0
    assert torch.all(value_of(tmp_path / "run" / "iter_0000004", "t3") == 1)


def test_a_child_that_ends_as_programs_do(tmp_path):
    program = PROGRAM + (
        "child = os.fork()\n"
        "if child: assert os.waitpid(child, 0)[1] == 0; saver.close()\n"
        "# the child goes on to the interpreter's end\n"
    )
    run = str(tmp_path / "run")
    subprocess.run([sys.executable, "-c", program, run], check=True, timeout=120)
    assert torch.all(value_of(tmp_path / "run" / "iter_0000002") == 2)


def test_loader_workers_while_it_saves(tmp_path):
    data = torch.utils.data.DataLoader(range(64), num_workers=2, multiprocessing_context="fork")
    with ferry.AsyncSaver(tmp_path / "run", keep=1) as saver:
        for step, _ in enumerate(data):
            saver.save({"a": torch.ones(1 << 16)}, step)
    assert saver._saver.is_closed
