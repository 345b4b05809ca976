/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guests of a lane, as its roster keeps them: the regions of local clients, which the lane's
 * workers serve beside their own (shm/DESIGN-clients.md). A guest's region is planned here and
 * made by the maker, and from then on never mapped: its client can take pages out of it, and a load
 * from one that is not to be had again would end us.
 *
 * A number is free again when every worker that was told of the guest has said that it left, or is
 * dead: so the memory of guests is bounded, however fast clients come and go. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/workers/maker.h"
#include "shm/guests.h"
#include "shm/handshake.h"

struct roster;
struct seat;

/* Its owner: the session of its client. */
struct guest_owner {
    /* It was found corrupt, or could not be served: it is, and is not to be dismissed. */
    void (*lost)(void *context, const char *why);
    /* It is about to end; its region is still served. */
    void (*ends)(void *context);
    /* The lane has ended, or has a successor: no worker of it is in the guest any more, and its
     * memory is its client's alone. Not to be dismissed either. */
    void (*ended)(void *context);
    /* A worker has died; `held`: with something of this guest in hand. */
    void (*party_died)(void *context, uint16_t party, bool held);
    void *context;
};

enum guest_state {
    GUEST_FREE,
    GUEST_SERVED,
    GUEST_ENDING, /* we end it: stage by stage, workers finish what they hold; its pages are kept */
    GUEST_LEAVING, /* its client has gone, or is not to be trusted: its pages are taken out */
};

struct lane_guest {
    enum guest_state state;
    bool keeps_pages; /* LEAVING: its client still reads what it was answered */
    uint32_t stage;   /* ENDING: the first that some worker may still be at work for */
    int fd;
    uint64_t bytes;
    uint64_t serial;
    struct guest_owner owner;
};

/* The sizes that a client asks for; 0: as much as it may have. */
struct guest_wish {
    uint32_t slots;
    uint64_t message_bytes;
    bool moves; /* it was served by another lane of the pipeline, and takes nobody's place */
};

/* The region that a client is to have here. INVALID_ARGUMENT: larger messages than there may be. */
enum status roster_guest_plan(const struct roster *roster, const struct guest_wish *wish,
                              struct region_plan *plan, struct error *error) WARN_UNUSED;

/* Gives a region, of roster_guest_plan, to all workers. In success it is the roster's, and none any
 * more. RESOURCE_EXHAUSTED: there are as many as there may be. */
enum status roster_guest_admit(struct roster *roster, const struct guest_wish *wish,
                               const struct guest_owner *owner, struct made_region *region,
                               uint32_t *number, struct error *error) WARN_UNUSED;
/* Its client has gone, or, with `keeps_pages`, has left a node that stops, and may be about to read
 * its last answers: then the memory goes with the later of both. */
void roster_guest_dismiss(struct roster *roster, uint32_t number, bool keeps_pages);
/* No worker is left: what was still leaving has left. */
void roster_guests_fini(struct roster *roster);

/* ---- called by the seats ---- */

/* Its process serves from now on, and is to know all guests. */
void seat_tell_guests(struct seat *seat);
/* The worker says something of a guest; false: what cannot be. */
bool seat_hears_of_guest(struct seat *seat, const struct handshake_guest *word);
/* Its process is dead; returns the guests of which it held something, a bit each. */
uint32_t seat_leaves_guests(struct seat *seat);
