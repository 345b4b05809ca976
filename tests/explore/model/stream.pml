/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer in pieces (shm/piece.h): its caller gets the pieces in order, each once, then one end.
 *
 * A worker runs the one request. It counts each piece in the slot, pushes its block (word, cell),
 * and at last pushes the slot. It may die between any two steps, DEATHS times; repair pushes what
 * is owed and runs the request again or fails it. Two threads of the coordinator gather: pieces
 * under the lane's lock, then the slot, whose pieces are taken out of the ring before it ends.
 * Meanwhile the lane may be condemned, which ends the request at once. With USES=2 the slot then
 * serves another request, whose counts do not include those of the first.
 *
 * Rings are arrays that are never reused: shm.pml shows what a ring is. A block is named by the
 * use, the attempt and the number of its piece.
 *
 * Checked: no piece comes twice, out of order, or after the end of its request; an answer that ends
 * well is whole; there is one end; when nothing moves any more, the requests have ended and every
 * block is free.
 */

#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef PIECES
#define PIECES 2
#endif
#ifndef CONDEMNS
#define CONDEMNS 0
#endif
#ifndef USES
#define USES 1
#endif

#define ATTEMPTS (DEATHS + 1)
#define USE_BLOCKS (ATTEMPTS * PIECES)
#define BLOCKS (USES * USE_BLOCKS)

mtype = { FREE, HELD, WAITING, TAKEN };                      /* a block's word */
mtype = { STAGE, RUN, RESULT, ERROR, BACK_OK, BACK_FAILED }; /* the slot's */

mtype block[BLOCKS] = FREE;
byte ring[BLOCKS]; /* the block's number + 1; 0: empty */
byte tail;
byte head;
mtype slot = STAGE;
bool slot_cell = true;
byte use;     /* the slot's generation */
byte emitted; /* in the slot, by the worker: a count and its use */
byte emitted_use;
byte number[BLOCKS]; /* in the block, by the worker */
#ifdef MUTANT_IGNORE_GENERATION
#define EMITTED emitted
#else
#define EMITTED (emitted_use == use -> emitted : 0)
#endif

byte attempt;
bool killed; /* it takes no more step */
bool dead;   /* and that is proved */
byte deaths;

bool lock;      /* the lane's, of pieces */
byte delivered; /* the coordinator's own count */
bool ended;     /* request.use is ANSWERED */
#define OVER (ended && use + 1 == USES)

/* ---- the worker ---- */

inline fill(b)
{
    d_step { ring[tail] = b + 1; tail++ }
}

inline count(b)
{
    d_step { emitted = number[b] + 1; emitted_use = use }
}

inline emit(n)
{
    d_step { b = use * USE_BLOCKS + attempt * PIECES + n; block[b] = HELD; number[b] = EMITTED };
#ifndef MUTANT_COUNT_AFTER_PUSH
    count(b);
#endif
    block[b] = WAITING;
    fill(b);
#ifdef MUTANT_COUNT_AFTER_PUSH
    count(b);
#endif
    n++
}

proctype worker()
{
    byte n, b;
start:
    {
        atomic { slot == STAGE && slot_cell -> slot = RUN; slot_cell = false; n = 0 };
        do
        :: n < PIECES -> emit(n)
        :: else -> break
        od;
        slot = RESULT;
        slot_cell = true
    } unless { killed };
    atomic {
        if
        :: killed -> killed = false; dead = true
        :: else
        fi
    };
    (!dead || OVER);
    if
    :: !OVER -> goto start
    :: else
    fi
}

proctype killer()
{
    do
    :: atomic { deaths < DEATHS && !dead && !killed && (slot == RUN || (slot == RESULT && !slot_cell)) ->
                killed = true; deaths++ }
    :: break
    od
}

/* ---- repair ---- */

inline repair_blocks()
{
    b = 0;
    do
    :: b < BLOCKS ->
       d_step {
           i = 0;
           do
           :: i < tail && ring[i] != b + 1 -> i++
           :: else -> break
           od
       };
       if
       :: block[b] == WAITING && i == tail -> fill(b)
       :: else
       fi;
       b++
    :: else -> break
    od
}

