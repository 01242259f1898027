"""One line that crashes a user's ``TwoPhaseCommitSink`` at every call of every method of it::

def test_my_sink() -> None:
    check_two_phase_commit_sink(lambda: MySink(folder), lambda: read_by_hand(folder), lambda:
    record_batches)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Sink
from exactum.testing.faults import Around, Fault, FaultPlan, sweep
from exactum.testing.participant_contract import NOT_REPEATED, SinkContract
from exactum.testing.sink_place import Scenario, Takeover, die_before

IN_TASKS = ("begin_transaction", "invoke", "pre_commit")
IDEMPOTENT = (
    "commit",
    "abort",
    "recover_and_commit",
    "recover_and_abort",
    "list_transactions",
    "verify",
)

Lose = Callable[[Participant, Sequence[PreparedTransaction]], None]


def check_two_phase_commit_sink(
    make_sink: Callable[[], Sink],
    visible_rows: Callable[[], Iterable[object]],
    batches: Callable[[], Sequence[Any]],
    *,
    rows_in: Callable[[Any], list[object]] | None = None,
    reset: Callable[[], None] | None = None,
    leftovers: Callable[[], Sequence[object]] = tuple,
    lose: Lose | None = None,
    lists_open: bool = True,
    tells_lost: bool = True,
    visible_within_s: float = 10.0,
) -> int:
    """Run the whole ``SinkContract`` over the sink, then crash it before and after each call of
    each of its methods.

    Args:
        make_sink: gives a sink over the same place at each call, another object each time.
        visible_rows: what a plain reader of the target sees; never by the sink's own code.
        batches: gives four Arrow record batches or more, none empty, all rows different; called for
            each scenario.
        rows_in: the rows of a record batch as ``visible_rows`` gives them; default: tuples of
            Python values.
        reset: empties the target before each scenario; default: it fills up.
        leftovers: what a plain client finds that is neither visible nor gone; default: it does not
            look.
        lose: undoes prepared transactions behind exactum's back; default: by the sink's own
            ``abort``.
        lists_open: False if the sink has no ``list_transactions``.
        tells_lost: False if it cannot tell that a transaction is lost (never raises
            ``TransactionLost``).
        visible_within_s: how long a commit may take to show in ``visible_rows``.

    Returns:
        How many scenarios were run.

    Raises:
        AssertionError: a promise is broken; the message names the fault and the call.
    """

    class Given(SinkContract):
        def make_sink(self) -> Sink:
            return make_sink()

        def visible_rows(self) -> Iterable[object]:
            return visible_rows()

        def batches(self) -> Sequence[Any]:
            return batches()

        def rows_in(self, batch: Any) -> list[object]:
            return super().rows_in(batch) if rows_in is None else rows_in(batch)

        def reset(self) -> None:
            if reset is not None:
                reset()

        def leftovers(self) -> Sequence[object]:
            return leftovers()

        def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
            (super().lose if lose is None else lose)(participant, prepared)

    given = Given()
    given.lists_open = lists_open
    given.tells_lost = tells_lost
    given.visible_within_s = visible_within_s
    runs = 0
    for test in sorted(name for name in dir(given) if name.startswith("test_")):
        try:
            getattr(given, test)()
        except Exception as error:
            raise AssertionError(f"{test}: {type(error).__name__}: {error}") from error
        runs += 1
    return runs + _crash_at_every_call(given)


def _crash_at_every_call(given: SinkContract) -> int:
    everything = (*IN_TASKS, *IDEMPOTENT)
    runs = sweep(lambda plan: _first_run(given, plan, everything), NOT_REPEATED)
    runs += sweep(lambda plan: _first_run(given, plan, IDEMPOTENT), [Fault.REPEATED])
    runs += sweep(lambda plan: _first_run(given, plan, IN_TASKS, tries_max=2), NOT_REPEATED)
    for label, after in (("decide", 2), ("commit", 1)):

        def second(plan: FaultPlan, label: str = label, after: int = after) -> None:
            _second_run(given, plan, label, after)

        runs += sweep(second, NOT_REPEATED)
    return runs + _stall_at_every_call(given, everything)


def _first_run(
    given: SinkContract, plan: FaultPlan, methods: Sequence[str], tries_max: int = 1
) -> None:
    """The fault strikes a run that begins with nothing; with ``tries_max`` 2 the task dies, and its
    driver lives.
    """
    place = Scenario(given)
    place.run(
        through=lambda sink: interpose_methods(sink, methods, plan.around), tries_max=tries_max
    )
    place.finish()


def _second_run(given: SinkContract, plan: FaultPlan, label: str, after: int) -> None:
    """The fault strikes a run that finds another one's leftovers, or its decision to be
    redelivered.
    """
    place = Scenario(given)
    place.run(around=die_before(label, after))
    place.run(through=lambda sink: interpose_methods(sink, (*IN_TASKS, *IDEMPOTENT), plan.around))
    place.finish()


def _stall_at_every_call(given: SinkContract, methods: Sequence[str]) -> int:
    """Another driver does everything while this one stands still inside the user's method."""
    at = 0
    while True:
        at += 1
        place = Scenario(given)
        stall = Takeover(at, place)
        place.run(through=lambda sink, stall=stall: interpose_methods(sink, methods, stall.around))  # type: ignore[misc]
        place.finish(f"stalled at call {at} ({stall.hit})")
        if not stall.hit:
            return at


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
