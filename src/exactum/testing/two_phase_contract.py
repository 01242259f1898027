"""The contract of a ``TwoPhaseCommitSink`` of your own: that of every sink, and a crash at every
call of every method of it::

    class TestUploads(TwoPhaseCommitContract):
        def make_sink(self) -> Sink:
            return Uploads(self.place)
        def visible_rows(self) -> Iterable[object]:
            return plain_client_reads(self.place)
        def batches(self) -> Sequence[Any]:
            return record_batches
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from exactum.testing.faults import Around, Fault, FaultPlan, sweep
from exactum.testing.participant_contract import NOT_REPEATED, SinkContract
from exactum.testing.sink_place import Scenario, die_before

IN_TASKS = ("begin_transaction", "invoke", "pre_commit")
IDEMPOTENT = (
    "commit",
    "abort",
    "recover_and_commit",
    "recover_and_abort",
    "list_transactions",
    "verify",
)
METHODS = (*IN_TASKS, *IDEMPOTENT)


class TwoPhaseCommitContract(SinkContract):
    """Each method is one promise; the hooks are those of ``SinkContract``."""

    def test_every_fault_at_every_call_of_a_method(self) -> None:
        """The driver dies before or after it, or the target fails there, in a run that begins with
        nothing; each row stands once after the next one. What may be repeated is.
        """
        sweep(lambda plan: self._strike(plan, METHODS), NOT_REPEATED)
        sweep(lambda plan: self._strike(plan, IDEMPOTENT), [Fault.REPEATED])

    def test_a_task_may_die_in_every_call_of_a_method(self) -> None:
        """Its driver lives, and the task is tried again."""
        sweep(lambda plan: self._strike(plan, IN_TASKS, tries_max=2), NOT_REPEATED)

    def test_every_fault_at_every_call_of_a_method_in_a_recovery(self) -> None:
        """The same for the run that finds another one's leftovers, and for the one that finds its
        decision to be redelivered.
        """
        for died_before, after in (("decide", 2), ("commit", 1)):

            def scenario(
                plan: FaultPlan, died_before: str = died_before, after: int = after
            ) -> None:
                place = Scenario(self)
                place.run(around=die_before(died_before, after))
                place.run(through=lambda sink: interpose_methods(sink, METHODS, plan.around))
                place.finish()

            sweep(scenario, NOT_REPEATED)

    def test_two_drivers_at_once_in_every_call_of_a_method(self) -> None:
        """Another driver does everything while this one stands still inside of your method."""
        self._stall_at_every_call(
            lambda place, stall: place.run(
                through=lambda sink: interpose_methods(sink, METHODS, stall.around)
            )
        )

    def _strike(self, plan: FaultPlan, methods: Sequence[str], tries_max: int = 1) -> None:
        place = Scenario(self)
        place.run(
            through=lambda sink: interpose_methods(sink, methods, plan.around), tries_max=tries_max
        )
        place.finish()


def interpose_methods(sink: Any, methods: Sequence[str], around: Around) -> Any:
    """``sink`` itself, with each call of these methods, by whomever, passed through ``around``. Its
    copies as well.
    """
    given = type(sink)

    def interposed(method: str) -> Callable[..., object]:
        def call(self: Any, *args: object, **kwargs: object) -> object:
            return around(method, lambda: getattr(given, method)(self, *args, **kwargs))

        return call

    members: dict[str, Any] = {
        method: interposed(method) for method in methods if hasattr(given, method)
    }
    object.__setattr__(
        sink, "__class__", type(given.__name__, (given,), {"__slots__": (), **members})
    )
    return sink
