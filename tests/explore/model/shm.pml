/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots, rings, blocks and repair, with a death possible between any two steps of any party.
 *
 * The parties: a coordinator that submits REQUESTS requests and answers them, two workers of one
 * stage, and a repairer. A worker may hand an object back to the ring that it took it from, as one
 * does with an item of a model whose batch does not go first: BACKS times in all. Each shared access of the C code is one d_step here; `unless { killed }`
 * lets a death strike before every one of them, DEATHS times in all. A dead party's seat is taken by
 * a new process with a new party once the dead one is repaired; the repairer itself may die half way,
 * and its successor then repairs for both.
 *
 * Checked: an object never has two holders, a ring is never found full, each request is answered once
 * and only with its own blocks, and when nothing moves any more every request is answered, every
 * slot and block is free, and each has a cell that names it.
 *
 * The names of the steps are those of ring.c, slot.c, arena.c and repair.c. A MUTANT_… macro plants
 * one mistake; test_model.py demands that each is found.
 */

#ifdef RINGS
/* One ring in full: laps, lagging hints, stale cells. Nothing else is in doubt here: the other rings
 * are bags of cells, the coordinator does not die, slots carry no blocks. */
#ifndef SLOTS
#define SLOTS 1
#endif
#define BLOCKS 0
#define CELLS 4
#else
/* Who holds what: every ring is a bag of cells, which is what the other form shows a ring to be. */
#ifndef SLOTS
#define SLOTS 1
#endif
#define BLOCKS (2 * SLOTS)
#define CELLS 4
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
#ifndef MORTALS
#define MORTALS 15 /* the seats in which death may strike, one bit each */
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#ifndef BACKS
#define BACKS 0
#endif

#define OBJECTS (SLOTS + BLOCKS)
#define NONE 15

/* places, which are also the numbers of the rings */
#define STAGE 0
#define RESULT 1
#define FREE 2
#define BLOCK 3

/* word: generation 4 bits, turn 3, held 1, place 2, party 4 */
#define WORD(g, t, h, pl, pa) (((g) << 10) | ((t) << 7) | ((h) << 6) | ((pl) << 4) | (pa))
#define GEN(w) (((w) >> 10) & 15)
#define TURN(w) (((w) >> 7) & 7)
#define HELD(w) (((w) >> 6) & 1)
#define PLACE(w) (((w) >> 4) & 3)
#define PARTY(w) ((w) & 15)
#define STAMP(w) (((w) >> 7) & 127)

/* What a cell says of a word: one push of one use; without the turn, only the use. */
#ifdef MUTANT_NO_TURN
#define NAMED(w) (((w) >> 7) & 120)
#else
#define NAMED(w) STAMP(w)
#endif

/* cell: full 1, lap 4, index 2, stamp 7 */
#define FULLCELL(lap, i, w) ((1 << 13) | ((lap) << 9) | ((i) << 7) | NAMED(w))
#define EMPTYCELL(lap) ((lap) << 9)
#define ISFULL(c) (((c) >> 13) & 1)
#define LAP(c) (((c) >> 9) & 15)
#define INDEX(c) (((c) >> 7) & 3)
#define CSTAMP(c) ((c) & 127)

#define CELL(r, p) cell[(r) * CELLS + ((p) % CELLS)]

short word[OBJECTS];
short cell[4 * CELLS];
byte head; /* the stage's hints */
byte tail;
byte desc[2 * SLOTS]; /* the payload descriptors, of one block each: its index, 0 for none */

/* seats: 0 coordinator, 1 and 2 workers, 3 repairer */
byte party[4];
bool alive[4];
bool killed[4];
byte next_party = 5;
byte deaths_left = DEATHS; /* that the killer may still cause */
#if BACKS > 0
byte backs_left = BACKS;
#endif
byte owed_repair[DEATHS]; /* parties proved dead and not repaired yet */

/* ghosts: what really is, for assertions only */
byte deaths;
byte holder[OBJECTS]; /* who holds it by its own opinion; 0: nobody */
byte submitted;
byte answered;
byte ledger[SLOTS]; /* the coordinator's own table: generation in flight, 0: none */

