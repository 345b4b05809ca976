/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/crash.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "base/check.h"
#include "worker/crash_line.h"
#include "worker/crash_symbols.h"
#include "worker/host.h"

enum {
    STACK_BYTES = 128 << 10, /* several frames of a signal with all of AVX-512's registers */
    FAULTS_MAX = 6,          /* of the handler */
    STACK_NEAR_BYTES = 64 << 10,
    UNWOUND_MAX = 20000,
};

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

/* ---- what is going on ---- */

struct crash_scene {
    enum crash_doing doing;
    const char *model;
    struct shoal_item *const *items;
    uint32_t count;
};

static _Thread_local struct crash_scene own_scene;
static const struct crash_scene *main_scene;
static const struct handshake_start *start;
static char program[HANDSHAKE_NAME_BYTES + 16];

void
crash_begin(enum crash_doing doing, const char *model)
{
    own_scene = (struct crash_scene){.doing = doing, .model = model};
}

void
crash_begin_run(const char *model, struct shoal_item *const *items, uint32_t count)
{
    own_scene = (struct crash_scene){CRASH_RUN, model, items, count};
}

void
crash_end(void)
{
    own_scene.doing = CRASH_NOTHING;
}

/* ---- the report, step by step: a fault in one goes on with the next ---- */

enum crash_step { STEP_HEAD, STEP_SLOTS, STEP_CALLER, STEP_UNWIND, STEP_FRAMES, STEP_END };

static struct crash {
    pid_t thread; /* the one that reports; 0: none yet */
    enum crash_step step;
    int number;
    siginfo_t info;
    uintptr_t code;      /* address of the instruction that faulted */
    uintptr_t stack;     /* its stack pointer */
    uintptr_t return_to; /* what the link register of an ARM said */
    uint32_t faults;     /* of the handler */
    bool nameless;       /* after a fault while a function was looked up */
    bool found;          /* the faulting frame, beneath the handler's own */
    uint32_t frame_count;
    uint32_t frame_next;
    uint32_t unwound;
    uintptr_t frames[CRASH_FRAMES_MAX];
    uint32_t repeats[CRASH_FRAMES_MAX]; /* of a function that calls itself */
} crash;

static const char *
doing_name(enum crash_doing doing)
{
    static const char *const names[] = {
        [CRASH_NOTHING] = "nothing", [CRASH_START] = "start",     [CRASH_LOAD] = "load",
        [CRASH_UNLOAD] = "unload",   [CRASH_PREDICT] = "predict", [CRASH_RUN] = "run"};
    return doing < ARRAY_COUNT(names) ? names[doing] : "?";
}

/* A thread of the modelet's works for the main thread, as far as we know. */
static struct crash_scene
scene(void)
{
    if (own_scene.doing != CRASH_NOTHING || main_scene == NULL)
        return own_scene;
    return *main_scene;
}

static void
add_cause(struct crash_line *line)
{
    uintptr_t address = (uintptr_t)crash.info.si_addr;
    bool by_kernel = crash.info.si_code > 0;
    bool memory = crash.number == SIGSEGV || crash.number == SIGBUS;
    if (!by_kernel) {
        crash_line_number(line, "sent_by", crash.info.si_pid);
        return;
    }
    crash_line_address(line, "address", address);
    if (memory && address + STACK_NEAR_BYTES > crash.stack &&
        address < crash.stack + STACK_NEAR_BYTES)
        crash_line_text(line, "why", "stack overflow");
    else if (crash.number == SIGSEGV)
        crash_line_text(line, "why",
                        crash.info.si_code == SEGV_MAPERR   ? "nothing is mapped there"
                        : crash.info.si_code == SEGV_ACCERR ? "no such access there"
                                                            : "no valid address");
    else if (crash.number == SIGBUS)
        crash_line_text(line, "why", "beyond the end of a file, or not aligned");
}

