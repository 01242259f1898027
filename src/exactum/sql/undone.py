"""What to say of a decided epoch of which a part is neither in the table nor waits for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.errors import ExactumError, HeuristicOutcome, SettingRefused
from exactum.protocol.model import Epoch, PreparedTransaction
from exactum.sql.dialect import LEDGER
from exactum.sql.ledger import WHOLE_EPOCH, digest_of
from exactum.sql.plan import Mechanism, WritePlan
from exactum.sql.transaction import SqlTransaction
from exactum.sql.url import server_of


def undone(
    plan: WritePlan, epoch: Epoch, expired: Sequence[PreparedTransaction], gone: str
) -> ExactumError:
    """Somebody undid it, or the sink points elsewhere since.

    Args:
        gone: what is missing of the staged ones, in words.
    """
    each = [(p, SqlTransaction.of(p)) for p in expired]
    staged = [p for p, t in each if t.mechanism is Mechanism.STAGED]
    parts: list[str] = []
    entries: list[tuple[str, str, int]] = []
    if staged:
        parts.append(f"staged rows are gone ({gone}), and nothing of this epoch is in the table")
        entries.append((WHOLE_EPOCH, digest_of(staged), sum(p.rows for p in staged)))
    for p, t in each:
        if t.mechanism is Mechanism.PREPARED:
            parts.append(
                f"the prepared transaction {p.identity} with {p.rows} rows was rolled back"
            )
            entries.append((p.identity, "", p.rows))
    first = each[0][1]
    ledger = first.target.sibling(LEDGER)
    values = ", ".join(
        f"('{plan.scope.text}', {first.batch_id}, '{i}', '{digest}', {first.attempt}, {rows})"
        for i, digest, rows in entries
    )
    by_hand = (
        f"{'; '.join(parts)}. Other sinks may have their part. The decision record has the source "
        f"offsets: load the missing rows into {first.target} by hand, then tell exactum that they "
        f"are there: INSERT INTO {ledger} (scope, batch_id, identity, digest, attempt, row_count) "
        f"VALUES {values}; and start the query again."
    )
    elsewhere = [t.at for _, t in each if server_of(t.at) != server_of(plan.address.where)]
    if elsewhere:
        return SettingRefused(
            "SINK_MOVED",
            f"{epoch} is decided but not finished at {elsewhere[0]}; {plan.shown} does not have "
            "it. If the sink was pointed to another database, point it back and start until this "
            "batch is done, then change it. Only if both are one database by two names, or if the "
            f"former one is lost, somebody undid a part of it: {by_hand}",
        )
    return HeuristicOutcome(
        "SQL_UNDONE",
        f"{epoch} is decided, but somebody undid a part of it at {plan.shown} (it was written at "
        f"{first.at}): {_of_service(first.at)}{by_hand}",
    )


def _of_service(at: str) -> str:
    """A service is called by its name: which server that meant is not on record."""
    if "service=" not in server_of(at):
        return ""
    return (
        "if that service leads to another server since, point it back, and start again until this "
        "batch is done. Else: "
    )
