/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping, waking and the former, with a death possible between any two steps of pushers and workers.
 *
 * One stage: its ring is a count of waiting items. Two workers take the role, pop, leave it, rest
 * (step order of former.h and doorbell.h); a pusher pushes and notifies. A dead worker is evicted, what
 * it held waits again, everybody is woken, and a new process with a new party takes the seat; a
 * dead pusher is replaced too.
 *
 * Checked: when nothing moves any more, nothing waits and everything was run. A sleep has no time-out
 * here, so a lost wake is a failure and not a delay. With SLOW a batch ends only when no item waits any
 * more, or the other worker is busy too: then it also fails if one worker sleeps while work waits for
 * the other, who is busy.
 *
 * With COMPANY a batch has room for two, and a former who has one item sleeps on its bell, with the
 * role, until a second comes or the batch is due. That time-out may come or not: so a batch may stay
 * open at the end, but nothing may wait for the one who holds it, and a role that was accepted stays.
 */

#ifndef ITEMS
#define ITEMS 2 /* by each pusher */
#endif
#ifndef PUSHERS
#define PUSHERS 1
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef MORTALS
#define MORTALS 7 /* parties that may die: a bit for each worker, then one for the pusher */
#endif
#define SEATS 2
#ifndef WORKERS
#define WORKERS 2 /* with 1 the other seat stays empty */
#endif
#define FORMER(party, seat) ((party) * 4 + (seat))
#define SEAT(former) ((former) % 2)
#define PARTY(former) ((former) / 4)
#ifdef MUTANT_NO_OFFER /* an appointment is the role itself, and taken back from the party that began */
#define OFFER(party, seat) FORMER(party, seat)
#define OFFERED(former) false
#else
#define OFFER(party, seat) (FORMER(party, seat) + 2)
#define OFFERED(former) ((former) % 4 >= 2)
#endif

byte waiting; /* items in the ring */
byte former;
bool idle[SEATS];
byte party[SEATS];
bool asleep[SEATS];
bool rung[SEATS]; /* the sequence has moved on since doorbell_prepare */
bool in_futex[SEATS];

bool alive[SEATS + PUSHERS];
bool killed[SEATS + PUSHERS];
bool dead[SEATS + PUSHERS];
byte in_hand[SEATS]; /* items that the worker holds: its word says so */
#ifdef SLOW
bool busy[SEATS]; /* with a batch that is closed */
#endif
byte pushed[PUSHERS];
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

inline appoint_idle()
{
    do
    :: atomic {
           if
           :: idle[0] && !skip_seat[0] -> seat = 0
           :: idle[1] && !skip_seat[1] -> seat = 1
           :: else -> break
           fi
       };
       atomic {
           appointed = party[seat];
           if
           :: appointed == 0 -> skip_seat[seat] = true
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
#ifdef MUTANT_NO_REVERT
          break;
#endif
          flag = idle[seat];
#ifndef MUTANT_SEAT_ALONE
          flag = flag && (party[seat] == appointed);
#endif
          atomic {
              if
              :: !flag && former == OFFER(appointed, seat) -> former = 0
              :: else -> break
              fi
          };
          atomic {
              if
              :: waiting > 0
              :: else -> break
              fi
          }
       :: else
       fi
    od;
    atomic { seat = 0; appointed = 0; flag = false; skip_seat[0] = false; skip_seat[1] = false }
}

inline stage_notify()
{
    seen = former;
    if
    :: seen == 0 -> appoint_idle()
    :: else -> ring(SEAT(seen)); seen = 0
    fi
}

proctype pusher(byte me)
{
    byte seen, seat, appointed;
    bool flag;
    bool skip_seat[SEATS];
start:
    skip;
    alive[SEATS + me] = true;
    {
        do
        :: atomic { pushed[me] < ITEMS -> pushed[me]++; waiting++ };
           stage_notify()
        od
    } unless { killed[SEATS + me] };
    d_step {
        alive[SEATS + me] = false; dead[SEATS + me] = true;
        seen = 0; seat = 0; appointed = 0; flag = false; skip_seat[0] = false; skip_seat[1] = false
    };
    (!dead[SEATS + me]);
    goto start
}

inline former_leave()
{
    atomic {
        if
        :: former == FORMER(me, k) -> former = 0
        :: else
        fi
    };
#ifndef MUTANT_LEAVE_WITHOUT_LOOK
    if
    :: waiting > 0 -> appoint_idle()
    :: else
    fi
#endif
}

inline gather()
{
    atomic {
        if
        :: waiting > 0 -> waiting--; in_hand[k]++
        :: else
        fi
    }
}

/* The batch is open: asleep with the role, and without the idle bit. */
inline wait_for_company()
{
    rung[k] = false;
    asleep[k] = true;
#ifdef MUTANT_NO_LOOK_FOR_COMPANY
    flag = false;
#else
    flag = (waiting > 0);
#endif
    if
    :: !flag ->
       atomic { in_futex[k] = !rung[k] };
       if
       :: skip -> (!in_futex[k])                     /* until it is rung */
       :: atomic { in_futex[k] = false; due = true } /* the time-out, whenever it comes */
       fi
    :: else
    fi;
    atomic { asleep[k] = false; flag = false }
}

inline rest()
{
    idle[k] = true;
    rung[k] = false;
    asleep[k] = true;
    seen = former;
#ifdef MUTANT_NO_LOOK_BEFORE_SLEEP
    flag = false;
#else
    flag = (seen == FORMER(me, k) || seen == OFFER(me, k) || (seen == 0 && waiting > 0));
#endif
    if
    :: !flag -> atomic { in_futex[k] = !rung[k] }; (!in_futex[k])
    :: else
    fi;
    asleep[k] = false;
    atomic { idle[k] = false; seen = 0; flag = false }
}

proctype worker(byte k)
{
    byte me, seen, seat, appointed;
    bool flag, due;
    bool skip_seat[SEATS];
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
              gather();
#ifdef COMPANY
              do
              :: in_hand[k] == 1 && !due -> wait_for_company(); gather()
              :: else -> break
              od;
#ifndef MUTANT_NO_OFFER /* of it the wake that is lost is to be found, not what comes before */
              assert(former == FORMER(me, k));
#endif
              due = false;
#endif
              former_leave();
              if
#ifdef SLOW /* a batch takes until all items are in somebody's hands, or the other is busy too */
              :: atomic { in_hand[k] > 0 -> busy[k] = true };
                 atomic { (waiting == 0 && pushed[0] == ITEMS) || busy[1 - k] };
                 atomic { run_count = run_count + in_hand[k]; in_hand[k] = 0; busy[k] = false }
#else
              :: atomic { in_hand[k] > 0 -> run_count = run_count + in_hand[k]; in_hand[k] = 0 }
#endif
              :: else -> rest()
              fi
           :: else -> rest()
           fi
        od
    } unless { killed[k] };
    d_step {
        alive[k] = false; dead[k] = true; in_futex[k] = false;
        me = 0; seen = 0; seat = 0; appointed = 0; flag = false; due = false;
        skip_seat[0] = false; skip_seat[1] = false;
#ifdef SLOW
        busy[k] = false
#endif
    };
    (!dead[k]);
    goto start
}