/* what a sleeper looks at (ring_has_cell) */
#define ISFULLAT(r, p) ISFULL(cell[(r) * CELLS + (p)])
#define ANYCELL(r) (ISFULLAT(r, 0) || ISFULLAT(r, 1) || ISFULLAT(r, 2) || ISFULLAT(r, 3))
#ifdef RINGS
#define HASCELL(r) \
    (r == STAGE -> (ISFULL(CELL(r, head)) || LAP(CELL(r, head)) != head / CELLS) : ANYCELL(r))
#else
#define HASCELL(r) ANYCELL(r)
#endif

/* The dead one takes no more step: now there is proof of death. */
inline die(seat)
{
    owed_repair[deaths] = party[seat];
    alive[seat] = false;
    deaths++
}

/* The last two steps of push and pop: is the hint behind? Then store; a racing store may be lost. */
inline hint_advance(hint, value)
{
    atomic { ahead = (value > hint) };
    atomic {
        if
        :: ahead -> hint = value; ahead = false
        :: else
        fi
    }
}

inline bag_fill(r, index, stamped)
{
    d_step {
        pos = 0;
        do
        :: ISFULLAT(r, pos) -> pos++; assert(pos < CELLS)
        :: else -> break
        od;
        cell[(r) * CELLS + pos] = FULLCELL(0, index, stamped);
        pos = 0
    }
}

#ifdef RINGS
inline fill_cell(r, index, stamped)
{
    if
    :: atomic { r != STAGE -> skip }; bag_fill(r, index, stamped)
    :: atomic { r == STAGE -> pos = tail };
       do
       :: atomic {
              c = CELL(r, pos);
              turns++;
              assert(turns < 4 * CELLS);
              won = false;
              if
              :: LAP(c) > pos / CELLS -> pos = pos + (LAP(c) - pos / CELLS - 1) * CELLS + 1
              :: LAP(c) < pos / CELLS -> assert(false) /* full */
              :: LAP(c) == pos / CELLS && ISFULL(c) -> pos++
              :: else -> won = true
              fi
          };
          atomic {
              if
              :: won && CELL(r, pos) == c ->
                 CELL(r, pos) = FULLCELL(pos / CELLS, index, stamped);
                 won = false;
                 turns = 0;
                 c = 0;
                 break
              :: else
              fi
          }
       od;
       hint_advance(tail, pos + 1);
       atomic { pos = 0 }
    fi
}
#else
inline fill_cell(r, index, stamped)
{
    bag_fill(r, index, stamped)
}
#endif

/* The word's CAS of a push; `held` is the word by which `me` holds the object. */
inline push_word(index, held, waiting, who)
{
    d_step {
        assert(word[index] == held);
        assert(holder[index] == who);
        holder[index] = 0;
        word[index] = waiting;
        if
        :: PLACE(waiting) == STAGE && who == party[0] && index < SLOTS ->
           submitted++;
           ledger[index] = GEN(waiting)
        :: else
        fi
    }
}

inline push(r, index, held, waiting, who)
{
#ifdef MUTANT_CELL_FIRST
    fill_cell(r, index, waiting);
    push_word(index, held, waiting, who)
#else
    push_word(index, held, waiting, who);
    fill_cell(r, index, waiting)
#endif
}

inline claim(by, who)
{
    d_step {
        won = won && (word[INDEX(c)] == w);
        if
        :: won ->
           assert(holder[INDEX(c)] == 0);
           holder[INDEX(c)] = who;
           word[INDEX(c)] = WORD(GEN(w), TURN(w), 1, PLACE(w), by)
        :: else
        fi
    }
}

inline look_at_word(r)
{
    d_step {
        w = word[INDEX(c)];
        won = (!HELD(w) && PLACE(w) == r && NAMED(w) == CSTAMP(c))
    }
}

inline bag_drop(r)
{
    d_step {
        if
        :: cell[(r) * CELLS + pos] == c -> cell[(r) * CELLS + pos] = 0
        :: else
        fi
    }
}