static void
write_head(void)
{
    struct crash_line line;
    char thread[16] = "?";
    const char *name = sigabbrev_np(crash.number);
    (void)prctl(PR_GET_NAME, thread);
    crash_line_begin(&line, program, "worker_crashed");
    crash_line_text(&line, "pipeline", start->pipeline);
    crash_line_text(&line, "stage", start->stage);
    crash_line_number(&line, "worker", start->worker_index);
    crash_line_number(&line, "pid", getpid());
    crash_line_text(&line, "thread", thread);
    crash_line_open(&line, "signal");
    crash_line_add(&line, "SIG");
    crash_line_add(&line, name != NULL ? name : "?");
    crash_line_close(&line);
    add_cause(&line);
    struct crash_scene now = scene();
    crash_line_text(&line, "during", doing_name(now.doing));
    if (now.doing != CRASH_NOTHING && now.model != NULL && now.model[0] != '\0')
        crash_line_text(&line, "model", now.model);
    crash_line_write(&line);
}

/* The coordinator, which knows the callers' ids, logs them by these slots. */
static void
write_slots(void)
{
    struct crash_scene now = scene();
    if (now.doing != CRASH_RUN)
        return;
    struct crash_line line;
    crash_line_begin(&line, program, "worker_crashed_batch");
    crash_line_number(&line, "pid", getpid());
    crash_line_number(&line, "items", now.count);
    crash_line_open(&line, "slots");
    for (uint32_t i = 0; i < now.count && i < CRASH_SLOTS_MAX; i++) {
        crash_line_add(&line, i > 0 ? " " : "");
        crash_line_add_decimal(&line, item_of(now.items[i])->ticket.index);
    }
    crash_line_close(&line);
    crash_line_write(&line);
}

/* The unwinder's view of our own frames, the signal's, and then those of the fault. Return
 * addresses are moved into the call. */
static _Unwind_Reason_Code
take_frame(struct _Unwind_Context *context, void *unused)
{
    int exact = 0;
    uintptr_t code = _Unwind_GetIPInfo(context, &exact);
    (void)unused;
    if (!crash.found) {
        crash.found = exact != 0 && code == crash.code;
        return _URC_NO_REASON;
    }
    uintptr_t call = exact != 0 ? code : code - 1;
    if (code == 0 || ++crash.unwound == UNWOUND_MAX)
        return _URC_END_OF_STACK;
    if (call == crash.frames[crash.frame_count - 1]) {
        crash.repeats[crash.frame_count - 1]++;
        return _URC_NO_REASON;
    }
    if (crash.frame_count == CRASH_FRAMES_MAX)
        return _URC_END_OF_STACK;
    crash.frames[crash.frame_count++] = call;
    return _URC_NO_REASON;
}

/* After a call of a wild pointer the unwinder knows no frame, but the caller's address is where the
 * call put it. */
static void
take_caller_of_nothing(void)
{
    struct crash_symbol symbol;
    crash_symbol_locate(crash.code, &symbol);
    if (symbol.file != NULL)
        return;
#if defined(__x86_64__)
    uintptr_t caller = *(const uintptr_t *)crash.stack; /* NOLINT: an address is all there is */
#else
    uintptr_t caller = crash.return_to;
#endif
    if (caller != 0)
        crash.frames[crash.frame_count++] = caller - 1;
}

static void
unwind(void)
{
    (void)_Unwind_Backtrace(take_frame, NULL);
}

static void
write_frame(uint32_t frame)
{
    uintptr_t code = crash.frames[frame];
    struct crash_line line;
    struct crash_symbol symbol;
    crash_symbol_locate(code, &symbol);
    if (!crash.nameless)
        crash_symbol_name(code, &symbol);
    crash_line_begin(&line, program, "worker_frame");
    crash_line_number(&line, "pid", getpid());
    crash_line_number(&line, "frame", frame);
    crash_line_open(&line, "at");
    if (symbol.file != NULL) {
        crash_line_add(&line, symbol.file);
        crash_line_add(&line, "+");
    }
    crash_line_add_hex(&line, symbol.offset);
    crash_line_close(&line);
    if (symbol.function != NULL) {
        crash_line_open(&line, "in");
        crash_line_add(&line, symbol.function);
        crash_line_add(&line, "+");
        crash_line_add_hex(&line, symbol.function_offset);
        crash_line_close(&line);
    }
    if (crash.repeats[frame] > 0)
        crash_line_number(&line, "repeated", crash.repeats[frame]);
    crash_line_write(&line);
}