inline former_evict()
{
    atomic { appointed = party[k] };
#ifdef MUTANT_ROLE_BEFORE_SEAT
    atomic { if :: former == FORMER(appointed, k) -> former = 0 :: else fi };
    atomic { if :: former == OFFER(appointed, k) -> former = 0 :: else fi };
#endif
    atomic { party[k] = 0 };
    atomic { idle[k] = false };
#ifndef MUTANT_ROLE_BEFORE_SEAT
    atomic { if :: former == FORMER(appointed, k) -> former = 0 :: else fi };
    atomic { if :: former == OFFER(appointed, k) -> former = 0 :: else fi };
#endif
    appointed = 0
}

inline stages_awaken()
{
#ifndef MUTANT_NO_STALE_FORMER
    atomic { seen = former };
#ifdef MUTANT_KEEP_OFFERS
    atomic { flag = (seen != 0 && party[SEAT(seen)] != PARTY(seen)) };
#else
    atomic { flag = (OFFERED(seen) || (seen != 0 && party[SEAT(seen)] != PARTY(seen))) };
#endif
    atomic { if :: flag && former == seen -> former = 0 :: else fi; seen = 0; flag = false };
#endif
#ifdef MUTANT_RING_ONLY
    stage_notify()
#else
    wake(0);
    wake(1)
#endif
}

proctype repairer()
{
    byte k, seen, seat, appointed;
    bool flag;
    bool skip_seat[SEATS];
    do
    :: atomic {
           if
           :: dead[0] -> k = 0
           :: dead[1] -> k = 1
           :: dead[SEATS] -> k = SEATS
#if PUSHERS > 1
           :: dead[SEATS + 1] -> k = SEATS + 1
#endif
           fi
       };
       if
       :: k < SEATS ->
          atomic { waiting = waiting + in_hand[k]; in_hand[k] = 0 };
          former_evict()
       :: else
       fi;
#ifndef MUTANT_NO_NOTIFY
       stages_awaken();
#endif
       /* a new process */
       atomic {
           if
           :: k < SEATS -> party[k] = next_party; next_party++; asleep[k] = false
           :: else
           fi;
           killed[k] = false;
           dead[k] = false;
           k = 0
       }
    od
}

proctype killer()
{
end:
    do
#if MORTALS & 1
    :: d_step { deaths_left > 0 && alive[0] && !killed[0]; killed[0] = true; deaths_left-- }
#endif
#if MORTALS & 2
    :: d_step { deaths_left > 0 && alive[1] && !killed[1]; killed[1] = true; deaths_left-- }
#endif
#if MORTALS & 4
    :: d_step { deaths_left > 0 && alive[2] && !killed[2]; killed[2] = true; deaths_left-- }
#endif
#if PUSHERS > 1
    :: d_step { deaths_left > 0 && alive[3] && !killed[3]; killed[3] = true; deaths_left-- }
#endif
    :: d_step { deaths_left > 0; deaths_left = 0 }
    od
}

proctype judge()
{
    timeout;
    d_step {
        assert(waiting == 0);
#ifdef COMPANY
        assert(run_count + in_hand[0] + in_hand[1] == ITEMS * PUSHERS)
#else
        assert(run_count == ITEMS * PUSHERS)
#endif
    }
}

init {
    atomic {
        party[0] = 1;
        run worker(0);
#if WORKERS > 1
        party[1] = 2;
        run worker(1);
#endif
        run pusher(0);
#if PUSHERS > 1
        run pusher(1);
#endif
        run repairer(); run killer(); run judge()
    }
}
