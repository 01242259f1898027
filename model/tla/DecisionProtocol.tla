---------------------------- MODULE DecisionProtocol ----------------------------
(* The decision protocol of exactum: fencing, attempts, presumed abort, redelivery, sweep, salvage, pruning.

   Several drivers (incarnations) run on one checkpoint. Each may stop between any two of its steps for any time: a
   driver that never goes on has crashed, one that goes on late is a zombie. Each step is one call of a port (decision
   log, participant, Spark's own logs) of src/exactum/protocol/coordinator.py; model/README.md says which one.

   A batch has Parts transactions, one for each participant. A transaction that is not settled may expire at any time.
   `Mutation` breaks the protocol on purpose in one place; "none" is the protocol. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Drivers,    \* a set of model values
    Last,       \* a driver that starts when all others have come to rest and is never interrupted; else no driver at all
    Batches,    \* batches 0 .. Batches-1 are run; a start may set its fence at batch number `Batches`
    Parts,      \* transactions of a batch
    Expiries,   \* how many transactions may expire
    Prunes,     \* TRUE: each driver forgets the records below a batch after it
    Loses,      \* TRUE: rows of expired transactions may be gone, so that nobody can salvage them
    Crashes,    \* TRUE: a crash is a step. For safety it need not be one: it is a driver that takes no more steps.
    Nobody,     \* a model value
    Mutation

VARIABLES
    log,        \* batch -> its records, slot by slot
    floor,      \* batches below it are pruned
    spark,      \* how many batches are in Spark's commit log
    txn,        \* transaction -> its state at the target, its batch and its part
    expired,    \* how many expired
    dr,         \* driver -> what it has in memory
    made,       \* every record ever made, pruned or not
    keeper,     \* who fenced last
    intruder    \* TRUE: somebody decided behind the fence of another

vars == <<log, floor, spark, txn, expired, dr, made, keeper, intruder>>

-----------------------------------------------------------------------------
TxnsMax == Batches * Parts + Expiries
TxnIds == Drivers \X (1 .. TxnsMax)
BatchIds == 0 .. Batches
NoRecord == [kind |-> "none", a |-> 0, by |-> Nobody, txns |-> {}, sup |-> 0]

(* What a driver has in memory. `at`: the batch that Spark asks for; `fence`: <<batch, slot>>, while it starts the batch
   it looks at; `slot`: where its next record goes; `seen`: what it saw open; `rec`: the COMMIT it carries out; `left`:
   the transactions of it that are still to be committed; `gone`: those that were found expired; `mine`: what it
   prepared and has not recorded; `back`: what follows the commit. *)
Fresh == [pc |-> "off", at |-> 0, fence |-> <<0, 0>>, slot |-> 0, seen |-> {}, rec |-> NoRecord, left |-> {},
          gone |-> {}, mine |-> {}, back |-> "none"]

Ends == {"done", "stopped", "fenced", "refused", "reported", "broken", "dead"}
Ended(d, how) == [Fresh EXCEPT !.pc = how, !.at = dr[d].at]

Unsettled == {t \in TxnIds : txn[t].st = "prepared"}
Own(d) == {t \in TxnIds : t[1] = d}
Used(d) == Cardinality({t \in Own(d) : txn[t].st # "none"})
Commits(b) == {i \in 1 .. Len(log[b]) : log[b][i].kind = "commit"}
Standing(b) == log[b][CHOOSE i \in Commits(b) : \A j \in Commits(b) : j <= i]
Named(b) == UNION {log[b][i].txns : i \in Commits(b)}
Free(b, slot) == Len(log[b]) < slot
Pruned(b) == b < floor
IsUnsettled(t) == txn[t].st = "prepared"
Become(d, r) == dr' = [dr EXCEPT ![d] = r]
Broken(m) == Mutation = m

Put(b, slot, r) ==
    /\ log' = [log EXCEPT ![b] = IF Free(b, slot) THEN Append(@, r) ELSE [@ EXCEPT ![slot] = r]]
    /\ made' = made \union {[b |-> b, a |-> r.a, kind |-> r.kind, by |-> r.by, txns |-> r.txns, sup |-> r.sup]}
Record(d, kind, slot, txns, sup) == [kind |-> kind, a |-> slot, by |-> d, txns |-> txns, sup |-> sup]
Creates(b, slot) == Free(b, slot) \/ Broken("overwrite")

Init ==
    /\ log = [b \in BatchIds |-> <<>>]
    /\ floor = 0
    /\ spark = 0
    /\ txn = [t \in TxnIds |-> [st |-> "none", b |-> 0, p |-> 0]]
    /\ expired = 0
    /\ dr = [d \in Drivers |-> Fresh]
    /\ made = {}
    /\ keeper = Nobody
    /\ intruder = FALSE

-----------------------------------------------------------------------------
(* Start: list what is open, redeliver what is decided, set the fence, sweep what was listed. *)

Restart(d) ==
    /\ dr[d].pc = "off"
    /\ d = Last => \A e \in Drivers \ {d} : dr[e].pc \in Ends
    /\ Become(d, [dr[d] EXCEPT !.pc = "list", !.at = spark, !.fence = <<spark, 0>>])
    /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

ListAtStart(d) ==
    /\ dr[d].pc = "list"
    /\ Become(d, [dr[d] EXCEPT !.pc = "read", !.seen = Unsettled])
    /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

ReadAtStart(d) ==
    LET r == dr[d]
        b == r.fence[1]
        rest == r.seen \ Named(b)
    IN  /\ r.pc = "read"
        /\ Become(d,
             IF Pruned(b) THEN Ended(d, "refused")
             ELSE IF Commits(b) # {} THEN
                IF Broken("no_redelivery")
                THEN [r EXCEPT !.fence = <<b + 1, 0>>, !.seen = rest]
                ELSE [r EXCEPT !.pc = "commit", !.rec = Standing(b), !.left = Standing(b).txns, !.back = "start",
                               !.seen = rest]
             ELSE IF Broken("no_fence") THEN [r EXCEPT !.pc = "sweep", !.fence = <<b, Len(log[b])>>, !.seen = rest]
             ELSE IF Broken("sweep_before_fence") THEN [r EXCEPT !.pc = "sweep first", !.seen = rest]
             ELSE [r EXCEPT !.pc = "close", !.slot = Len(log[b]) + 1, !.seen = rest])
        /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

CloseDoor(d) ==
    LET r == dr[d]
        b == r.fence[1]
    IN  /\ r.pc = "close"
        /\ IF Pruned(b) THEN Become(d, Ended(d, "fenced")) /\ UNCHANGED <<log, made, keeper>>
           ELSE IF Creates(b, r.slot) THEN
                /\ Put(b, r.slot, Record(d, "abort", r.slot, {}, 0))
                /\ keeper' = d
                /\ Become(d, [r EXCEPT !.pc = IF Broken("list_after_fence") THEN "list again" ELSE "sweep",
                                       !.fence = <<b, r.slot>>, !.slot = 0])
           ELSE Become(d, [r EXCEPT !.pc = "read", !.slot = 0]) /\ UNCHANGED <<log, made, keeper>>
        /\ UNCHANGED <<floor, spark, txn, expired, intruder>>

(* One transaction at a time; what was settled meanwhile is left alone. *)
Sweep(d, pc, todo, next) ==
    /\ dr[d].pc = pc
    /\ \/ /\ todo = {}
          /\ Become(d, next)
          /\ UNCHANGED txn
       \/ \E t \in todo :
            /\ txn' = [txn EXCEPT ![t].st = IF pc = "sweep" /\ Broken("presumed_commit") THEN "committed" ELSE "aborted"]
            /\ Become(d, [dr[d] EXCEPT !.seen = @ \ {t}, !.mine = @ \ {t}])
    /\ UNCHANGED <<log, floor, spark, expired, made, keeper, intruder>>

SweepAtStart(d) ==
    Sweep(d, "sweep", {t \in dr[d].seen : IsUnsettled(t)}, [dr[d] EXCEPT !.pc = "ask", !.seen = {}])

ListAgain(d) ==  \* the mutation "list_after_fence"
    /\ dr[d].pc = "list again"
    /\ Become(d, [dr[d] EXCEPT !.pc = "sweep", !.seen = Unsettled \ Named(dr[d].fence[1])])
    /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

SweepFirst(d) ==  \* the mutation "sweep_before_fence"
    Sweep(d, "sweep first", {t \in dr[d].seen : IsUnsettled(t)},
          [dr[d] EXCEPT !.pc = "close", !.slot = Len(log[dr[d].fence[1]]) + 1, !.seen = {}])

-----------------------------------------------------------------------------
(* One batch: ask the log, write, verify, list what else is open, decide. *)

Ask(d) ==
    LET r == dr[d]
        slot == IF Broken("step_over") THEN Len(log[r.at]) + 1 ELSE IF r.at = r.fence[1] THEN r.fence[2] + 1 ELSE 1
        answered == [r EXCEPT !.pc = IF Prunes THEN "prune" ELSE "spark"]
    IN  /\ r.pc = "ask"
        /\ Become(d,
             IF r.at >= Batches THEN Ended(d, "done")
             ELSE IF Pruned(r.at) THEN Ended(d, "refused")
             ELSE IF r.at < r.fence[1] THEN IF Commits(r.at) = {} THEN Ended(d, "broken") ELSE answered
             ELSE IF Broken("step_over") /\ Commits(r.at) # {} THEN answered
             ELSE IF Free(r.at, slot) THEN [r EXCEPT !.pc = "write", !.slot = slot]
             ELSE Ended(d, "fenced"))
        /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

Write(d) ==
    LET r == dr[d]
        new == {<<d, Used(d) + p>> : p \in 1 .. Parts}
    IN  /\ r.pc = "write"
        /\ IF Used(d) + Parts > TxnsMax THEN Become(d, Ended(d, "dead")) /\ UNCHANGED txn
           ELSE /\ txn' = [t \in TxnIds |-> IF t \in new THEN [st |-> "prepared", b |-> r.at, p |-> t[2] - Used(d)]
                                            ELSE txn[t]]
                /\ Become(d, [r EXCEPT !.pc = "verify", !.mine = new])
        /\ UNCHANGED <<log, floor, spark, expired, made, keeper, intruder>>

(* A writer initialises its transactional ids for the next epoch: that aborts whatever they have open. *)
InitIds(d) ==
    /\ dr[d].pc \in {"decide", "commit"}
    /\ Broken("init_before_settled") \/ Own(d) \intersect Unsettled = {}
    /\ txn' = [t \in TxnIds |-> IF t \in Own(d) \intersect Unsettled THEN [txn[t] EXCEPT !.st = "aborted"] ELSE txn[t]]
    /\ UNCHANGED <<log, floor, spark, expired, dr, made, keeper, intruder>>

Verify(d) ==
    /\ dr[d].pc = "verify"
    /\ Become(d, [dr[d] EXCEPT !.pc = IF \A t \in dr[d].mine : IsUnsettled(t) THEN "look" ELSE "abandon"])
    /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

Look(d) ==
    /\ dr[d].pc = "look"
    /\ Become(d, [dr[d] EXCEPT !.pc = IF Broken("commit_first") THEN "commit first" ELSE "decide",
                               !.seen = Unsettled \ dr[d].mine])
    /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

CommitFirst(d) ==  \* the mutation "commit_first"
    /\ dr[d].pc = "commit first"
    /\ txn' = [t \in TxnIds |-> IF t \in dr[d].mine /\ IsUnsettled(t) THEN [txn[t] EXCEPT !.st = "committed"]
                                ELSE txn[t]]
    /\ Become(d, [dr[d] EXCEPT !.pc = "decide"])
    /\ UNCHANGED <<log, floor, spark, expired, made, keeper, intruder>>

CarryOut(r, record, back) ==
    [r EXCEPT !.pc = "commit", !.rec = record, !.left = record.txns, !.gone = {}, !.mine = {}, !.slot = 0,
              !.back = back]

(* The commit point. `lost`: the reply does not arrive, so the driver knows nothing, undoes nothing, and stops. *)
Decide(d, lost) ==
    LET r == dr[d]
        mine == Record(d, "commit", r.slot, r.mine, 0)
        decided == IF Broken("return_early") THEN [r EXCEPT !.pc = "spark", !.mine = {}, !.seen = {}]
                   ELSE CarryOut(r, mine, "attempt")
        unknown == IF Broken("undo_unknown") THEN [r EXCEPT !.pc = "abandon"] ELSE Ended(d, "stopped")
    IN  /\ r.pc = "decide"
        /\ IF ~Pruned(r.at) /\ Creates(r.at, r.slot) THEN
                /\ Put(r.at, r.slot, mine)
                /\ intruder' = (intruder \/ keeper # d)
                /\ Become(d, IF lost THEN unknown ELSE decided)
           ELSE /\ Become(d, IF lost THEN unknown
                             ELSE IF Broken("any_record") /\ ~Pruned(r.at) THEN CarryOut(r, mine, "attempt")
                             ELSE [r EXCEPT !.pc = "abandon"])
                /\ UNCHANGED <<log, made, intruder>>
        /\ UNCHANGED <<floor, spark, txn, expired, keeper>>

(* Undecided: abort all that is open and ours, then stop. *)
Abandon(d) == Sweep(d, "abandon", Own(d) \intersect Unsettled, Ended(d, "stopped"))

-----------------------------------------------------------------------------
(* Carrying a recorded COMMIT out, and salvage. *)

Committed(d, r) ==
    IF r.left # {} THEN r
    ELSE IF r.gone # {} THEN [r EXCEPT !.pc = "salvage"]
    ELSE IF r.back = "start"
         THEN [r EXCEPT !.pc = "read", !.fence = <<r.fence[1] + 1, 0>>, !.rec = NoRecord, !.back = "none",
                        !.seen = @ \ r.rec.txns]
         ELSE [r EXCEPT !.pc = "sweep after", !.rec = NoRecord, !.back = "none", !.seen = @ \ r.rec.txns]

Commit(d) ==
    /\ dr[d].pc = "commit"
    /\ \E t \in dr[d].left :
        LET r == [dr[d] EXCEPT !.left = @ \ {t}]
            undone == txn[t].st \in {"expired", "aborted"} /\ ~Broken("expired_is_done")
        IN  /\ txn' = [txn EXCEPT ![t].st = IF @ = "prepared" THEN "committed" ELSE @]
            /\ Become(d, Committed(d, IF undone THEN [r EXCEPT !.gone = @ \union {t}] ELSE r))
    /\ UNCHANGED <<log, floor, spark, expired, made, keeper, intruder>>

Batch(r) == IF r.back = "start" THEN r.fence[1] ELSE r.at

Salvage(d) ==
    LET r == dr[d]
        nth(t) == Cardinality({g \in r.gone : txn[g].p <= txn[t].p})
        copy(t) == <<d, Used(d) + nth(t)>>
        copies == {copy(t) : t \in r.gone}
        whole == (r.rec.txns \ r.gone) \union copies
    IN  /\ r.pc = "salvage"
        /\ \/ /\ Used(d) + Cardinality(r.gone) > TxnsMax
              /\ Become(d, Ended(d, "dead"))
              /\ UNCHANGED txn
           \/ /\ Used(d) + Cardinality(r.gone) <= TxnsMax
              /\ txn' = [t \in TxnIds |->
                            IF t \in copies
                            THEN LET g == CHOOSE g \in r.gone : copy(g) = t
                                 IN [st |-> "prepared", b |-> txn[g].b, p |-> txn[g].p]
                            ELSE txn[t]]
              /\ Become(d, IF Broken("salvage_unrecorded")
                           THEN [r EXCEPT !.pc = "commit", !.rec.txns = whole, !.left = whole, !.gone = {}]
                           ELSE [r EXCEPT !.pc = "supersede", !.mine = copies])
        /\ UNCHANGED <<log, floor, spark, expired, made, keeper, intruder>>

(* The rows are gone: nobody can salvage them, and the driver says so. *)
Report(d) ==
    /\ Loses
    /\ dr[d].pc = "salvage"
    /\ Become(d, Ended(d, "reported"))
    /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

Supersede(d) ==
    LET r == dr[d]
        b == Batch(r)
        slot == r.rec.a + 1
        mine == Record(d, "commit", slot, (r.rec.txns \ r.gone) \union r.mine,
                       IF Broken("salvage_as_new") THEN 0 ELSE r.rec.a)
    IN  /\ r.pc = "supersede"
        /\ IF Pruned(b) THEN Become(d, [r EXCEPT !.pc = "abandon"]) /\ UNCHANGED <<log, made>>
           ELSE IF Creates(b, slot) THEN Put(b, slot, mine) /\ Become(d, CarryOut(r, mine, r.back))
           ELSE LET stands == log[b][slot]
                IN  /\ Become(d, IF stands.kind = "commit" /\ stands.sup = r.rec.a
                                 THEN [r EXCEPT !.pc = "drop", !.rec = stands]
                                 ELSE [r EXCEPT !.pc = "abandon"])
                    /\ UNCHANGED <<log, made>>
        /\ UNCHANGED <<floor, spark, txn, expired, keeper, intruder>>

(* Another driver's salvage stands: abort our copies, then carry its record out. *)
Drop(d) == Sweep(d, "drop", {t \in dr[d].mine : IsUnsettled(t)}, CarryOut(dr[d], dr[d].rec, dr[d].back))

-----------------------------------------------------------------------------
(* After the commit. *)

SweepAfter(d) ==
    Sweep(d, "sweep after",
          {t \in (IF Broken("list_after_record") THEN Unsettled ELSE dr[d].seen) : IsUnsettled(t)},
          [dr[d] EXCEPT !.pc = IF Prunes THEN "prune" ELSE "spark", !.seen = {}])

Prune(d) ==
    LET below == IF Broken("prune_early") THEN dr[d].at + 1 ELSE dr[d].at
    IN  /\ dr[d].pc = "prune"
        /\ floor' = IF Broken("no_floor") \/ floor >= below THEN floor ELSE below
        /\ log' = [b \in BatchIds |-> IF b < below THEN <<>> ELSE log[b]]
        /\ Become(d, [dr[d] EXCEPT !.pc = "spark"])
        /\ UNCHANGED <<spark, txn, expired, made, keeper, intruder>>

(* Spark's commit log is create-if-absent too: the loser stops. *)
SparkCommits(d) ==
    /\ dr[d].pc = "spark"
    /\ IF spark > dr[d].at THEN Become(d, Ended(d, "stopped")) /\ UNCHANGED spark
       ELSE /\ spark' = dr[d].at + 1
            /\ Become(d, [dr[d] EXCEPT !.pc = "ask", !.at = @ + 1, !.slot = 0])
    /\ UNCHANGED <<log, floor, txn, expired, made, keeper, intruder>>

-----------------------------------------------------------------------------
(* The world. *)

Expire ==
    /\ expired < Expiries
    /\ Last \in Drivers => dr[Last].pc = "off"
    /\ \E t \in Unsettled : txn' = [txn EXCEPT ![t].st = "expired"]
    /\ expired' = expired + 1
    /\ UNCHANGED <<log, floor, spark, dr, made, keeper, intruder>>

Crash(d) ==
    /\ Crashes
    /\ d # Last
    /\ dr[d].pc \notin Ends
    /\ Become(d, Ended(d, "dead"))
    /\ UNCHANGED <<log, floor, spark, txn, expired, made, keeper, intruder>>

Step(d) ==
    \/ Restart(d) \/ ListAtStart(d) \/ ReadAtStart(d) \/ CloseDoor(d) \/ SweepAtStart(d)
    \/ ListAgain(d) \/ SweepFirst(d)
    \/ Ask(d) \/ Write(d) \/ Verify(d) \/ Look(d) \/ CommitFirst(d) \/ Decide(d, FALSE) \/ Abandon(d)
    \/ Commit(d) \/ Salvage(d) \/ Supersede(d) \/ Drop(d) \/ SweepAfter(d) \/ Prune(d) \/ SparkCommits(d)

Disturbance(d) == (d # Last /\ Decide(d, TRUE)) \/ Report(d) \/ Crash(d) \/ InitIds(d)

Next == Expire \/ \E d \in Drivers : Step(d) \/ Disturbance(d)

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ \A d \in Drivers : WF_vars(Step(d))

-----------------------------------------------------------------------------
(* What is promised. *)

Visible == {t \in TxnIds : txn[t].st = "committed"}
CommitsMade(b) == {r \in made : r.b = b /\ r.kind = "commit"}
IsVisible(b) == \A p \in 1 .. Parts : \E t \in Visible : txn[t].b = b /\ txn[t].p = p
Works == 0 .. (Batches - 1)

TypeOK ==
    /\ floor \in BatchIds /\ spark \in BatchIds /\ expired \in 0 .. Expiries
    /\ \A t \in TxnIds : txn[t].st \in {"none", "prepared", "committed", "aborted", "expired"}
    /\ \A d \in Drivers : dr[d].seen \subseteq TxnIds /\ dr[d].left \subseteq dr[d].rec.txns

NothingUndecidedVisible == \A t \in Visible : \E r \in made : r.kind = "commit" /\ t \in r.txns
DecidedNeverAborted == \A r \in made : \A t \in r.txns : txn[t].st # "aborted"
NoRowTwice == \A s, t \in Visible : txn[s].b = txn[t].b /\ txn[s].p = txn[t].p => s = t
OneCommitInForce ==
    \A b \in Works : \A r, s \in CommitsMade(b) : r.sup = s.sup => r = s
EverySupersedingCommitFollowsOne ==
    \A r \in made : r.sup # 0 => \E s \in made : s.b = r.b /\ s.kind = "commit" /\ s.a = r.sup /\ r.a = s.a + 1
NoSlotTwice == \A r, s \in made : r.b = s.b /\ r.a = s.a => r = s
FencedNeverDecides == ~intruder
CompletedIsVisible == \A b \in Works : b < spark => IsVisible(b)
BatchesInOrder == \A b \in Works : CommitsMade(b + 1) # {} => IsVisible(b)
NeededRecordsAreKept == floor <= spark
NobodyIsLost == \A d \in Drivers : dr[d].pc # "broken" /\ (dr[d].pc = "refused" => dr[d].at < spark)
LastLeavesNothingOpen == Last \in Drivers /\ dr[Last].pc = "done" => Unsettled = {}

(* Whatever is decided becomes visible, or is reported as lost. *)
DecidedBecomesVisible ==
    \A b \in Works : (CommitsMade(b) # {}) ~> (IsVisible(b) \/ \E d \in Drivers : dr[d].pc = "reported")
(* The last start ends, with every batch visible or a report. *)
LastComesToAnEnd ==
    <>(dr[Last].pc = "reported" \/ (dr[Last].pc = "done" /\ \A b \in Works : IsVisible(b)))

Symmetry == Permutations(Drivers)
=============================================================================