/* Pops a bag: any cell. */
inline bag_pop(r, by, who)
{
    atomic {
        got = NONE;
        if
        :: ISFULLAT(r, 0) -> pos = 0
        :: ISFULLAT(r, 1) -> pos = 1
        :: ISFULLAT(r, 2) -> pos = 2
        :: ISFULLAT(r, 3) -> pos = 3
        :: !ANYCELL(r)
        fi;
        c = cell[(r) * CELLS + pos]
    };
    if
    :: ISFULL(c) ->
       look_at_word(r);
#ifdef MUTANT_DROP_BEFORE_CLAIM
       bag_drop(r);
#endif
       claim(by, who);
#ifndef MUTANT_DROP_BEFORE_CLAIM
       bag_drop(r);
#endif
       d_step {
           if
           :: won -> got = INDEX(c)
           :: else
           fi
       }
    :: else
    fi;
    skip;
    d_step { c = 0; w = 0; pos = 0; won = false }
}

/* Result in `got`: the object's index, NONE if the ring is empty. `by` is what the word says. */
#ifdef RINGS
inline stage_pop(who)
{
    atomic { pos = head; got = NONE };
    do
    :: atomic {
           c = CELL(STAGE, pos);
           turns++;
           assert(turns < 4 * CELLS);
           won = false;
           if
           :: LAP(c) > pos / CELLS -> pos = pos + (LAP(c) - pos / CELLS - 1) * CELLS + 1; c = 0
           :: LAP(c) < pos / CELLS -> assert(false)
           :: LAP(c) == pos / CELLS && !ISFULL(c) -> pos--; break
           :: else
           fi
       };
       if
       :: ISFULL(c) ->
          look_at_word(STAGE);
          claim(who, who);
          d_step {
              if
              :: CELL(STAGE, pos) == c -> CELL(STAGE, pos) = EMPTYCELL(pos / CELLS + 1)
              :: else
              fi
          };
          atomic {
              if
              :: won -> got = INDEX(c); break
              :: else
              fi
          };
          hint_advance(head, pos + 1);
          atomic { pos++ }
       :: else
       fi
    od;
    hint_advance(head, pos + 1);
    atomic { c = 0; w = 0; pos = 0; won = false; turns = 0 }
}
#else
inline stage_pop(who)
{
    bag_pop(STAGE, who, who)
}
#endif

/* Gives one block back that `slot` holds, if it does. */
inline block_release(b, slot, who)
{
    d_step { w2 = word[b] };
    if
    :: HELD(w2) && PARTY(w2) == slot ->
       push(BLOCK, b, w2, WORD(GEN(w2) + 1, 0, 0, BLOCK, who), slot + 100)
    :: else
    fi;
    w2 = 0
}

