"""Object stores through obstore: where one is, and what its errors mean. Needs the extra
``exactum[objects]``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from exactum.errors import SettingRefused, Unavailable
from exactum.packages import not_installed

try:
    import obstore as obstore
    import obstore.store
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
except ImportError as _error:
    raise SettingRefused(
        "PACKAGE_MISSING", not_installed("Object stores need", "obstore", "objects")
    ) from _error

STORE_ERRORS = (BaseError, OSError, ValueError)
"""What obstore raises; a missing object is FileNotFoundError."""
CLIENT_SETTINGS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_headers",
        "proxy_url",
        "proxy_ca_certificate",
        "proxy_excludes",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
"""Settings of obstore's HTTP client, which may stand among those of the store."""
FORBIDDEN = (PermissionDeniedError, UnauthenticatedError)
LASTING = (
    "NoSuchBucket", "InvalidBucketName", "ContainerNotFound",
    "AuthorizationHeaderMalformed", "redirect without LOCATION",  # another region
    "builder error",  # http:// without allow_http
)  # fmt: skip
"""What a store or its client says of an address that never works."""


@dataclass(frozen=True)
class ObjectLocation:
    """A prefix in an object store, which is the root of ``store``. Picklable if the store is; shows
    no credentials.
    """

    where: str
    store: Any = field(repr=False, compare=False)

    @staticmethod
    def of(url: str, store: Any) -> ObjectLocation:
        """``store``: None, a mapping of obstore's settings, or an obstore store whose root is the
        prefix.

        Raises:
            SettingRefused: obstore does not take the URL or a setting.
        """
        parts = urlsplit(url)
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        if store is not None and not isinstance(store, Mapping):
            return ObjectLocation(where, store)
        settings = dict(store or {})
        client = {name: settings.pop(name) for name in CLIENT_SETTINGS & settings.keys()}
        if client:
            settings["client_options"] = {**client, **settings.get("client_options", {})}
        try:
            return ObjectLocation(where, obstore.store.from_url(url, **settings))
        except BaseException as error:
            # obstore panics, outside of Exception, on settings that it knows for something else.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise SettingRefused(
                "STORE_ACCESS",
                f"The object store {where} cannot be used: {brief(error)}. Give its URL as "
                "s3://bucket/prefix, gs://bucket/prefix or az://account/container/prefix, and "
                "obstore's settings as store={...}.",
            ) from None


@contextlib.contextmanager
def answering(where: str, trouble: str) -> Iterator[None]:
    """Turns the errors of a store into ``Unavailable``, or ``SettingRefused``."""
    try:
        yield
    except BaseException as error:
        panics = type(error).__name__ == "PanicException"  # obstore, on an address that is none
        if not panics and not isinstance(error, STORE_ERRORS):
            raise
        what = f"The object store {where} {trouble}: {brief(error)}."
        if panics or isinstance(error, FORBIDDEN) or any(word in str(error) for word in LASTING):
            raise SettingRefused(
                "STORE_ACCESS",
                f"{what} Correct the URL and store={{...}}. The credentials need the rights to "
                "put, get, list, copy and delete objects below it.",
            ) from None
        raise Unavailable(
            f"{what} Start the query again when it answers: what is decided is then carried out."
        ) from error


def get(store: Any, path: str) -> bytes | None:
    """The content of an object, None when there is none."""
    try:
        return bytes(obstore.get(store, path).bytes())
    except FileNotFoundError:
        return None


def sizes(store: Any, prefix: str) -> dict[str, Mapping[str, Any]]:
    """Every object below ``prefix/``, by its path below it."""
    found: dict[str, Mapping[str, Any]] = {}
    for chunk in obstore.list(store, prefix, chunk_size=1000):
        for meta in chunk:
            found[str(meta["path"]).removeprefix(f"{prefix}/")] = meta
    return found


def exists(store: Any, path: str) -> bool:
    try:
        obstore.head(store, path)
    except FileNotFoundError:
        return False
    return True


def remove(store: Any, paths: list[str]) -> None:
    """Remove objects. Idempotent: one that is gone is well."""
    if not paths:
        return
    try:
        obstore.delete(store, paths)
    except FileNotFoundError:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(store, path)


def brief(error: BaseException) -> str:
    """The first line of obstore's text; the rest is a dump of the request."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
