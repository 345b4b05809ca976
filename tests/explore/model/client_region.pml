/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local clients: a stage whose workers sleep on their own bells and on a client's bell at once,
 * with a death possible between any two steps of the workers (src/shm/DESIGN-clients.md, "Sleeping
 * and waking"; the lane's own protocol is bell.pml).
 *
 * One stage, up to three workers. The lane's ring and the client's ring are counts of waiting
 * items. A pusher pushes to the lane's ring and notifies as the coordinator does: it can't see the
 * client's ring. A client pushes to the client's ring and rings the client's bell, on which any
 * worker may sleep; it sees neither former nor idle bits. With PASS a worker of the stage before
 * pushes to the client's ring instead, and notifies the lane. What a dead worker held waits again:
 * the lane's items by repair in the coordinator, the client's later, by the client's own.
 *
 * Checked: when nothing moves any more, nothing waits and everything was run. A sleep has no
 * time-out here. With SLOW a batch ends only when no item waits any more, or every other worker is
 * busy too: then it also fails if one sleeps while work waits for another who is busy. With COMPANY
 * a batch has room for two, and a former who has one item sleeps with the role until a second comes
 * or it is due.
 */

#ifndef LANE_ITEMS
#define LANE_ITEMS 1
#endif
#ifndef CLIENT_ITEMS
#define CLIENT_ITEMS 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef SEATS
#define SEATS 2
#endif
#define FORMER(party, seat) ((party) * 8 + (seat))
#define OFFER(party, seat) (FORMER(party, seat) + 4)
#define OFFERED(former) ((former) % 8 >= 4)
#define SEAT(former) ((former) % 4)
#define PARTY(former) ((former) / 8)

#if SEATS > 2
#define ANY(array) (array[0] || array[1] || array[2])
#define OTHERS_BUSY (busy[(k + 1) % 3] && busy[(k + 2) % 3])
#define IN_HAND (lane_hand[0] + client_hand[0] + lane_hand[1] + client_hand[1] + \
                 lane_hand[2] + client_hand[2])
#else
#define ANY(array) (array[0] || array[1])
#define OTHERS_BUSY busy[1 - k]
#define IN_HAND (lane_hand[0] + client_hand[0] + lane_hand[1] + client_hand[1])
#endif

#if DEATHS > 0 /* else no seat is ever empty */
#define SKIP_SEATS bool skip_seat[2];
#define SKIPPED(seat) skip_seat[seat]
#define SKIP(seat) skip_seat[seat] = true
#define SKIP_NONE skip_seat[0] = false; skip_seat[1] = false
#else
#define SKIP_SEATS
#define SKIPPED(seat) false
#define SKIP(seat) skip
#define SKIP_NONE skip
#endif

byte lane_waiting, client_waiting; /* items in the rings */
byte former;
bool idle[SEATS];
byte party[SEATS];
bool asleep[SEATS], rung[SEATS]; /* own bells; rung: the sequence has moved on since prepare */
bool client_asleep;               /* the client's bell */
bool client_rung[SEATS];          /* its sequence has moved on since this worker's prepare */
bool in_futex[SEATS];            /* sleeps on both */

bool alive[SEATS], killed[SEATS], dead[SEATS];
byte lane_hand[SEATS], client_hand[SEATS]; /* items that a worker holds: their words say so */
bool busy[SEATS];                         /* with a batch that is closed */
byte lane_pushed, client_pushed;
byte run_count;
byte deaths_left = DEATHS;
byte next_party = SEATS + 1;

inline wake(seat)
{
    rung[seat] = true;
    in_futex[seat] = false
}

inline ring(seat)
{
    if
    :: asleep[seat] -> /* after the fence */
       if
       :: atomic { asleep[seat] -> asleep[seat] = false }; wake(seat)
       :: else
       fi
    :: else
    fi
}

inline client_wake()
{
    d_step {
        client_rung[0] = true; client_rung[1] = true;
#if SEATS > 2
        client_rung[2] = true
#endif
    };
    atomic { /* one of those who sleep, no matter which */
        if
        :: in_futex[0] -> in_futex[0] = false
        :: in_futex[1] -> in_futex[1] = false
#if SEATS > 2
        :: in_futex[2] -> in_futex[2] = false
#endif
        :: !ANY(in_futex)
        fi
    }
}

