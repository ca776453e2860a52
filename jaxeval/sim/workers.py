"""Worker processes for batches of work: they end with their parent, however that ends, and leave Ctrl-C to it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from jaxeval.io.compile_cache import keep_compiled_code

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def in_processes(
    work: Callable[[Batch], list[Result]],
    batches: Sequence[Batch],
    processes_n: int,
    *,
    begin: Callable[[], None],
) -> Iterator[Result]:
    """What ``work(batch)`` returns, batch by batch as they end; ``work`` must be importable by new processes.

    ``begin`` runs first in every process: `begin_worker`, or what calls it.

    Raises:
        BrokenProcessPool: a worker ended by itself. The others are then ended too.
    """
    earlier = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(processes_n, len(batches)), multiprocessing.get_context("spawn"), initializer=begin)
    try:
        queue = iter(batches)
        running: set[Future[list[Result]]] = set()
        while True:
            with _interrupts_ignored():  # and so by the workers that are started here: the parent ends them
                while len(running) < 2 * processes_n and (batch := next(queue, None)) is not None:
                    running.add(pool.submit(work, batch))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - earlier:
            process.terminate()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ctrl-C does nothing for the moment; only the main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def begin_worker() -> None:
    """A compilation cache that all share, and an end when the parent ends, however that ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()

    keep_compiled_code()
