"""Requests about transactions, to their coordinators, in batches and to all nodes at once: list,
describe, commit, fence. Holds no protocol rules.

EndTxn is capped at version 4: version 5 moves the producer epoch (KIP-890), after which the outcome
of a repeated commit cannot be told; the coordinator picks its rules by the request's version, so
this holds on brokers of transaction.version 2 as well (docs/adr/0004).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.outcome import TransactionDescription
from exactum.kafka.requests.client_internals import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from exactum.kafka.requests.log_requests import LogRequests
from exactum.kafka.requests.routing import Again, Question, error_name

END_TXN_VERSION_MAX = 4
INIT_PRODUCER_VERSION_MAX = 4
FENCE_TIMEOUT_MS = 1_000
"""Transaction timeout of an id that was fenced, until its owner initialises it again: any broker
allows it.
"""
COMMITTED_STATES = ("PrepareCommit", "CompleteCommit")


class TransactionRequests(LogRequests):
    """Requests to the coordinator of each transactional id. Every one is idempotent."""

    def has_transaction_tools(self) -> bool:
        """Whether the broker answers DescribeTransactions, ListTransactions and
        DescribeProducers.
        """
        tools = (DescribeTransactionsRequest, ListTransactionsRequest, DescribeProducersRequest)
        return all(self._router.api_version(tool) >= 0 for tool in tools)

    def list_ongoing(self, pattern: str | None) -> list[str]:
        """Transactional ids that are Ongoing on any node, filtered by ``pattern`` where the broker
        can.
        """
        return [t.transactional_id for t in self._transactions(("Ongoing",), pattern)]

    def list_committed(self, pattern: str) -> list[str]:
        """Transactional ids like ``pattern`` whose last transaction was committed; none where the
        broker knows no patterns.
        """
        if not self._knows_patterns():
            return []
        return [t.transactional_id for t in self._transactions(COMMITTED_STATES, pattern)]

    def ids_of_producers(self, producer_ids: Collection[int]) -> dict[int, str]:
        """The transactional id of each producer id that a coordinator knows, in whatever state."""
        found = self._transactions((), None, producer_ids) if producer_ids else []
        return {t.producer_id: t.transactional_id for t in found}

    def _knows_patterns(self) -> bool:
        return self._router.api_version(ListTransactionsRequest) >= 2

    def _transactions(
        self, states: Sequence[str], pattern: str | None, producer_ids: Collection[int] = ()
    ) -> list[Any]:
        """What all nodes list of transactions in these states; filtered by ``pattern`` where the
        broker can. Nothing given: of any.
        """
        fields: dict[str, Any] = {
            "state_filters": list(states),
            "producer_id_filters": sorted(producer_ids),
        }
        if pattern is not None and self._knows_patterns():
            fields |= {"transactional_id_pattern": pattern, "min_version": 2}

        async def ask() -> list[Any]:
            nodes = self._router.nodes
            sent = [self._router.send(ListTransactionsRequest(**fields), node) for node in nodes]
            found: list[Any] = []
            for answer in [await s for s in sent]:
                if error := error_name(answer.error_code):
                    raise Again(error)
                found.extend(answer.transaction_states)
            return found

        return self._router.retry(ask)

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | None]:
        """What the coordinators know of each id; None for an id that they do not know.

        Raises:
            SettingRefused: DESCRIBE on the ids is not granted.
        """

        def request(ids: Sequence[str]) -> Any:
            return DescribeTransactionsRequest(transactional_ids=list(ids))

        def read(answer: Any, _: Sequence[str]) -> Iterable[tuple[str, int, Any]]:
            for t in answer.transaction_states:
                yield t.transactional_id, t.error_code, t

        result: dict[str, TransactionDescription | None] = {}
        answers = self._router.by_coordinator(transactional_ids, Question(request, read))
        for name, (error, t) in answers.items():
            if failure_of(error) is KafkaFailure.NO_TRANSACTION:
                result[name] = None
            elif error:
                raise self._router.denied("DESCRIBE on the transactional id", name, error)
            else:
                result[name] = TransactionDescription(
                    state=t.transaction_state,
                    producer_id=t.producer_id,
                    producer_epoch=t.producer_epoch,
                    timeout_ms=t.transaction_timeout_ms,
                    start_time_ms=t.transaction_start_time_ms,
                    partitions=tuple((p.topic, i) for p in t.topics for i in p.partitions),
                )
        return result

    def commit_transactions(self, transactions: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """EndTxn(commit) for each id with its (producer id, epoch). Returns the error's code, 0 for
        done.

        CONCURRENT_TRANSACTIONS says only that markers are being written, so it is asked again.
        """

        def request(ids: Sequence[str]) -> Any:
            (name,) = ids
            producer_id, epoch = transactions[name]
            return EndTxnRequest(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=True,
                max_version=END_TXN_VERSION_MAX,
            )

        return self._one_each(transactions, request, also_retriable=[KafkaFailure.CONCURRENT])

    def fence_producers(self, transactions: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """InitProducerId for each id whose transaction is open, with its (producer id, epoch): the
        coordinator raises the epoch and aborts the transaction. Returns the error's code, 0 where
        none was open.

        ConcurrentTransactionsError is the answer to an abort that has begun, and to one that has
        not: ask what is open.
        """

        def request(ids: Sequence[str]) -> Any:
            (name,) = ids
            producer_id, epoch = transactions[name]
            return InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=FENCE_TIMEOUT_MS,
                producer_id=producer_id,
                producer_epoch=epoch,
                min_version=3,
                max_version=INIT_PRODUCER_VERSION_MAX,
            )

        return self._one_each(transactions, request)

    def _one_each(
        self,
        ids: Iterable[str],
        request: Callable[[Sequence[str]], Any],
        also_retriable: Iterable[KafkaFailure] = (),
    ) -> dict[str, int]:
        """Send a request for each id to its coordinator. Returns the error's code, or 0."""

        def read(answer: Any, asked: Sequence[str]) -> Iterable[tuple[str, int, Any]]:
            yield asked[0], answer.error_code, None

        question = Question(request, read, each_max=1, also_retriable=frozenset(also_retriable))
        answers = self._router.by_coordinator(ids, question)
        return {name: error for name, (error, _) in answers.items()}

    # ---- partitions --------------------------------------------------------------------------