inline repair_held()
{
    if
    :: slot == RUN ->
       b = 0;
       do
       :: b < BLOCKS ->
          if
          :: block[b] == HELD -> block[b] = FREE
          :: else
          fi;
          b++
       :: else -> break
       od;
       if
       :: EMITTED == 0 && delivered == 0 && attempt + 1 < ATTEMPTS ->
          attempt++; slot = STAGE; slot_cell = true
       :: else -> slot = ERROR; slot_cell = true
       fi
    :: else
    fi
}

proctype repairer()
{
    byte b, i;
    do
    :: dead ->
       if
       :: (slot == RESULT || slot == ERROR) && !slot_cell -> slot_cell = true
       :: else
       fi;
#ifdef MUTANT_SLOTS_BEFORE_BLOCKS
       repair_held();
       repair_blocks();
#else
       repair_blocks();
       repair_held();
#endif
       dead = false
    :: OVER -> break
    od
}

/* ---- the coordinator ---- */

inline lock_take() { atomic { !lock -> lock = true } }

/* Pops one piece and delivers it if its request is in flight. */
inline pop_piece()
{
    atomic { got = ring[head]; at = head };
    if
    :: got != 0 ->
       atomic {
           if
           :: block[got - 1] == WAITING -> block[got - 1] = TAKEN; mine = true
           :: else
           fi
       };
       atomic {
           if
           :: head == at -> head++
           :: else
           fi
       };
       if
       :: mine ->
          in_flight = !ended && (got - 1) / USE_BLOCKS == use;
          if
          :: in_flight ->
             d_step {
                 assert(!ended);                            /* after the end */
                 assert(number[got - 1] == delivered);      /* out of order, or twice */
                 delivered++
             }
          :: else -> assert(CONDEMNS) /* lost */
          fi;
          block[got - 1] = FREE
       :: else
       fi
    :: else
    fi;
    d_step { mine = false; in_flight = false }
}

inline drain()
{
    do
    :: head < tail -> pop_piece()
    :: else -> break
    od
}

/* A thread that finds the lock taken goes on: the one that has it pops the pieces. */
proctype gatherer()
{
    byte got, at;
    bool mine, in_flight, well;
    do
    :: head < tail ->
#ifdef MUTANT_NO_LOCK
       pop_piece()
#else
       if
       :: atomic { !lock -> lock = true }; drain(); lock = false
       :: lock -> skip
       fi
#endif
    :: atomic { (slot == RESULT || slot == ERROR) && slot_cell ->
                well = (slot == RESULT); slot = (slot == RESULT -> BACK_OK : BACK_FAILED);
                slot_cell = false };
#ifndef MUTANT_RESULTS_FIRST
       lock_take();
       drain();
       lock = false;
#endif
       lock_take();
       d_step {
           if
           :: !ended ->
              ended = true;
              assert(!well || delivered == PIECES)
           :: else -> assert(CONDEMNS)
           fi
       };
       lock = false;
       d_step {
           if
           :: !OVER ->
              use++; attempt = 0; delivered = 0; ended = false;
              slot = STAGE; slot_cell = true
           :: else
           fi
       }
    :: OVER && head == tail && !dead && !killed -> break
    od
}

/* lane_fail_all */
proctype condemner()
{
#ifdef MUTANT_END_WITHOUT_LOCK
    ended = true
#else
    lock_take();
    ended = true;
    lock = false
#endif
}

proctype judge()
{
    byte b;
    timeout;
    assert(OVER);
    for (b : 0 .. BLOCKS - 1) {
        assert(CONDEMNS || block[b] == FREE)
    }
}

init {
    atomic {
        run worker(); run killer(); run repairer(); run gatherer(); run gatherer(); run judge();
#if CONDEMNS > 0
        run condemner()
#else
        skip
#endif
    }
}
