"""The pools of producers of this process, one for each sink's plan: made when they are first asked
for, closed when they have been idle for long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from exactum.kafka.producer.producer_pool import ProducerPlan, ProducerPool

POOLS_IDLE_MAX = 8
"""Most pools that wait for their next task; of more, those go that have been idle for longest."""
POOL_IDLE_MIN_S = 5.0
"""Shortest time that a pool waits for its next task, however many others there are: a query may
have many sinks.
"""


class ProcessPools:
    """The pools by plan. Spark keeps worker processes, so they outlive a task and an epoch."""

    def __init__(self, make: Callable[[ProducerPlan], ProducerPool] = ProducerPool) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._pools: dict[ProducerPlan, ProducerPool] = {}
        # Kept for ever: librdkafka would wait for threads that a forked process does not have.
        self._of_the_parent: list[ProducerPool] = []

    def pool_of(self, plan: ProducerPlan, user: object) -> ProducerPool:
        """The pool for ``plan``, in use by ``user`` from here on. It is never closed while
        somebody uses it.
        """
        with self._lock:
            if self._process != os.getpid():  # forked: its parent's threads are not ours
                self._of_the_parent.extend(self._pools.values())
                self._pools.clear()
                self._process = os.getpid()
            if plan not in self._pools:
                self._pools[plan] = self._make(plan)
            pool = self._pools[plan]
            pool.enter(user)
            self._close_the_unused(plan)
            return pool

    def plans(self) -> list[ProducerPlan]:
        """Whose pools are kept, the oldest first."""
        with self._lock:
            return list(self._pools)

    def close(self, plan: ProducerPlan) -> None:
        """Close the pool of ``plan``, if there is one; nobody may use it."""
        with self._lock:
            pool = self._pools.pop(plan, None)
        if pool is not None:
            pool.close()

    def _close_the_unused(self, plan: ProducerPlan) -> None:
        """Those that have been idle for long and are of an earlier run of the same sink, or too
        many.
        """
        now_s = time.monotonic()
        idle = {each: now_s - pool.used_s for each, pool in self._pools.items() if not pool.in_use}
        for count, each in enumerate(sorted(idle, key=idle.__getitem__)):
            of_another_run = each.scope == plan.scope and each.incarnation != plan.incarnation
            if idle[each] > POOL_IDLE_MIN_S and (of_another_run or count >= POOLS_IDLE_MAX):
                self._pools.pop(each).close()


process_pools = ProcessPools()
"""Of this process: a task finds its sink's producers where the task before has left them."""