#ifdef RINGS
/* Submits and answers in one step each, but for the push to the stage. */
proctype coordinator()
{
    byte pos, slot, turns;
    short c, own;
    bool won, ahead;
    do
    :: submitted < REQUESTS && ANYCELL(FREE) ->
       d_step {
           do
           :: !ISFULLAT(FREE, pos) -> pos++
           :: else -> break
           od;
           slot = INDEX(cell[FREE * CELLS + pos]);
           cell[FREE * CELLS + pos] = 0;
           assert(!HELD(word[slot]) && PLACE(word[slot]) == FREE && holder[slot] == 0);
           holder[slot] = 1;
           word[slot] = WORD(GEN(word[slot]), TURN(word[slot]), 1, FREE, 1);
           own = word[slot];
           pos = 0
       };
       push(STAGE, slot, own, WORD(GEN(own), TURN(own) + 1, 0, STAGE, 1), 1);
       d_step { slot = 0; own = 0 }
    :: ANYCELL(RESULT) ->
       d_step {
           do
           :: !ISFULLAT(RESULT, pos) -> pos++
           :: else -> break
           od;
           slot = INDEX(cell[RESULT * CELLS + pos]);
           cell[RESULT * CELLS + pos] = 0;
           pos = 0;
           if
           :: !HELD(word[slot]) && PLACE(word[slot]) == RESULT ->
              assert(holder[slot] == 0 && ledger[slot] == GEN(word[slot]));
              ledger[slot] = 0;
              answered++;
              word[slot] = WORD(GEN(word[slot]) + 1, 0, 0, FREE, 1);
              do
              :: ISFULLAT(FREE, pos) -> pos++
              :: else -> break
              od;
              cell[FREE * CELLS + pos] = FULLCELL(0, slot, word[slot]);
              pos = 0
           :: else
           fi;
           slot = 0
       }
    od
}
#else
proctype coordinator()
{
    byte me, pos, got, slot, b, turns, i;
    short c, w, w2, own;
    bool won, ahead;
start:
    skip;
    d_step { me = party[0]; alive[0] = true };
    {
        do
        :: submitted < REQUESTS && HASCELL(FREE) ->
           bag_pop(FREE, me, me);
           if
           :: got != NONE ->
              d_step { slot = got; got = NONE; own = word[slot] };
#if BLOCKS > 0
              /* the payload's block, then the descriptor for the first stage */
              do
              :: got == NONE -> (HASCELL(BLOCK)); bag_pop(BLOCK, slot, slot + 100)
              :: else -> break
              od;
              skip;
              d_step { desc[2 * slot] = got; got = NONE };
#endif
              push(STAGE, slot, own, WORD(GEN(own), TURN(own) + 1, 0, STAGE, me), me);
              d_step { slot = 0; own = 0 }
           :: else
           fi
        :: HASCELL(RESULT) ->
           bag_pop(RESULT, me, me);
           if
           :: got != NONE ->
              d_step { slot = got; got = NONE; own = word[slot] };
              d_step {
                  if
                  :: ledger[slot] == GEN(own) ->
                     /* the answer is read from blocks that are this slot's, and from no other's */
#if BLOCKS > 0
                     b = desc[2 * slot + 1];
                     assert(b != 0 && HELD(word[b]) && PARTY(word[b]) == slot);
#endif
                     answered++;
                     ledger[slot] = 0;
                     b = 0
                  :: else /* a predecessor that died while it released has answered */
                  fi
              };
              /* slot_release */
#if BLOCKS > 0
              i = 0;
              do
              :: i < 2 ->
                 d_step { b = desc[2 * slot + i] };
                 if
                 :: b != 0 -> block_release(b, slot, me)
                 :: else
                 fi;
                 d_step { desc[2 * slot + i] = 0; i++; b = 0 }
              :: else -> i = 0; break
              od;
#endif
              push(FREE, slot, own, WORD(GEN(own) + 1, 0, 0, FREE, me), me);
              d_step { slot = 0; own = 0 }
           :: else
           fi
        od
    } unless { killed[0] };
    d_step { die(0); pos = 0; got = 0; slot = 0; b = 0; turns = 0; i = 0; c = 0; w = 0; w2 = 0; own = 0;
             won = false; ahead = false; me = 0 };
    (!killed[0]);
    goto start
}

#endif

proctype worker(byte seat)
{
    byte me, pos, got, slot, turns;
    short c, w, own;
    bool won, ahead;
start:
    skip;
    d_step { me = party[seat]; alive[seat] = true };
    {
        do
        :: HASCELL(STAGE) ->
           stage_pop(me);
           if
           :: got != NONE ->
              d_step { slot = got; got = NONE; own = word[slot] };
#if BACKS > 0
              if
              :: atomic { backs_left > 0 -> backs_left-- };
                 push(STAGE, slot, own, WORD(GEN(own), TURN(own) + 1, 0, STAGE, me), me);
                 d_step { slot = 0; own = 0 };
                 goto handed_back
              :: skip
              fi;
#endif
#if BLOCKS > 0
              do /* the output's block */
              :: got == NONE -> (HASCELL(BLOCK)); bag_pop(BLOCK, slot, slot + 100)
              :: else -> break
              od;
              skip;
              d_step { desc[2 * slot + 1] = got; got = NONE };
#endif
#ifdef RINGS
              atomic {
                  push_word(slot, own, WORD(GEN(own), TURN(own) + 1, 0, RESULT, me), me);
                  bag_fill(RESULT, slot, word[slot])
              };
#else
              push(RESULT, slot, own, WORD(GEN(own), TURN(own) + 1, 0, RESULT, me), me);
#endif
              d_step { slot = 0; own = 0 }
           :: else
           fi;
#if BACKS > 0
handed_back:
           skip
#endif
        od
    } unless { killed[seat] };
    d_step { die(seat); pos = 0; got = 0; slot = 0; turns = 0; c = 0; w = 0; own = 0; won = false;
             ahead = false; me = 0 };
    (!killed[seat]);
    goto start
}

