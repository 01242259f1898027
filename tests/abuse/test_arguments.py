"""Every public call, each of its arguments replaced by things it cannot mean: refused by name at
once, or taken.

What a wrong argument must never do is fail later, in a task, or with an error that names something
of ours.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.errors import ExactumError
from tests.kit.kafka.broker import Broker

BROKERS = "localhost:1"
SINK = exactum.KafkaSink("t", bootstrap_servers=BROKERS)
WRONG: tuple[Any, ...] = (
    None,
    0,
    -1,
    7,
    2**63,
    1.5,
    float("nan"),
    True,
    "",
    " ",
    "x\0y",
    "../..",
    "é" * 300,
    b"bytes",
    [],
    [None],
    ["a", "a"],
    (),
    {},
    {"a": None},
    {1: 2},
    object(),
    object,
    lambda: None,
    lambda *a, **k: None,
    SINK,
    ValueError("x"),
)
SEED = 20261123


def of_sink(write: Callable[..., Any]) -> Callable[..., Any]:
    """With its sink by name."""

    @wraps(write)
    def call(sink: Any, **more: Any) -> Any:
        return write(sink, **more)

    return call


CALLS: dict[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "KafkaSink": (exactum.KafkaSink, {"topic": "t", "bootstrap_servers": BROKERS}),
    "PostgresSink": (exactum.PostgresSink, {"url": "postgresql://u@localhost:1/d", "table": "t"}),
    "PostgresSink upsert": (
        exactum.PostgresSink,
        {"url": "postgresql://u@localhost:1/d", "table": "t", "mode": "upsert", "key": ["k"]},
    ),
    "MySQLSink": (exactum.MySQLSink, {"url": "mysql://u@localhost:1/d", "table": "t"}),
    "FileSink": (exactum.FileSink, {"path": "/tmp/never"}),
    "FileSink csv": (
        exactum.FileSink,
        {"path": "/tmp/never", "format": "csv", "options": {"delimiter": ";"}},
    ),
    "WriteAheadSink": (exactum.WriteAheadSink, {"send": print}),
    "Json": (exactum.Json, {"schema": "id long"}),
    "Avro": (exactum.Avro, {"schema": '"long"'}),
    "String": (exactum.String, {}),
    "Function": (exactum.Function, {"f": len, "returns": "id long"}),
    "control_stream": (exactum.control_stream, {"topic": "rules", "bootstrap_servers": BROKERS}),
    "exactly_once": (of_sink(exactum.exactly_once), {"sink": SINK}),
    "at_least_once": (of_sink(exactum.at_least_once), {"sink": SINK}),
    "at_most_once": (of_sink(exactum.at_most_once), {"sink": SINK}),
}
NAMED = {
    "producer": "setting",
    "url": "URL",
    "options": "option",
    "partition_by": "partition",
    "dead_letters": "sink",
}
"""How a message names an argument where it is not by its name."""


def parameters_of(call: Callable[..., Any], *left_out: str) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return sorted(
        n
        for n, p in inspect.signature(call).parameters.items()
        if p.kind not in kinds and n not in left_out
    )


def parameters(name: str) -> list[str]:
    call, given = CALLS[name]
    return sorted({*given, *parameters_of(call)})


CASES = [(name, parameter) for name in CALLS for parameter in parameters(name)]


def refused_or_taken(what: str, call: Callable[[], Any], named: str = "") -> None:
    """Run ``call``, which may raise an error of exactum's that is brief and has ``named`` in it,
    and no other.
    """
    try:
        call()
    except ExactumError as error:
        text = str(error)
    except Exception as error:
        raise AssertionError(f"{what} raises {type(error).__name__}: {error}") from error
    else:
        return
    assert 20 < len(text) < 1_200, f"{what}: {text}"
    assert named in text, f"{what}: the message does not name it: {text}"


@pytest.mark.parametrize(("name", "parameter"), CASES, ids=lambda value: value)
def test_an_argument_of_the_wrong_kind(name: str, parameter: str) -> None:
    """It is refused at once by an error of exactum's that is brief, or it is taken; never
    another error. So is what another argument is given.
    """
    call, given = CALLS[name]
    named = NAMED.get(parameter, parameter)
    for value in (*WRONG, *given.values()):
        changed = partial(call, **{**given, parameter: value})
        refused_or_taken(f"{name}({parameter}={value!r})", changed, named)


@pytest.mark.parametrize("name", CALLS)
def test_several_wrong_arguments(name: str) -> None:
    """Several at once, at random (the seed is printed), and swapped ones among them: refused, or
    taken; never another error.
    """
    print(f"seed {SEED}")
    call, given = CALLS[name]
    values = [*WRONG, *given.values()]
    chance = random.Random(f"{SEED} {name}")
    for _ in range(300):
        wrong = {
            parameter: chance.choice(values)
            for parameter in parameters(name)
            if chance.random() < 0.3
        }
        refused_or_taken(f"{name}({wrong})", partial(call, **{**given, **wrong}))


@pytest.fixture(scope="module")
def source(broker: Broker) -> Mapping[str, Any]:
    broker.kafka.create_topic("arguments", partitions=1)
    return {
        "topics": "arguments",
        "bootstrap_servers": broker.servers,
        "start": "earliest",
    }


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("parameter", parameters_of(exactum.read_kafka, "spark"))
def test_an_argument_of_read_kafka(
    spark: SparkSession, source: Mapping[str, Any], parameter: str
) -> None:
    """Refused at once by an error of exactum's that is brief, or taken; never another error."""
    for value in WRONG:
        if parameter == "bootstrap_servers" and isinstance(value, str) and value.strip():
            continue  # an address that nobody answers at takes its ten seconds
        changed = {**source, parameter: value}
        refused_or_taken(
            f"read_kafka({parameter}={value!r})", partial(exactum.read_kafka, spark, **changed)
        )


@pytest.mark.spark
@pytest.mark.parametrize("parameter", parameters_of(exactum.decode))
def test_an_argument_of_decode(spark: SparkSession, parameter: str) -> None:
    """Refused at once by an error of exactum's that is brief, or taken; never another error."""
    frame = spark.createDataFrame(
        [], "key binary, value binary, topic string, partition int, offset long"
    )
    given = {"frame": frame, "value": exactum.String()}
    for value in WRONG:
        changed = {**given, parameter: value}
        refused_or_taken(f"decode({parameter}={value!r})", partial(exactum.decode, **changed))
