"""librdkafka's topics of one producer: a handle for each name, made when it is first asked for."""

from __future__ import annotations

from exactum.kafka.native import librdkafka
from exactum.kafka.producer.delivery_errors import DeliveryError
from exactum.kafka.topics import topic_name


class TopicHandles:
    """To be destroyed before their producer."""

    def __init__(self) -> None:
        self._c = librdkafka.library()
        self._handles: dict[str, int] = {}

    def of(self, client: int, name: str) -> int:
        """The handle of the topic with the producer ``client``.

        Raises:
            DeliveryError: no topic can have this name.
        """
        if name not in self._handles:
            trouble = topic_name.trouble(name.encode(errors="backslashreplace"))
            made = None if trouble else self._c.rd_kafka_topic_new(client, name.encode(), None)
            if not made:
                refusal = f"the topic {name!r} {trouble or 'is refused by librdkafka'}"
                raise DeliveryError(librdkafka.ERR_TOPIC_EXCEPTION, refusal)
            self._handles[name] = made
        return self._handles[name]

    def destroy(self) -> None:
        for handle in self._handles.values():
            self._c.rd_kafka_topic_destroy(handle)
        self._handles.clear()
