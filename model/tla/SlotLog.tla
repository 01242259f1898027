-------------------------------- MODULE SlotLog --------------------------------
(* Pruning a decision log of named slots (src/exactum/files/slot_log.py): an old slot never becomes free again.

   Every batch 0 .. Batches was decided by First, in its slot 0, and is over. Pruners forget the batches below a floor
   (a pruner is named by its floor), each at its own pace. Zombies try to create a record of their own in the slot of
   batch 0; readers look at it. A listing is no moment in time: it returns every name that is there all through it,
   nothing that was never there in it, and of the rest what it likes. `Mutation` breaks the log on purpose in one place. *)
EXTENDS Naturals, FiniteSets

CONSTANTS Pruners, Zombies, Readers, First, Batches, TriesMax, Mutation

ASSUME Pruners \subseteq 1 .. Batches

VARIABLES
    rec,    \* batch -> whose record has its name, or "free"
    marks,  \* the floor markers
    high,   \* the highest marker ever made
    me      \* process -> what it has in memory

vars == <<rec, marks, high, me>>

Processes == Pruners \union Zombies \union Readers
Slot(b) == <<"record", b>>
Marker(f) == <<"floor", f>>
Names == {Slot(b) : b \in {b \in 0 .. Batches : rec[b] # "free"}} \union {Marker(f) : f \in marks}
Broken(m) == Mutation = m

(* `b`: the batch it is about, for a pruner its floor; `known`: the highest floor it has seen; `must` and `may`: what its
   listing has to and can return; `stands`: what it read; `doomed`: what it will remove; `tries`: how often it began. *)
Init ==
    /\ rec = [b \in 0 .. Batches |-> First]
    /\ marks = {}
    /\ high = 0
    /\ me = [p \in Processes |->
              [pc |-> IF p \in Pruners THEN "mark" ELSE IF p \in Zombies THEN "create" ELSE "read",
               b |-> IF p \in Pruners THEN p ELSE 0,
               known |-> 0, listing |-> FALSE, must |-> {}, may |-> {}, stands |-> "free", doomed |-> {},
               tries |-> 0]]

Others(added, removed) ==  \* what a change of names does to the listings that are under way
    [q \in Processes |->
        IF me[q].listing THEN [me[q] EXCEPT !.may = @ \union added, !.must = @ \ removed] ELSE me[q]]

Go(p, r) == me' = [me EXCEPT ![p] = r]
GoChanging(p, r, added, removed) == me' = [Others(added, removed) EXCEPT ![p] = r]

BeginList(p) == [me[p] EXCEPT !.pc = "list", !.listing = TRUE, !.must = Names, !.may = Names]
Highest(names, known) ==
    LET floors == {n[2] : n \in {n \in names : n[1] = "floor"}} \union {known}
    IN CHOOSE f \in floors : \A g \in floors : g <= f
Again(p) == [me[p] EXCEPT !.pc = IF @ = "gave up" \/ me[p].tries = TriesMax THEN "gave up"
                                 ELSE IF p \in Zombies THEN "create" ELSE "read",
                          !.tries = @ + 1, !.listing = FALSE, !.must = {}, !.may = {}]

-----------------------------------------------------------------------------
(* decide: create the record, list the names, read it again. *)

Create(z) ==
    LET r == me[z]
    IN  /\ r.pc = "create"
        /\ IF r.known > r.b THEN Go(z, [r EXCEPT !.pc = "fenced"]) /\ UNCHANGED rec
           ELSE IF rec[r.b] = "free"
                THEN /\ rec' = [rec EXCEPT ![r.b] = z]
                     /\ GoChanging(z, [r EXCEPT !.pc = "load"], {Slot(r.b)}, {})
                ELSE Go(z, [r EXCEPT !.pc = "load"]) /\ UNCHANGED rec
        /\ UNCHANGED <<marks, high>>

Load(z) ==
    /\ me[z].pc = "load"
    /\ Go(z, [me[z] EXCEPT !.pc = IF Broken("no_look") THEN "told" ELSE "begin list", !.stands = rec[me[z].b]])
    /\ UNCHANGED <<rec, marks, high>>

Reread(z) ==
    LET r == me[z]
    IN  /\ r.pc = "read again"
        /\ Go(z, IF r.stands # "free" /\ rec[r.b] = r.stands THEN [r EXCEPT !.pc = "told"] ELSE Again(z))
        /\ UNCHANGED <<rec, marks, high>>

RemoveOwn(z) ==
    /\ me[z].pc = "remove own"
    /\ rec' = [rec EXCEPT ![me[z].b] = "free"]
    /\ GoChanging(z, [me[z] EXCEPT !.pc = "fenced"], {}, {Slot(me[z].b)})
    /\ UNCHANGED <<marks, high>>

-----------------------------------------------------------------------------
(* read: probe, list the names, probe again. *)

Read(p) ==
    /\ me[p].pc = "read"
    /\ Go(p, [me[p] EXCEPT !.stands = rec[me[p].b], !.pc = "begin list"])
    /\ UNCHANGED <<rec, marks, high>>

ReadAgain(p) ==
    LET r == me[p]
    IN  /\ p \in Readers
        /\ r.pc = "probe again"
        /\ Go(p, IF r.stands = "free" \/ rec[r.b] = r.stands \/ Broken("no_probe") THEN [r EXCEPT !.pc = "told"]
                 ELSE Again(p))
        /\ UNCHANGED <<rec, marks, high>>

-----------------------------------------------------------------------------
(* A listing: it takes time. *)

StartListing(p) ==
    /\ me[p].pc = "begin list"
    /\ Go(p, BeginList(p))
    /\ UNCHANGED <<rec, marks, high>>

EndListing(p) ==
    /\ me[p].pc = "list"
    /\ \E some \in SUBSET (me[p].may \ me[p].must) :
        LET found == me[p].must \union some
            r == [me[p] EXCEPT !.listing = FALSE, !.must = {}, !.may = {}, !.known = Highest(found, @)]
            lost == Slot(r.b) \notin found /\ \E n \in found : n[1] = "record" /\ n[2] > r.b
        IN  Go(p,
              IF p \in Pruners THEN
                [r EXCEPT !.pc = IF Broken("unmark_first") THEN "unmark" ELSE "remove",
                          !.doomed = {n \in found : n[2] < r.b}]
              ELSE IF p \in Zombies THEN
                IF r.known > r.b THEN [r EXCEPT !.pc = IF r.stands = p THEN "remove own" ELSE "fenced"]
                ELSE [r EXCEPT !.pc = IF Broken("no_reread") /\ r.stands # "free" THEN "told" ELSE "read again"]
              ELSE IF r.known > r.b THEN [r EXCEPT !.pc = "refused"]
              ELSE IF ~lost THEN [r EXCEPT !.pc = "probe again"]
              ELSE IF r.tries < TriesMax THEN [r EXCEPT !.pc = "begin list", !.tries = @ + 1]
              ELSE [r EXCEPT !.pc = "alarm"])
    /\ UNCHANGED <<rec, marks, high>>

-----------------------------------------------------------------------------
(* prune: mark the floor, list the names, remove the records below it, remove the markers below it. *)

Mark(p) ==
    LET f == me[p].b
        next == IF Broken("remove_first") THEN [me[p] EXCEPT !.pc = "pruned"]
                ELSE BeginList(p)
        marked == [next EXCEPT !.may = IF next.listing THEN @ \union {Marker(f)} ELSE @,
                               !.must = IF next.listing THEN @ \union {Marker(f)} ELSE @]
    IN  /\ p \in Pruners
        /\ me[p].pc = IF Broken("remove_first") THEN "mark late" ELSE "mark"
        /\ marks' = marks \union {f}
        /\ high' = IF f > high THEN f ELSE high
        /\ GoChanging(p, marked, {Marker(f)}, {})
        /\ UNCHANGED rec

ListFirst(p) ==  \* the mutation "remove_first"
    /\ Broken("remove_first")
    /\ p \in Pruners
    /\ me[p].pc = "mark"
    /\ Go(p, BeginList(p))
    /\ UNCHANGED <<rec, marks, high>>

Records(doomed) == {n \in doomed : n[1] = "record"}
Markers(doomed) == {n \in doomed : n[1] = "floor"}

RemoveRecord(p) ==
    /\ me[p].pc = "remove"
    /\ \/ \E n \in Records(me[p].doomed) :
            /\ rec' = [rec EXCEPT ![n[2]] = "free"]
            /\ GoChanging(p, [me[p] EXCEPT !.doomed = @ \ {n}], {}, {n})
       \/ /\ Records(me[p].doomed) = {}
          /\ Go(p, [me[p] EXCEPT !.pc = IF Broken("unmark_first") THEN "pruned"
                                       ELSE IF Broken("remove_first") THEN "mark late" ELSE "unmark"])
          /\ UNCHANGED rec
    /\ UNCHANGED <<marks, high>>

RemoveMarker(p) ==
    /\ me[p].pc = "unmark"
    /\ \/ \E n \in Markers(me[p].doomed) :
            /\ marks' = marks \ {n[2]}
            /\ GoChanging(p, [me[p] EXCEPT !.doomed = @ \ {n}], {}, {n})
       \/ /\ Markers(me[p].doomed) = {}
          /\ Go(p, [me[p] EXCEPT !.pc = IF Broken("unmark_first") THEN "remove" ELSE "pruned"])
          /\ UNCHANGED marks
    /\ UNCHANGED <<rec, high>>

Next ==
    \/ \E p \in Processes : StartListing(p) \/ EndListing(p)
    \/ \E p \in Pruners : ListFirst(p) \/ Mark(p) \/ RemoveRecord(p) \/ RemoveMarker(p)
    \/ \E z \in Zombies : Create(z) \/ Load(z) \/ Reread(z) \/ RemoveOwn(z)
    \/ \E r \in Readers : Read(r) \/ ReadAgain(r)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
NoSlotTwice == \A z \in Zombies : me[z].pc = "told" => me[z].stands = First
(* An empty answer is harmless: it leads to a decision, and that is refused. *)
NoZombieIsBelieved == \A r \in Readers : me[r].pc = "told" => me[r].stands \in {First, "free"}
TheHighestFloorStays == high > 0 => high \in marks
=============================================================================