static void
write_frames(void)
{
    for (; crash.frame_next < crash.frame_count; crash.frame_next++)
        write_frame(crash.frame_next);
}

static void
report(void)
{
    static void (*const steps[])(void) = {write_head, write_slots, take_caller_of_nothing, unwind,
                                          write_frames};
    for (; crash.step < STEP_END; crash.step++)
        steps[crash.step]();
}

/* ---- dying ---- */

static void
set_handler(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigset_t set;
    sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, number);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Dies of the signal, with the kernel's own record of it for a core file. */
static void
die(void)
{
    set_handler(crash.number, SIG_DFL);
    (void)syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), crash.number, &crash.info);
    (void)syscall(SYS_tgkill, getpid(), gettid(), crash.number);
    _exit(128 + crash.number); /* only if a filter of the modelet's own forbids signals */
}

static void
on_late(int number)
{
    (void)number;
    die();
}

/* ---- the handler ---- */

static void
begin(int number, const siginfo_t *info, const ucontext_t *context)
{
    crash.number = number;
    crash.info = *info;
#if defined(__x86_64__)
    crash.code = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    crash.stack = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    crash.code = context->uc_mcontext.pc;
    crash.stack = context->uc_mcontext.sp;
    crash.return_to = context->uc_mcontext.regs[30];
#endif
    crash.frames[crash.frame_count++] = crash.code;
    set_handler(SIGALRM, on_late);
    (void)alarm(CRASH_SECONDS);
}

/* A fault of the handler comes here again: the step that faulted is given up. */
static void
on_own_fault(void)
{
    if (++crash.faults > FAULTS_MAX)
        die();
    if (crash.step == STEP_FRAMES && !crash.nameless)
        crash.nameless = true; /* the same frame once more */
    else
        crash.step++;
}

static void
on_fault(int number, siginfo_t *info, void *context)
{
    pid_t nobody = 0;
    pid_t thread = gettid();
    if (__atomic_compare_exchange_n(&crash.thread, &nobody, thread, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
        begin(number, info, context);
    } else if (nobody == thread) {
        on_own_fault();
    } else {
        for (;;) /* the other thread ends the process */
            (void)pause();
    }
    report();
    die();
}

/* ---- installation ---- */

/* A sanitizer has given the thread a stack already. */
static void
use_stack(const stack_t *stack)
{
    stack_t before;
    if (sigaltstack(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE))
        (void)sigaltstack(stack, NULL);
}

void
crash_stack_for_loader(void)
{
    static _Alignas(64) char bytes[STACK_BYTES];
    use_stack(&(const stack_t){.ss_sp = bytes, .ss_size = sizeof(bytes)});
}

void
crash_catch(const struct handshake_start *orders)
{
    static _Alignas(64) char bytes[STACK_BYTES];
    start = orders;
    main_scene = &own_scene;
    (void)snprintf(program, sizeof(program), "shoal:%s.%u", orders->stage, orders->worker_index);
    crash_symbols_keep();
    use_stack(&(const stack_t){.ss_sp = bytes, .ss_size = sizeof(bytes)});
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, SIGALRM);
    for (size_t i = 0; i < ARRAY_COUNT(faults); i++)
        sigdelset(&action.sa_mask, faults[i]);
    for (size_t i = 0; i < ARRAY_COUNT(faults); i++) {
        struct sigaction before;
        if (sigaction(faults[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            CHECK(sigaction(faults[i], &action, NULL) == 0);
    }
}