/* Notes the waiting objects of `dead`, forgets those that a cell names, pushes the others. */
inline repair_waiting(first, end, ring_first, ring_end)
{
    i = first;
    s = 0;
    do
    :: d_step {
           i < end;
           judged[i] = 0;
           if
           :: !HELD(word[i]) && PARTY(word[i]) == dead -> judged[i] = word[i]; s++
           :: else
           fi;
           i++
       }
    :: atomic { i == end -> i = ring_first * CELLS; break }
    od;
    do
    :: d_step {
           s != 0 && i < ring_end * CELLS;
           c = cell[i];
           if
           :: ISFULL(c) && judged[INDEX(c)] != 0 && PLACE(judged[INDEX(c)]) == i / CELLS &&
              NAMED(judged[INDEX(c)]) == CSTAMP(c) -> judged[INDEX(c)] = 0
           :: else
           fi;
           c = 0;
           i++
       }
    :: atomic { s == 0 || i == ring_end * CELLS -> i = first; s = 0; break }
    od;
    do
    :: atomic { i < end && judged[i] == 0 -> i++ }
    :: i < end && judged[i] != 0 ->
       d_step {
#ifdef MUTANT_CURRENT_WORD
           won = true; /* changes whatever is there now */
#else
           won = (word[i] == judged[i]);
#endif
           if
           :: won -> word[i] = judged[i] - dead + me
           :: else
           fi
       };
       if
       :: won -> fill_cell(PLACE(judged[i]), i, judged[i])
       :: else
       fi;
       judged[i] = 0;
       i++
    :: else -> break
    od
}

inline take_over_held()
{
    i = 0;
    do
    :: d_step {
           i < SLOTS;
           judged[i] = 0;
           if
           :: HELD(word[i]) && PARTY(word[i]) == dead ->
              assert(holder[i] == dead);
              holder[i] = me;
              word[i] = word[i] - dead + me;
              judged[i] = word[i]
           :: else
           fi;
           i++
       }
    :: else -> break
    od
}

#define VALID(slot, b) \
    (PLACE(judged[slot]) != FREE && desc[2 * (slot) + (PLACE(judged[slot]) & 1)] == (b))

inline release_unnamed()
{
    i = SLOTS;
    do
    :: i < OBJECTS ->
       d_step { w = word[i]; won = false; s = 0 };
       d_step {
           if
           :: HELD(w) && judged[PARTY(w)] != 0 -> s = PARTY(w); won = !VALID(s, i)
           :: else
           fi
       };
       if
       :: won ->
          d_step { w = word[i]; won = (HELD(w) && PARTY(w) == s) };
          if
          :: won -> push(BLOCK, i, w, WORD(GEN(w) + 1, 0, 0, BLOCK, me), s + 100)
          :: else
          fi
       :: else
       fi;
       d_step { i++; w = 0; s = 0 }
    :: else -> break
    od
}

inline push_taken_over()
{
    i = 0;
    do
    :: i < SLOTS && judged[i] == 0 -> i++
    :: i < SLOTS && judged[i] != 0 ->
       if
       :: PLACE(judged[i]) != FREE -> d_step { desc[2 * i + ((PLACE(judged[i]) + 1) & 1)] = 0 }
       :: else
       fi;
       if
       :: PLACE(judged[i]) == FREE ->
          w = WORD(GEN(judged[i]) + 1, 0, 0, FREE, me)
       :: else ->
          w = WORD(GEN(judged[i]), TURN(judged[i]) + 1, 0, PLACE(judged[i]), me)
       fi;
       push(PLACE(judged[i]), i, judged[i], w, me);
#ifndef MUTANT_BLOCKS_AFTER_PUSH
       judged[i] = 0;
#endif
       i++;
       w = 0
    :: else -> break
    od
}

