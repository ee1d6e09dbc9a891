"""The ranks of torch.distributed as a group that saves together.

They meet once, by an address that torch.distributed passes on; from then on ferry's own connections
carry what they say to each other, so that threads of a save need neither the interpreter nor NCCL.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import Any

from ferry import _ferry
from ferry.errors import Invalid

_lock = threading.Lock()
_groups: Any = weakref.WeakKeyDictionary()  # by torch's process group: ours


def group_of(group: Any, timeout: float = 1800.0) -> Any:
    """The ranks of `group`: None for torch.distributed's default group where there is one, else
    this process alone; False for this process alone; else a ProcessGroup. All its ranks call it."""
    distributed = _torch_distributed()
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise Invalid(f"timeout={timeout!r} is not a positive number of seconds")
    has_ranks = bool(distributed) and distributed.is_available()
    if group is None and has_ranks and distributed.is_initialized():
        group = distributed.group.WORLD
    if group is None or group is False:
        return _ferry._lone_group()
    if not has_ranks or not isinstance(group, distributed.ProcessGroup):
        raise Invalid(
            f"group is of class {type(group).__name__}: give a ProcessGroup of torch.distributed, None for"
            " its default one, or False for this process alone"
        )
    with _lock:
        process, ours = _groups.get(group, (None, None))
        if process != os.getpid():
            ours = _meet(distributed, group, min(timeout, 1e9))
            _groups[group] = (os.getpid(), ours)
        return ours


def _torch_distributed() -> Any:
    return sys.modules.get("torch.distributed")  # not imported for this: then it has no ranks


def _meet(distributed: Any, group: Any, timeout: float) -> Any:
    rank, size = group.rank(), group.size()
    if size == 1:
        return _ferry._lone_group()
    ranks = distributed.get_process_group_ranks(group)
    messenger = group
    if distributed.get_backend(group) != "gloo":  # NCCL would need a device for a message
        messenger = distributed.new_group(ranks, backend="gloo", use_local_synchronization=True)
    door = _ferry._Door() if rank == 0 else None
    place = [(_own_host(), door.port, os.urandom(16).hex())] if door else [None]
    distributed.broadcast_object_list(place, src=ranks[0], group=messenger)
    if messenger is not group:
        distributed.destroy_process_group(messenger)
    host, port, job = place[0]  # type: ignore[misc]
    return _ferry._meet(door, host, port, rank, size, job, timeout)


def _own_host() -> str:
    """A name or address of this host by which the others of the job reach it."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if interface and (address := _address_of_interface(interface)):
        return address
    master = os.environ.get("MASTER_ADDR", "")
    if master and _is_own(master):
        return master
    if master and (address := _address_towards(master)):
        return address
    name = os.uname().nodename
    return name if _is_own(name) else "localhost"


def _is_own(host: str) -> bool:
    import socket

    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
        except OSError:
            continue
    return False


def _address_towards(host: str) -> str:
    import socket

    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, 9, type=socket.SOCK_DGRAM
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # sends nothing
                return str(probe.getsockname()[0])
    except OSError:
        pass
    return ""


def _address_of_interface(name: str) -> str:
    import fcntl
    import socket
    import struct

    get_address = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, get_address, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


@atexit.register
def _leave() -> None:
    for process, ours in list(_groups.values()):
        if process == os.getpid():
            ours.close(5.0)
