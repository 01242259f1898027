"""The planted faults, as data. Each breaks what one row of docs/guarantees.md promises.

A fault is a text that stands once in one file, and what takes its place. Where the code moves on,
``tests/house/test_planted_faults.py`` says which fault has to move with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """``row``: the first words of the row of docs/guarantees.md that it breaks. ``file``: below
    src/exactum. ``tests``: what of ``make test`` can see it, cheapest first.
    """

    name: str
    row: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def plant(self, source: str) -> str:
        """The source with the fault in it.

        Raises:
            ValueError: the text does not stand there once.
        """
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: its text stands {source.count(self.old)} times in {self.file}"
            )
        return source.replace(self.old, self.new)


DRIVER = "no row is lost or doubled when the driver dies"
TASK = "no row of a failed, retried or speculative task"
NEWER = "of two drivers on one checkpoint the newer wins"
FROZEN = "a process that was only frozen cannot harm its standby's output"
LATE = "a late task holds no reader back"
POWER = "a power cut takes nothing that a recorded decision needs"
ANOTHER = "a commit cannot hit another transaction"
OTHERS = "nobody else's transactions are touched"
UNKNOWN = "an unknown outcome is never taken for success"
ALL_ROWS = "every row that a task sent is there"
TIMED_OUT = "a decided transaction that timed out is not lost"
ORDER = "order"
FORMER = "what a removed or renamed sink left open is found"
FORK = "a query and its fork do not touch each other's transactions"
OTHER_BATCH = "a decision is never taken for that of another batch"
RECREATED = "a recreated topic is never read as the old one"
GROUP = "a consumer group is never ahead of the sinks"
BAD_RECORD = "no bad record disappears"
AS_IT_WAS = "a row arrives as it was, or is put aside"
NOT_WRITTEN = "no batch counts as done that was not written"
STATE = "state agrees with the output"
LOST_STATE = "where that state is lost, another result is not taken for the batch"
LOST = "a lost decision is not taken for one never made"
OLD_RUN = "an old run cannot decide a batch that is long done"
STORE = "fencing holds in an object store"
METADATA = "a checkpoint with another query's `metadata` is refused"

FAULTS = (
    # ---- protocol ----------------------------------------------------------------------------
    Fault(
        "a start does not redeliver what is decided",
        DRIVER,
        "protocol/coordinator.py",
        "                seen.append(self._redeliver(step.record))\n",
        "                seen.append(step.record)\n",
        ("tests/protocol", "tests/testing/test_simulation.py"),
    ),
    Fault(
        "a batch that stands is written again",
        DRIVER,
        "protocol/resolve.py",
        "        return Stands(standing)\n    attempt",
        "        return Run(standing.attempt + 1)\n    attempt",
        ("tests/protocol", "tests/testing/test_simulation.py"),
    ),
    Fault(
        "the decision is taken before anybody has looked",
        DRIVER,
        "protocol/participants.py",
        "            verified = participant.verify(its) if its else ()\n",
        "            verified = its\n",
        ("tests/protocol", "tests/testing"),
    ),
    Fault(
        "a sink that passes a transaction over is believed",
        DRIVER,
        "protocol/resolve.py",
        "    if sorted(p.identity for p in asked) != sorted(p.identity for p in answered):\n",
        "    if len(answered) > len(asked):\n",
        ("tests/protocol", "tests/testing"),
    ),
    Fault(
        "a start does not close the door",
        NEWER,
        "protocol/coordinator.py",
        "            if self._log.decide(mine) != mine:\n                continue\n",
        "",
        ("tests/protocol", "tests/testing/test_simulation.py"),
    ),
    Fault(
        "a record of another run is taken for our own",
        NEWER,
        "protocol/coordinator.py",
        "        if stands != mine:\n            self._abandon(",
        "        if False:\n            self._abandon(",
        ("tests/protocol", "tests/testing/test_simulation.py"),
    ),
    Fault(
        "a run that was fenced goes on",
        FROZEN,
        "protocol/resolve.py",
        "    return FencedBy(records[attempt]) if len(records) > attempt else Run(attempt)\n",
        "    return Run(max(attempt, len(records)))\n",
        ("tests/protocol", "tests/testing/test_simulation.py"),
    ),
    Fault(
        "a sweep lists after the record",
        NEWER,
        "protocol/coordinator.py",
        "            swept = self._finished.leftovers(sightings, seen)\n",
        "            swept = self._finished.leftovers(self._participants.list_open(), seen)\n",
        ("tests/protocol", "tests/testing/test_simulation.py"),
    ),
    Fault(
        "what a COMMIT names is swept",
        DRIVER,
        "protocol/resolve.py",
        "    return tuple(s for s in sightings if s.identity not in named)\n",
        "    return tuple(sightings)\n",
        ("tests/protocol", "tests/testing"),
    ),
    Fault(
        "an attempt that failed leaves its transactions open",
        TASK,
        "protocol/coordinator.py",
        "            self._abort_own(epoch.batch_id)\n            self._abandoned = epoch.batch_id\n",
        "            self._abandoned = epoch.batch_id\n",
        ("tests/protocol", "tests/testing", "tests/spark/test_exactly_once.py"),
    ),
    Fault(
        "offsets of the record are not compared",
        OTHER_BATCH,
        "protocol/resolve.py",
        "    if record.offsets.contradicts(offsets):\n",
        "    if False:\n",
        ("tests/protocol", "tests/spark/test_older_checkpoint.py"),
    ),
    Fault(
        "a salvage loses rows without a word",
        TIMED_OUT,
        "protocol/participants.py",
        "                if rows_of(copies) != rows_of(transactions):\n",
        "                if not copies:\n",
        ("tests/protocol", "tests/testing"),
    ),
    Fault(
        "the copy of a salvage is committed beside what it replaces",
        TIMED_OUT,
        "protocol/resolve.py",
        "        prepared=kept + tuple(replacements),\n",
        "        prepared=record.prepared + tuple(replacements),\n",
        ("tests/protocol", "tests/testing"),
    ),
    Fault(
        "a commit that no record names is not looked for",
        LOST,
        "protocol/lost_decision.py",
        "    if gone:\n        first = gone[0]\n",
        "    if False:\n        first = gone[0]\n",
        ("tests/protocol", "tests/testing"),
    ),
    Fault(
        "a target above the log is not refused",
        LOST,
        "protocol/lost_decision.py",
        "    if last < batch_id or resolve",
        "    if True or resolve",
        ("tests/protocol", "tests/files/test_file_sink_protocol.py", "tests/sql/test_epochs.py"),
    ),
    Fault(
        "what at most once has begun is begun again",
        NEWER,
        "protocol/at_most_once.py",
        "        if stands != mine:\n            return self._skipped(stands)\n",
        "",
        ("tests/protocol", "tests/testing", "tests/spark/test_at_most_once.py"),
    ),
    Fault(
        "a record replaces the one that stands",
        NEWER,
        "files/decision_log.py",
        "                os.link(temporary, path)\n",
        "                os.replace(temporary, path)\n",
        ("tests/files/test_decision_log.py",),
    ),
    Fault(
        "a record is not durable when it counts",
        POWER,
        "files/decision_log.py",
        "        self._sync_folder(OutcomeUnknown)\n        return super()._standing(name, record)\n",
        "        return super()._standing(name, record)\n",
        ("tests/files/test_decision_log.py", "tests/files/test_network_folder.py"),
    ),
    Fault(
        "the bytes of a record are not fsynced",
        POWER,
        "durable.py",
        "        file.write(content)\n        file.flush()\n        os.fsync(file.fileno())\n",
        "        file.write(content)\n",
        ("tests/files", "tests/spark/test_power_cut.py"),
    ),
    Fault(
        "a pruned slot may be taken again",
        OLD_RUN,
        "files/slot_log.py",
        "        if record.epoch.batch_id < self._floor:\n            if stands == record:\n",
        "        if False:\n            if stands == record:\n",
        ("tests/files/test_decision_log.py", "tests/files/test_object_decision_log.py"),
    ),
    Fault(
        "a pruning raises no floor",
        OLD_RUN,
        "files/slot_log.py",
        '            self._mark(f"floor-{below:020d}")\n',
        "            pass\n",
        ("tests/files/test_decision_log.py",),
    ),
    Fault(
        "a store that takes every put is believed",
        STORE,
        "files/object_decision_log.py",
        "        if sum(created) > 1 or (\n",
        "        if sum(created) > 100 or (\n",
        ("tests/files/test_object_decision_log.py",),
    ),
    Fault(
        "a database that has lost its newest decision decides the next",
        LOST,
        "sql/decision_log.py",
        "            if not stands and batch_id >= self._floor(session, locked=False):\n",
        "            if False:\n",
        ("tests/sql/test_decision_log.py", "tests/sql/postgres/test_failover.py"),
    ),
    # ---- Kafka -------------------------------------------------------------------------------
    Fault(
        "an id is initialised again in the write job that uses it",
        ANOTHER,
        "kafka/producer/producer_pool.py",
        "            if own_id.settled_after < usage.sequence and own_id",
        "            if own_id.settled_after <= usage.sequence and own_id",
        ("tests/kafka/test_producer_pool.py", "tests/kafka/test_contract.py"),
    ),
    Fault(
        "a transaction of another producer epoch is taken for ours",
        ANOTHER,
        "kafka/participant.py",
        "        if found is None or (found.producer_id, found.producer_epoch) != transaction.producer:\n",
        "        if found is None:\n",
        ("tests/kafka/test_participant.py", "tests/kafka/test_contract.py"),
    ),
    Fault(
        "a coordinator that speaks of another epoch is believed",
        UNKNOWN,
        "kafka/outcome.py",
        "    if (description.producer_id, description.producer_epoch) != (producer_id, producer_epoch):\n",
        "    if description.producer_id != producer_id:\n",
        ("tests/kafka/test_outcome.py", "tests/kafka/test_participant.py"),
    ),
    Fault(
        "what nobody can tell is taken for committed",
        UNKNOWN,
        "kafka/outcome.py",
        "    return TransactionOutcome.ABORTED if timed_out else TransactionOutcome.UNKNOWN\n",
        "    return TransactionOutcome.ABORTED if timed_out else TransactionOutcome.COMMITTED\n",
        ("tests/kafka/test_outcome.py", "tests/kafka/test_lost_log.py"),
    ),
    Fault(
        "ids are matched by what they begin with",
        OTHERS,
        "kafka/transactional_id.py",
        "        match = self._pattern().fullmatch(transactional_id)\n",
        "        match = self._pattern().search(transactional_id)\n",
        ("tests/kafka/test_transactional_id.py",),
    ),
    Fault(
        "what the leaders hold is not compared with what was sent",
        ALL_ROWS,
        "kafka/participant.py",
        "        if rows != prepared.rows:\n",
        "        if rows > prepared.rows:\n",
        ("tests/kafka/test_participant.py", "tests/kafka/test_contract.py"),
    ),
    Fault(
        "a task does not wait for the last acknowledgement",
        ALL_ROWS,
        "kafka/writer.py",
        "            producer.flush(DELIVERY_TIMEOUT_MS)\n        except DeliveryError as error:\n            raise write_failure(self._cause(error), self._task, self._factory) from error\n        transaction",
        "            pass\n        except DeliveryError as error:\n            raise write_failure(self._cause(error), self._task, self._factory) from error\n        transaction",
        (
            "tests/kafka/test_writer.py",
            "tests/kafka/test_contract.py",
            "tests/kafka/test_participant.py",
        ),
    ),
    Fault(
        "a transaction with no time left is decided",
        TIMED_OUT,
        "kafka/participant.py",
        "        if found.timeout_ms != NEVER_TIMES_OUT_MS and left_ms < margin_ms:\n",
        "        if False:\n",
        ("tests/kafka/test_participant.py",),
    ),
    Fault(
        "records that the log has lost are salvaged as whole",
        TIMED_OUT,
        "kafka/salvage.py",
        "            if found.count != expected:\n",
        "            if found.count > expected:\n",
        ("tests/kafka/test_lost_log.py", "tests/kafka/test_participant.py"),
    ),
    Fault(
        "a salvage forgets the partition of a record",
        ORDER,
        "kafka/salvage.py",
        "                    partition=partition[1],\n",
        "",
        ("tests/kafka/test_participant.py", "tests/kafka/test_contract.py"),
    ),
    Fault(
        "an abort leaves the producer of a late task its epoch",
        LATE,
        "kafka/participant.py",
        "            answers = self._requests.fence_producers(producers)\n",
        "            answers = {}\n",
        ("tests/kafka/test_participant.py", "tests/kafka/test_contract.py"),
    ),
    Fault(
        "a late task's transaction of the quiet stream is not swept",
        LATE,
        "protocol/coordinator.py",
        "            return self._abort_own(batch_id)\n        finally:\n",
        "            return 0\n        finally:\n",
        ("tests/protocol", "tests/testing", "tests/crash/test_zombie_task.py"),
    ),
    # ---- databases ---------------------------------------------------------------------------
    Fault(
        "a staged epoch is moved without its ledger row",
        DRIVER,
        "sql/ledger.py",
        '        return session.execute(self._sql("enter_ledger"), (self._scope, *astuple(row))) == 1\n',
        "        return True\n",
        ("tests/sql/test_epochs.py", "tests/sql/test_contract.py"),
    ),
    Fault(
        "a held transaction of other rows is committed",
        DRIVER,
        "sql/staged_commit.py",
        "        if held[0] != epoch.digest or not held[1].usable:\n",
        "        if not held[1].usable:\n",
        ("tests/sql/test_epochs.py", "tests/sql/test_contract.py", "tests/sql/test_rivals.py"),
    ),
    Fault(
        "staged rows that are gone count as moved",
        DRIVER,
        "sql/staged_commit.py",
        "        return all(there.get(part, 0) == rows for part, rows in parts)\n",
        "        return True\n",
        ("tests/sql/test_epochs.py", "tests/sql/test_contract.py", "tests/sql/test_rivals.py"),
    ),
    Fault(
        "rows of a later task of one key come first",
        ORDER,
        "sql/postgres/move.py",
        'f"{by}{ROW} DESC"',
        'f"{by}{ROW} ASC"',
        ("tests/sql/postgres/test_upsert.py", "tests/sql/test_upsert.py"),
    ),
    # ---- files -------------------------------------------------------------------------------
    Fault(
        "an epoch is not marked",
        DRIVER,
        "files/participant.py",
        "            self._place.mark(permit.record.epoch.batch_id, _mark_text(permit, prepared))\n",
        "",
        ("tests/files/test_file_sink_contract.py", "tests/files/test_file_sink_protocol.py"),
    ),
    Fault(
        "stagings are removed before the mark",
        DRIVER,
        "files/participant.py",
        "        expired = tuple(p for p in prepared if p not in committed)\n",
        "        expired = tuple(p for p in prepared if p not in committed)\n"
        "        self._each(self._place.discard, [FileTransaction.of(p).staging for p in committed])\n",
        ("tests/files/test_file_sink_contract.py", "tests/files/test_file_sink_protocol.py"),
    ),
    Fault(
        "a file that is cut off is published",
        ALL_ROWS,
        "files/participant.py",
        "        wrong = [n for n, size in sizes_of(files or ()).items() if sizes.get(n) != size]\n",
        "        wrong = [n for n, size in sizes_of(files or ()).items() if n not in sizes]\n",
        ("tests/files/test_file_sink_protocol.py", "tests/files/test_file_sink_contract.py"),
    ),
    Fault(
        "what a crash has left sent is sent from the first chunk",
        DRIVER,
        "custom/write_ahead_participant.py",
        "        first = self._log.acknowledged(identity)\n",
        "        first = 0\n",
        ("tests/custom/test_write_ahead.py",),
    ),
    Fault(
        "a sender that was taken over goes on",
        FROZEN,
        "custom/write_ahead_participant.py",
        "            if self._log.is_taken_over(identity, claim):\n",
        "            if False:\n",
        ("tests/custom/test_write_ahead.py",),
    ),
    Fault(
        "a failed commit of the user's target counts as done",
        UNKNOWN,
        "custom/two_phase_participant.py",
        "            except TransactionLost as error:\n                self._lost[p.identity] = str(error)\n                expired.append(p)\n            except ExactumError:\n                raise\n",
        "            except TransactionLost as error:\n                self._lost[p.identity] = str(error)\n                expired.append(p)\n            except ConnectionError:\n                committed.append(p)\n            except ExactumError:\n                raise\n",
        ("tests/custom/test_two_phase.py",),
    ),
    # ---- Spark -------------------------------------------------------------------------------
    Fault(
        "a task that failed leaves its transaction prepared",
        TASK,
        "spark/write/write_task.py",
        "            raise TaskFailed.of(error, task, abort(writers), code=code) from error\n",
        "            raise TaskFailed.of(error, task, code=code) from error\n",
        ("tests/spark/test_write_task.py",),
    ),
    Fault(
        "a second try writes under at most once",
        TASK,
        "spark/write/write_task.py",
        "        if order.run.guarantee is Guarantee.AT_MOST_ONCE and not task.first_try:\n",
        "        if False:\n",
        ("tests/spark/test_write_task.py", "tests/spark/test_at_most_once.py"),
    ),
    Fault(
        "rows that a sink refuses are dropped",
        AS_IT_WAS,
        "spark/write/write_task.py",
        "                        if rejection is not None and rejection.reasons:\n",
        "                        if rejection is not None and len(rejection.reasons) > 10_000:\n",
        ("tests/spark/test_write_task.py", "tests/spark/test_dead_letter.py"),
    ),
    Fault(
        "another result is taken for the batch that stands",
        LOST_STATE,
        "spark/run/standing_epoch.py",
        "        if now == written:\n",
        "        if True:\n",
        ("tests/spark/test_recomputed_epoch.py",),
    ),
    Fault(
        "state of another try is taken for that of the batch",
        STATE,
        "spark/run/standing_epoch.py",
        "        if states:\n            self._earlier_attempts.unload(",
        "        if False:\n            self._earlier_attempts.unload(",
        (
            "tests/spark/test_void_attempts.py",
            "tests/spark/test_standing_epoch.py",
            "tests/spark/test_unsteady_queries.py",
        ),
    ),
    Fault(
        "a bad record is taken for none",
        BAD_RECORD,
        "spark/decoding/decode_task.py",
        "        if reasons and self.fail:\n",
        "        if reasons and self.fail and len(reasons) > 10_000:\n",
        ("tests/decoding/test_policies.py",),
    ),
    Fault(
        "a group is committed before the batch stands",
        GROUP,
        "spark/source/group_offsets.py",
        "        if batch.first:\n            self._find_groups()\n            self._refuse_shared(batch)\n",
        "        if batch.first:\n            self._find_groups()\n            self._refuse_shared(batch)\n        self._put(batch)\n",
        ("tests/source/test_group.py",),
    ),
    Fault(
        "a fork goes on under the query's own id",
        FORK,
        "checkpoint/savepoint/rebuilt.py",
        '            write_durably(built / "metadata", json.dumps({"id": fork_id}).encode())\n',
        '            write_durably(built / "metadata", json.dumps({"id": manifest.query_id}).encode())\n',
        ("tests/savepoint/test_savepoint.py",),
    ),
    Fault(
        "another query's checkpoint is taken",
        METADATA,
        "checkpoint/run_file.py",
        "        if run.query_id != query_id:\n",
        "        if False:\n",
        ("tests/spark/test_refusals.py",),
    ),
    Fault(
        "a recreated topic is read as the old one",
        RECREATED,
        "spark/source/watched_source.py",
        "            if now is not None and _is_another(known, now):\n",
        "            if False:\n",
        ("tests/source/test_topics.py",),
    ),
    Fault(
        "what a removed sink left open is not swept",
        FORMER,
        "spark/run/former_sinks.py",
        "                self._reached.append((former, _Reached(participant)))\n",
        "                pass\n",
        ("tests/spark/test_former_sinks.py",),
    ),
    Fault(
        "a frame of another batch is taken for this one",
        NOT_WRITTEN,
        "spark/foreach_batch.py",
        "            query.refuse_other_batch(frame, batch_id)\n",
        "",
        ("tests/spark/test_misuse.py",),
    ),
    Fault(
        "finish does not see that a target has gone back",
        LOST,
        "ops/transactions/settlement.py",
        "    if text := loss_of(",
        '    if text := (lambda *_: "")(',
        ("tests/transactions",),
    ),
    Fault(
        "what is decided may be aborted by hand",
        DRIVER,
        "ops/transactions/settlement.py",
        "                _refuse_decided(wanted, log, first_unfinished(place))\n",
        "                pass\n",
        ("tests/transactions",),
    ),
    Fault(
        "verify does not see records that no decision names",
        DRIVER,
        "ops/verify/kafka_evidence.py",
        "        if stray and evidence:\n",
        "        if stray > 1_000_000 and evidence:\n",
        ("tests/verify/test_kafka_evidence.py",),
    ),
    Fault(
        "a query in doubt is called down",
        DRIVER,
        "monitor/verdict.py",
        "    for rule in (_in_doubt, _down,",
        "    for rule in (_down, _in_doubt,",
        ("tests/monitor/test_verdict.py", "tests/monitor/test_status.py"),
    ),
    Fault(
        "a fenced driver is started again by the supervisor",
        NEWER,
        "ops/run/ending.py",
        "HALTING = (Disposition.FENCED, Disposition.HALT)\n",
        "HALTING = (Disposition.HALT,)\n",
        ("tests/run/test_ending.py",),
    ),
    Fault(
        "a savepoint is made while an epoch is in doubt",
        FORK,
        "checkpoint/savepoint/create.py",
        "    if decided > batch_id:\n",
        "    if False:\n",
        ("tests/savepoint",),
    ),
    Fault(
        "text that is no UTF-8 passes for text",
        AS_IT_WAS,
        "values/utf8.py",
        "    except UnicodeDecodeError:\n        return False\n",
        "    except UnicodeDecodeError:\n        return True\n",
        ("tests/values", "tests/kafka/test_odd_rows.py", "tests/abuse/test_kafka_rows.py"),
    ),
    Fault(
        "JSON is not looked at a second time",
        BAD_RECORD,
        "formats/json_format.py",
        "            except BadRecord as error:\n                wrong[row] = reason_of(error)\n",
        "            except BadRecord:\n                pass\n",
        ("tests/decoding/test_formats.py",),
    ),
)