inline client_ring()
{
    if
    :: client_asleep -> /* after the fence */
       if
       :: atomic { client_asleep -> client_asleep = false }; client_wake()
       :: else
       fi
    :: else
    fi
}

/* As bell.pml has it. `work`: what the caller can see of waiting items. */
inline appoint_idle(work)
{
    do
    :: atomic {
           if
           :: idle[0] && !SKIPPED(0) -> seat = 0
           :: idle[1] && !SKIPPED(1) -> seat = 1
#if SEATS > 2
           :: idle[2] && !SKIPPED(2) -> seat = 2
#endif
           :: else -> break
           fi
       };
       atomic {
           appointed = party[seat];
           if
           :: appointed == 0 -> SKIP(seat)
           :: else
           fi
       };
       if
       :: appointed != 0 ->
          atomic {
              if
              :: former == 0 -> former = OFFER(appointed, seat)
              :: else -> break
              fi
          };
          ring(seat);
          flag = idle[seat] && party[seat] == appointed;
          atomic {
              if
              :: !flag && former == OFFER(appointed, seat) -> former = 0
              :: else -> break
              fi
          };
          atomic {
              if
              :: work
              :: else -> break
              fi
          }
       :: else
       fi
    od;
    atomic { seat = 0; appointed = 0; flag = false; SKIP_NONE }
}

/* The coordinator sees the lane's ring, and knows that there are client regions. */
#ifdef MUTANT_BLIND
#define COORDINATOR_SEES (lane_waiting > 0)
#else
#define COORDINATOR_SEES true
#endif
#define WORKER_SEES (lane_waiting > 0 || client_waiting > 0)

proctype pusher()
{
    byte seen, seat, appointed;
    bool flag;
    SKIP_SEATS
    do
    :: atomic { lane_pushed < LANE_ITEMS -> lane_pushed++; lane_waiting++ };
       seen = former;
       if
       :: seen == 0 -> appoint_idle(COORDINATOR_SEES)
       :: else -> ring(SEAT(seen)); seen = 0
       fi
    od
}

proctype client()
{
    byte seen, seat, appointed;
    bool flag;
    SKIP_SEATS
    do
    :: atomic { client_pushed < CLIENT_ITEMS -> client_pushed++; client_waiting++ };
#ifdef PASS
       seen = former;
       if
       :: seen == 0 -> appoint_idle(WORKER_SEES)
       :: else -> ring(SEAT(seen)); seen = 0
       fi
#else
       client_ring()
#endif
    od
}

inline former_leave()
{
    atomic {
        if
        :: former == FORMER(me, k) -> former = 0
        :: else
        fi
    };
#ifndef MUTANT_NO_ARM
#ifndef MUTANT_ARM_AFTER_LOOK
    if
    :: ANY(idle) -> client_asleep = true
    :: else
    fi;
#endif
#endif
    if
    :: WORKER_SEES -> appoint_idle(WORKER_SEES)
    :: else
    fi
#ifdef MUTANT_ARM_AFTER_LOOK
    ;
    if
    :: ANY(idle) -> client_asleep = true
    :: else
    fi
#endif
}

inline gather()
{
    atomic {
        if
        :: lane_waiting > 0 -> lane_waiting--; lane_hand[k]++
        :: client_waiting > 0 -> client_waiting--; client_hand[k]++
        :: lane_waiting == 0 && client_waiting == 0
        fi
    }
}

inline bells_prepare()
{
    d_step { /* before the fence; a ring that comes between them only keeps us awake */
        rung[k] = false;
        asleep[k] = true;
#ifndef MUTANT_OWN_BELL_ONLY
        client_rung[k] = false;
        client_asleep = true
#endif
    }
}

#ifdef MUTANT_OWN_BELL_ONLY
#define RUNG rung[k]
#else
#define RUNG (rung[k] || client_rung[k])
#endif

/* The batch is open: asleep with the role, and without the idle bit. */
inline wait_for_company()
{
    bells_prepare();
    if
    :: !WORKER_SEES ->
       atomic { in_futex[k] = !RUNG };
       if
       :: skip -> (!in_futex[k])
       :: atomic { in_futex[k] = false; due = true } /* the time-out, whenever it comes */
       fi
    :: else
    fi;
    asleep[k] = false
}

