"""Messages of Protobuf that two versions of a schema have."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


@cache
def narrow_and_wide() -> tuple[Any, Any]:
    """The same message with fields of 32 bits, and with the fields of 64 bits that a newer
    schema has instead.
    """
    return _class(narrow_or_wide(wide=False)), _class(narrow_or_wide(wide=True))


def narrow_or_wide(*, wide: bool) -> Any:
    """The file of the one or the other."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", package="n", syntax="proto2")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    if wide:
        state.value.add(name="LATE", number=7)
    inner, outer = file.message_type.add(name="In"), file.message_type.add(name="Out")
    kinds = ("INT32", "UINT32", "SINT32") if not wide else ("INT64", "UINT64", "SINT64")
    for number, kind in enumerate(kinds, 1):
        inner.field.add(
            name=f"f{number}", number=number, type=getattr(field, f"TYPE_{kind}"), label=1
        )
    inner.field.add(
        name="many", number=4, type=getattr(field, f"TYPE_{kinds[0]}"), label=3
    ).options.packed = True
    inner.field.add(name="state", number=5, type=field.TYPE_ENUM, type_name=".n.State", label=1)
    inner.field.add(name="states", number=6, type=field.TYPE_ENUM, type_name=".n.State", label=3)
    outer.field.add(name="one", number=1, type=field.TYPE_MESSAGE, type_name=".n.In", label=1)
    outer.field.add(name="at", number=2, type=field.TYPE_INT64, label=1)
    return file


def _class(file: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("n.Out"))
