"""One set of settings for both Kafka clients."""

import pytest

from exactum.errors import SettingRefused
from exactum.kafka.settings import OWNED, admin_settings, checked, redacted
from exactum.kafka.sink import KafkaSink


@pytest.mark.parametrize("name", sorted(OWNED))
def test_a_setting_that_the_guarantee_rests_on_is_refused_with_the_reason(name: str) -> None:
    """Never overridden in silence, in either direction."""
    with pytest.raises(SettingRefused, match="cannot be given"):
        KafkaSink("t", bootstrap_servers="h:1", producer={name: "1"})


def test_security_settings_mean_the_same_to_both_clients() -> None:
    """The user writes librdkafka's names once."""
    pairs = checked(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "app",
            "sasl.password": "secret",
            "ssl.ca.location": "/ca.pem",
            "compression.type": "zstd",
            "socket.keepalive.enable": True,
        },
        "KafkaSink",
    )
    assert admin_settings(pairs, "KafkaSink") == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "app",
        "sasl_plain_password": "secret",
        "ssl_cafile": "/ca.pem",
    }
    assert ("socket.keepalive.enable", "true") in pairs


@pytest.mark.parametrize("name", ["sasl.oauthbearer.config", "ssl.ca.pem", "security.unknown"])
def test_a_security_setting_that_only_one_client_knows_is_refused(name: str) -> None:
    """Better than a driver that connects in another way than the tasks."""
    with pytest.raises(SettingRefused, match="known to librdkafka only"):
        checked({name: "x"}, "KafkaSink")


def test_values_that_cannot_travel_are_refused() -> None:
    """Callbacks and objects do not reach the executors."""
    with pytest.raises(SettingRefused, match="settings travel"):
        checked({"error_cb": print}, "KafkaSink")


def test_no_password_in_what_is_shown() -> None:
    """Neither in the sink's repr nor in the redacted settings."""
    sink = KafkaSink("t", bootstrap_servers="h:1", producer={"sasl.password": "hunter2"})
    assert "hunter2" not in repr(sink)
    assert redacted((("sasl.password", "hunter2"),)) == {"sasl.password": "***"}