inline rest()
{
    idle[k] = true;
    bells_prepare();
    seen = former;
    flag = (seen == FORMER(me, k) || seen == OFFER(me, k) || (seen == 0 && WORKER_SEES));
#ifndef MUTANT_NO_PASSING_ON
    if
    :: !flag && seen != 0 && client_waiting > 0 -> ring(SEAT(seen))
    :: else
    fi;
#endif
    if
    :: !flag -> atomic { in_futex[k] = !RUNG }; (!in_futex[k])
    :: else
    fi;
    asleep[k] = false;
    atomic { idle[k] = false; seen = 0; flag = false }
}

proctype worker(byte k)
{
    byte me, seen, seat, appointed;
    bool flag, due;
    SKIP_SEATS
start:
    skip;
    atomic { me = party[k]; alive[k] = true };
    {
        do
        :: if
           :: atomic {
                  former == 0 || former == FORMER(me, k) || former == OFFER(me, k) ->
                  former = FORMER(me, k)
              };
              client_asleep = false;
              gather();
#ifdef COMPANY
              do
              :: lane_hand[k] + client_hand[k] == 1 && !due -> wait_for_company(); gather()
              :: else -> break
              od;
              due = false;
#endif
              former_leave();
#ifdef MUTANT_HUSH_WITHOUT_ROLE
              client_asleep = false;
#endif
              if
              :: atomic { lane_hand[k] + client_hand[k] > 0 -> busy[k] = true };
#ifdef SLOW
                 atomic { (lane_waiting + client_waiting == 0 && lane_pushed == LANE_ITEMS
                           && client_pushed == CLIENT_ITEMS) || OTHERS_BUSY };
#endif
                 d_step {
                     run_count = run_count + lane_hand[k] + client_hand[k];
                     lane_hand[k] = 0; client_hand[k] = 0; busy[k] = false
                 }
              :: else -> rest()
              fi
           :: else -> rest()
           fi
        od
    } unless { killed[k] };
    d_step {
        alive[k] = false; dead[k] = true; in_futex[k] = false; busy[k] = false;
        seen = 0; seat = 0; appointed = 0; flag = false; due = false; me = 0;
        SKIP_NONE
    };
    (!dead[k]);
    goto start
}

#if DEATHS > 0
proctype repairer()
{
    byte k, seen;
    bool flag;
    do
    :: atomic { if :: dead[0] -> k = 0 :: dead[1] -> k = 1 fi };
       /* the lane's repair, by the coordinator */
       atomic { lane_waiting = lane_waiting + lane_hand[k]; lane_hand[k] = 0; seen = party[k] };
       party[k] = 0;
       idle[k] = false;
       atomic { if :: former == FORMER(seen, k) || former == OFFER(seen, k) -> former = 0 :: else fi };
       seen = former;
       flag = (OFFERED(seen) || (seen != 0 && party[SEAT(seen)] != PARTY(seen)));
       atomic { if :: flag && former == seen -> former = 0 :: else fi; seen = 0; flag = false };
#ifndef MUTANT_NO_AWAKENING
       wake(0);
       wake(1);
#endif
       /* a new process; the client's repair, by the client, may come before or after its start */
       atomic { party[k] = next_party; next_party++; asleep[k] = false; killed[k] = false };
       if
       :: dead[k] = false; atomic { client_waiting = client_waiting + client_hand[k]; client_hand[k] = 0 }
       :: atomic { client_waiting = client_waiting + client_hand[k]; client_hand[k] = 0 }; dead[k] = false
       fi;
       client_wake();
       k = 0
    od
}

proctype killer()
{
end:
    do
    :: d_step { deaths_left > 0 && alive[0] && !killed[0]; killed[0] = true; deaths_left-- }
    :: d_step { deaths_left > 0; deaths_left = 0 }
    od
}
#endif

proctype judge()
{
    timeout;
    d_step {
        assert(lane_waiting == 0 && client_waiting == 0);
#ifdef COMPANY
        assert(run_count + IN_HAND == LANE_ITEMS + CLIENT_ITEMS)
#else
        assert(run_count == LANE_ITEMS + CLIENT_ITEMS)
#endif
    }
}

init {
    atomic {
        party[0] = 1;
        run worker(0);
        party[1] = 2;
        run worker(1);
#if SEATS > 2
        party[2] = 3;
        run worker(2);
#endif
        run pusher();
        run client();
#if DEATHS > 0
        run repairer(); run killer();
#endif
        run judge()
    }
}
