/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait for a slot: nobody sleeps while a call waits and a slot is free (wait_queue.c).
 *
 * SLOTS requests are in flight and end one by one: each frees its slot and then rings. Meanwhile
 * CALLS callers come. One that finds others waiting enters the queue; else it tries, and enters when
 * there is no slot. The queue's thread reads its bell's sequence, prepares the bell if anybody waits,
 * looks at the calls in order, and sleeps. Time-outs never come.
 *
 * Steps are in order, as the fences of doorbell.h make them; without the one in the ring its load of
 * the flag comes before the slot is seen (a mutant).
 *
 * Checked: when nothing moves any more, either no slot is free or nobody waits.
 */

#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef CALLS
#define CALLS 2
#endif

byte free_slots;
byte entered;  /* calls that are in the list, or were */
byte counted;  /* `count`: a place is taken before the call is in the list */
byte admitted; /* of those in the list: it is a queue, so the number names them */
byte passed;   /* calls that found a slot at once */

bool asleep;
byte sequence;
bool in_futex;
byte ended;
byte came;

inline wake()
{
    atomic { sequence++; in_futex = false }
}

inline ring()
{
    if
    :: asleep ->
       if
       :: atomic { asleep -> asleep = false }; wake()
       :: else
       fi
    :: else
    fi
}

/* request_release */
proctype request()
{
#ifdef MUTANT_RING_BEFORE_FREE
    ring();
    atomic { free_slots++ };
#else
#ifdef MUTANT_NO_FENCE_IN_RING /* the flag is read while the slot is still in the store buffer */
    bool seen = asleep;
    atomic { free_slots++ };
    if
    :: seen ->
       if
       :: atomic { asleep -> asleep = false }; wake()
       :: else
       fi
    :: else
    fi;
#else
    atomic { free_slots++ };
    ring();
#endif
#endif
    ended++
}

proctype caller()
{
    bool has = false;
#ifndef MUTANT_PASS_THOSE_WHO_WAIT
    if
    :: counted > 0
    :: else ->
#endif
       if
       :: atomic { free_slots > 0 -> free_slots--; has = true }
       :: atomic { free_slots == 0 -> skip }
       fi
#ifndef MUTANT_PASS_THOSE_WHO_WAIT
    fi
#endif
    ;
    if
    :: has ->
#ifdef MUTANT_PASS_THOSE_WHO_WAIT
       assert(entered == admitted);
#endif
       passed++
    :: else ->
       atomic { counted++ };
#ifdef MUTANT_WAKE_BEFORE_ENTRY
       wake();
       atomic { entered++ };
#else
       atomic { entered++ };
#ifdef MUTANT_RING_ON_ENTRY /* only if the flag is set, which it is not while nobody waits */
       ring();
#else
       wake();
#endif
#endif
    fi;
    came++
}

proctype thread()
{
    byte prepared;
    byte last;
    bool prepares;
end:
    do
    :: prepared = sequence;
       prepares = counted > 0;
#ifndef MUTANT_PREPARE_AFTER_LOOK
       if
       :: prepares -> prepared = sequence; asleep = true /* and the fence */
       :: else
       fi;
#endif
       /* those in the list now; one that enters later wakes */
       last = entered;
       do
       :: atomic { admitted < last && free_slots > 0 -> free_slots--; admitted++; counted-- }
       :: atomic { !(admitted < last && free_slots > 0) -> break }
       od;
#ifdef MUTANT_PREPARE_AFTER_LOOK
       if
       :: prepares -> prepared = sequence; asleep = true
       :: else
       fi;
#endif
       atomic {
           if
           :: sequence == prepared -> in_futex = true
           :: else
           fi
       };
endasleep:
       atomic { !in_futex -> skip };
       asleep = false
    od
}

init {
    byte i = 0;
    atomic {
        run thread();
        do
        :: i < SLOTS -> run request(); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < CALLS -> run caller(); i++
        :: else -> break
        od
    };
    atomic { timeout -> skip };
    assert(ended == SLOTS && came == CALLS);
    assert(in_futex);
    assert(free_slots == 0 || entered == admitted)
}