proctype repairer()
{
    byte me, dead, pos, turns, i, s, n;
    short c, w;
    bool won, ahead;
    short judged[OBJECTS];
start:
    skip;
    d_step { me = party[3]; alive[3] = true };
    {
        do
        :: owed_repair[0] != 0 || owed_repair[DEATHS - 1] != 0 ->
           if /* in any order */
           :: owed_repair[0] != 0 -> n = 0
           :: owed_repair[DEATHS - 1] != 0 -> n = DEATHS - 1
           fi;
           dead = owed_repair[n];
#ifndef MUTANT_NO_WAITING_PASS
#ifdef RINGS
           repair_waiting(0, SLOTS, STAGE, RESULT); /* nobody owes a push to another ring */
#else
           repair_waiting(0, SLOTS, STAGE, BLOCK);
#endif
#endif
           take_over_held();
#ifdef MUTANT_BLOCKS_AFTER_PUSH
           push_taken_over();
           release_unnamed();
#else
#if BLOCKS > 0 && !defined(MUTANT_NO_UNNAMED_BLOCKS)
           release_unnamed();
#endif
           push_taken_over();
#endif
#if BLOCKS > 0
           repair_waiting(SLOTS, OBJECTS, BLOCK, (BLOCK + 1));
#endif
           skip;
           d_step {
               owed_repair[n] = 0;
               i = 0;
               do
               :: i < 3 ->
                  if
                  :: killed[i] && party[i] == dead ->
                     killed[i] = false; party[i] = next_party; next_party++
                  :: else
                  fi;
                  i++
               :: else -> break
               od;
               for (i : 0 .. OBJECTS - 1) { judged[i] = 0 };
               i = 0; n = 0; dead = 0; pos = 0; turns = 0; s = 0; c = 0; w = 0; won = false
           }
        od
    } unless { killed[3] };
    d_step {
        for (i : 0 .. OBJECTS - 1) { judged[i] = 0 };
        i = 0; n = 0; dead = 0; pos = 0; turns = 0; s = 0; c = 0; w = 0; won = false;
        ahead = false; me = 0;
        die(3);
        killed[3] = false;
        party[3] = next_party;
        next_party++
    };
    goto start
}

inline kill(seat)
{
    killed[seat] = true;
    deaths_left--
}

proctype killer()
{
end:
    do
#if !defined(RINGS) && (MORTALS & 1)
    :: d_step { deaths_left > 0 && alive[0] && !killed[0]; kill(0) }
#endif
#if MORTALS & 2
    :: d_step { deaths_left > 0 && alive[1] && !killed[1]; kill(1) }
#endif
#if MORTALS & 4
    :: d_step { deaths_left > 0 && alive[2] && !killed[2]; kill(2) }
#endif
#if MORTALS & 8
    :: d_step { deaths_left > 0 && alive[3] && !killed[3]; kill(3) }
#endif
    :: d_step { deaths_left > 0; deaths_left = 0 } /* no more deaths */
    od
}

/* When nothing moves any more. */
proctype judge()
{
    byte i, p, r;
    timeout;
    d_step {
        assert(submitted == REQUESTS);
        assert(answered == REQUESTS);
        for (i : 0 .. OBJECTS - 1) {
            assert(!HELD(word[i]));
            assert(holder[i] == 0);
            r = (i < SLOTS -> FREE : BLOCK);
            assert(PLACE(word[i]) == r);
            p = 0;
            do
            :: p < CELLS && !(ISFULL(cell[r * CELLS + p]) && INDEX(cell[r * CELLS + p]) == i &&
                              CSTAMP(cell[r * CELLS + p]) == NAMED(word[i])) -> p++
            :: else -> break
            od;
            assert(p < CELLS) /* a cell names it */
        }
    }
}

init {
    byte i;
    d_step {
        for (i : 0 .. OBJECTS - 1) {
            if
            :: i < SLOTS -> word[i] = WORD(1, 0, 0, FREE, 1);
                            cell[FREE * CELLS + i] = FULLCELL(0, i, word[i])
            :: else -> word[i] = WORD(1, 0, 0, BLOCK, 1);
                       cell[BLOCK * CELLS + i - SLOTS] = FULLCELL(0, i, word[i])
            fi
        };
        for (i : 0 .. 3) { party[i] = i + 1 }
    };
    atomic {
        run coordinator(); run worker(1); run worker(2); run repairer(); run killer(); run judge()
    }
}
