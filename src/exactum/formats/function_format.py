"""``Function(f, returns)``: a format of your own, as a Python function from bytes to a value."""

from __future__ import annotations

import datetime
import errno
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError  # another one before Python 3.11
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as fields_of
from decimal import Decimal
from functools import partial
from http.client import BadStatusLine, HTTPException, IncompleteRead
from socket import gaierror
from ssl import SSLError
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from uuid import UUID

import msgspec

from exactum.errors import SettingRefused, Unavailable
from exactum.formats import exact
from exactum.formats.checked_type import checked_type
from exactum.formats.format import BadRecord, Bound, Reader, arrow_type, spark_type

if TYPE_CHECKING:
    import pyarrow as pa

_UNREACHABLE = frozenset(
    {
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.EHOSTDOWN,
        errno.ETIMEDOUT,
    }
)
_KEPT = (
    *(bytes, bytearray, memoryview, Decimal, UUID),
    *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta),
)
"""What msgspec leaves as it is, where it would make a text of it."""
_PLAIN = frozenset({bool, int, float, str, bytes, type(None), Decimal, datetime.datetime})
_OF_A_NETWORK = (
    *(ConnectionError, TimeoutError, FutureTimeoutError, gaierror, URLError),
    *(BadStatusLine, IncompleteRead, SSLError),
)
_CAUSES_MAX = 10
_LATER = (408, 425, 429)
_SERVER_ERRORS = 500
"""Of HTTP: Request Timeout, Too Early, Too Many Requests; and all that a server says of itself (RFC
9110).
"""


@dataclass(frozen=True)
class Function:
    """Decode by ``f``: the bytes of one record in, a value of the type ``returns`` out.

    Args:
        f: called in the tasks, once for each record that is not null; must give the same for the
            same bytes. An exception makes the record bad, with the exception as the reason; but a
            ``ConnectionError``, a ``TimeoutError``, another error of a network that gives no answer
            (``URLError``, ``gaierror``, that of ``requests``) or an error of ``exactum.errors``
            fails the task: that nobody answered is no property of a record. A
            struct is returned as a dictionary, a dataclass or an object of msgspec, an array as a
            list, a tuple or a set, a map as a dictionary, times as ``datetime``, decimals as
            ``Decimal``.
        returns: Spark's type, or its DDL: ``"bigint"``, ``"id bigint not null, tags
            array<string>"``. A value of another type, a null where none may be and a number that
            the column does not have make the record bad. An ``int`` may stand for a float, a double
            or a decimal that is the same number; a ``float`` for the nearest one of a float column.
    """

    f: Callable[[bytes], Any]
    returns: Any

    def bind(self) -> Bound:
        """See ``Format.bind``."""
        where = f"Function({getattr(self.f, '__name__', 'f')})"
        if not callable(self.f):
            raise SettingRefused(
                "DECODE_ARGUMENT",
                f"{where}: the first argument must be a function from bytes to a value.",
            )
        kind = spark_type(self.returns, where)
        return Bound(kind, partial(_reader, self.f, arrow_type(kind, where)))


def _reader(f: Callable[[bytes], Any], checked: pa.DataType) -> Reader:
    shape = checked_type(checked, of_json=False) | None
    fit = exact.fitter(checked, exact.python_values)

    def read(data: bytes) -> Any:
        try:
            value = f(data)
        except Exception as error:
            if not _got_no_answer(error):
                raise
            raise Unavailable(
                f"The function {getattr(f, '__name__', 'f')}, which decodes, got no answer from "
                f"what it asks ({type(error).__name__}: {error}). No record is taken for a bad "
                "one, and nothing of the epoch is visible; start the query again."
            ) from error
        made = _checked(value, shape)
        return made if fit is None else fit(made)

    return read


def _checked(value: Any, shape: Any) -> Any:
    try:
        plain = msgspec.to_builtins(_attributes(value), builtin_types=_KEPT, enc_hook=_own_kind)
        return msgspec.convert(plain, shape, builtin_types=_KEPT)
    except msgspec.ValidationError as error:
        raise BadRecord(f"its value does not fit: {error}") from None


def _attributes(value: Any) -> Any:
    """The attributes of msgspec's objects, and not what these are when they are encoded: under
    other names, without defaults.
    """
    if type(value) in _PLAIN:  # nearly all: each value of each record is looked at
        return value
    if isinstance(value, msgspec.Struct):
        kind = value.__struct_config__
        made = {} if kind.tag is None else {kind.tag_field: kind.tag}
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return made | {n: _attributes(each) for n, each in fields if each is not msgspec.UNSET}
    if isinstance(value, dict):
        return {key: _attributes(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_attributes(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _attributes(getattr(value, each.name)) for each in fields_of(value)}
    return value


def _own_kind(value: Any) -> float:
    """What msgspec does not know: a float of numpy is one."""
    if isinstance(value, float):
        return float(value)
    raise BadRecord(f"its value has a {type(value).__name__}, which no column takes")


def _got_no_answer(error: BaseException | None) -> bool:
    """Whether a network, and no record, is to blame. A client's own error may be around its."""
    # What another error was met by, and not caused by, may have been answered in another way.
    is_of_client = isinstance(error, OSError | HTTPException | FutureTimeoutError)
    for _ in range(_CAUSES_MAX):
        of_requests = getattr(getattr(error, "response", None), "status_code", None)
        status = error.code if isinstance(error, HTTPError) else of_requests
        if isinstance(status, int):  # an answer, but for those that say: later
            return status in _LATER or status >= _SERVER_ERRORS
        if isinstance(error, _OF_A_NETWORK) or getattr(error, "errno", None) in _UNREACHABLE:
            return True
        if error is None:
            return False
        error = error.__cause__ or (error.__context__ if is_of_client else None)
    return False
