"""What exactum reads and writes of kafka-python's requests and answers is there: a new version
that renames a field, drops a request or knows fewer versions fails the case of its name.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from kafka.protocol.admin import groups, transactions
from kafka.protocol.consumer import fetch, group, offsets
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataResponse,
)
from kafka.protocol.producer import transaction
from kafka.record import MemoryRecords, MemoryRecordsBuilder

FIELDS = {
    MetadataResponse: """
        topics.name topics.topic_id topics.error_code topics.is_internal
        topics.authorized_operations
        topics.partitions.error_code topics.partitions.partition_index
        topics.partitions.leader_id topics.partitions.replica_nodes
        topics.partitions.isr_nodes""",
    ApiVersionsRequest: "client_software_name client_software_version",
    ApiVersionsResponse: "api_keys.api_key api_keys.min_version api_keys.max_version",
    groups.DescribeGroupsRequest: "groups include_authorized_operations",
    groups.DescribeGroupsResponse: """
        groups.error_code groups.group_state groups.members groups.authorized_operations""",
    FindCoordinatorRequest: "key_type coordinator_keys",
    FindCoordinatorResponse: "coordinators.key coordinators.error_code coordinators.node_id",
    transactions.DescribeTransactionsRequest: "transactional_ids",
    transactions.DescribeTransactionsResponse: """
        transaction_states.transactional_id transaction_states.error_code
        transaction_states.transaction_state transaction_states.producer_id
        transaction_states.producer_epoch transaction_states.transaction_timeout_ms
        transaction_states.transaction_start_time_ms transaction_states.topics.topic
        transaction_states.topics.partitions""",
    transactions.DescribeProducersRequest: "topics.name topics.partition_indexes",
    transactions.DescribeProducersResponse: """
        topics.name topics.partitions.partition_index topics.partitions.error_code
        topics.partitions.active_producers.producer_id
        topics.partitions.active_producers.producer_epoch
        topics.partitions.active_producers.last_sequence
        topics.partitions.active_producers.current_txn_start_offset""",
    transaction.EndTxnRequest: "transactional_id producer_id producer_epoch committed",
    transaction.EndTxnResponse: "error_code",
    transaction.InitProducerIdRequest: """
        transactional_id transaction_timeout_ms producer_id producer_epoch""",
    transaction.InitProducerIdResponse: "error_code",
    offsets.ListOffsetsRequest: """
        replica_id isolation_level topics.name topics.partitions.partition_index
        topics.partitions.timestamp""",
    group.OffsetFetchRequest: "group_id require_stable topics.name topics.partition_indexes",
    group.OffsetFetchResponse: """
        error_code topics.name topics.partitions.partition_index topics.partitions.error_code
        topics.partitions.committed_offset""",
    offsets.ListOffsetsResponse: """
        topics.name topics.partitions.partition_index topics.partitions.error_code
        topics.partitions.offset""",
    fetch.FetchRequest: """
        replica_id max_wait_ms min_bytes max_bytes isolation_level session_id session_epoch
        topics.topic topics.partitions.partition topics.partitions.current_leader_epoch
        topics.partitions.fetch_offset topics.partitions.last_fetched_epoch
        topics.partitions.log_start_offset topics.partitions.partition_max_bytes
        forgotten_topics_data rack_id""",
    fetch.FetchResponse: """
        responses.topic responses.partitions.partition_index responses.partitions.error_code
        responses.partitions.records responses.partitions.log_start_offset
        responses.partitions.high_watermark""",
}
"""By message, dots for what lies within."""
VERSIONS = {
    FindCoordinatorRequest: (10, 4, 4),
    transactions.ListTransactionsRequest: (66, 0, 2),
    transactions.DescribeTransactionsRequest: (65, 0, 0),
    transactions.DescribeProducersRequest: (61, 0, 0),
    transaction.EndTxnRequest: (26, 0, 4),
    transaction.InitProducerIdRequest: (22, 3, 4),
    group.OffsetFetchRequest: (9, 7, 7),
    offsets.ListOffsetsRequest: (2, 2, 2),
    fetch.FetchRequest: (1, 5, 12),
}
"""Kafka's number of the request, and the versions that exactum asks for."""
STRUCTURES = {
    transactions.DescribeProducersRequest: "TopicRequest",
    group.OffsetFetchRequest: "OffsetFetchRequestTopic",
    offsets.ListOffsetsRequest: "ListOffsetsTopic.ListOffsetsPartition",
    fetch.FetchRequest: "FetchTopic.FetchPartition",
}
"""The classes in which a request's rows are given."""


@pytest.mark.parametrize("message", FIELDS, ids=lambda message: message.__name__)
def test_the_fields_of(message: Any) -> None:
    """Under the names by which ``exactum/kafka`` knows them."""
    absent = [name for name in FIELDS[message].split() if not has(message.fields, name)]
    assert not absent, f"kafka-python's {message.__name__} has no {absent} any more"


def has(fields: dict[str, Any], name: str) -> bool:
    head, _, rest = name.partition(".")
    return head in fields and (not rest or has(fields[head].fields, rest))


def test_a_field_that_is_gone_is_seen() -> None:
    """The look into the fields can fail, within a message as well."""
    assert not has(MetadataResponse.fields, "cluster")
    assert not has(MetadataResponse.fields, "topics.partitions.leader")


@pytest.mark.parametrize("request_type", VERSIONS, ids=lambda message: message.__name__)
def test_the_versions_of(request_type: Any) -> None:
    key, lowest, highest = VERSIONS[request_type]
    assert key == request_type.API_KEY
    first, last = request_type.valid_versions
    assert first <= lowest, f"{request_type.__name__} begins with version {first}"
    assert last >= highest, f"{request_type.__name__} ends with version {last}"


@pytest.mark.parametrize("request_type", STRUCTURES, ids=lambda message: message.__name__)
def test_the_rows_of(request_type: Any) -> None:
    found = request_type
    for name in STRUCTURES[request_type].split("."):
        found = getattr(found, name)
    assert inspect.isclass(found)


def test_record_batches() -> None:
    """What salvage, verify and the lag read of a batch and of a record."""
    builder = MemoryRecordsBuilder(
        2, 0, 1_000, transactional=True, producer_id=7, producer_epoch=3, base_sequence=0
    )
    builder.append(1_234, b"key", None, [("name", b"text")])
    builder.close()
    records = MemoryRecords(bytes(builder.buffer()))
    batch = records.next_batch()
    assert (batch.producer_id, batch.producer_epoch, batch.next_offset) == (7, 3, 1)
    assert (batch.magic, batch.base_offset, batch.records_count) == (2, 0, 1)
    assert (batch.is_control_batch, batch.is_transactional) == (False, True)
    assert (batch.timestamp_type, batch.first_timestamp, batch.max_timestamp) == (0, 1_234, 1_234)
    (record,) = batch
    assert (record.offset, bytes(record.key), record.value) == (0, b"key", None)
    assert ([(n, bytes(v)) for n, v in record.headers], record.timestamp) == (
        [("name", b"text")],
        1_234,
    )
    assert records.next_batch() is None
