// Events. Most events have fired by the time a client asks for them: those
// share one static object, so a small call allocates nothing for its events.
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

static PJRT_Event ready_event;

PJRT_Event *at_pjrt_event_ready(void) { return &ready_event; }

// Three cases: no event, or one that fired well, is the shared object; one that
// fired with an error or is still to come gets a handle, so that the error can
// be read.
PJRT_Event *at_pjrt_event_take(at_event *e) {
  if (!e) return &ready_event;
  if (at_event_fired(e)) {
    at_status s = at_event_status(e);
    if (at_ok(s)) {
      at_event_release(e);
      return &ready_event;
    }
    at_status_free(s);
  }
  PJRT_Event *p = calloc(1, sizeof *p);
  if (!p) {
    at_event_release(e);
    return NULL;
  }
  p->event = e;
  return p;
}

// For calls that do their work at once but return an event. OK costs nothing;
// an error is put into an event of its own.
at_status at_pjrt_event_fired(at_status s, PJRT_Event **out) {
  if (at_ok(s)) {
    *out = &ready_event;
    return AT_OK;
  }
  at_event *e = at_event_create();
  if (!e) {
    at_status_free(s);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory for an event");
  }
  at_event_fire(e, s);
  PJRT_Event *p = at_pjrt_event_take(e);
  if (!p)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory for an event");
  *out = p;
  return AT_OK;
}

// Whoever waits for the event keeps a reference of the at_event, so a handle
// may go before it fires.
AT_API(Event_Destroy) {
  AT_ARGS(PJRT_Event_Destroy_Args);
  if (!a->event || a->event == &ready_event) return NULL;
  at_event_release(a->event->event);
  free(a->event);
  return NULL;
}

// Never blocks. An event with an error is ready, too.
AT_API(Event_IsReady) {
  AT_ARGS(PJRT_Event_IsReady_Args);
  AT_HANDLE(a->event);
  a->is_ready = !a->event->event || at_event_fired(a->event->event);
  return NULL;
}

// The event's error as a new object, or NULL for success. Asking an event that
// has not fired is the client's mistake.
AT_API(Event_Error) {
  AT_ARGS(PJRT_Event_Error_Args);
  AT_HANDLE(a->event);
  if (!a->event->event) return NULL;
  if (!at_event_fired(a->event->event))
    return AT_PFAIL(AT_FAILED_PRECONDITION,
                    "PJRT_Event_Error: the event is not ready\n"
                    "hint: call PJRT_Event_Await first");
  return at_pjrt_error(at_event_status(a->event->event));
}

// Blocks the caller's thread; a fiber yields instead. Returns the event's
// error.
AT_API(Event_Await) {
  AT_ARGS(PJRT_Event_Await_Args);
  AT_HANDLE(a->event);
  if (!a->event->event) return NULL;
  return at_pjrt_error(at_event_wait(a->event->event));
}

// A callback that waits for an event; freed when it is called.
typedef struct on_ready {
  PJRT_Event_OnReadyCallback callback;
  void *user_arg;
  bool of_launch;
} on_ready;

// Runs on the thread that fires the event, which may be the runtime's: so
// objects that the callback destroys must not end the runtime here
// (at_pjrt_callback_enter). Errors of launches count as read whether or not the
// callback looks at them.
static void call_on_ready(at_status s, void *arg) {
  on_ready r = *(on_ready *)arg;
  free(arg);
  at_pjrt_callback_enter();
  r.callback(r.of_launch && s.err ? at_pjrt_error_make(s) : at_pjrt_error(s),
             r.user_arg);
  at_pjrt_callback_leave();
}

// Calls back at once where the event has fired, on this thread; else on the
// thread that fires it. The callback owns the error that it is handed.
AT_API(Event_OnReady) {
  AT_ARGS(PJRT_Event_OnReady_Args);
  AT_HANDLE(a->event);
  AT_HANDLE(a->callback);
  if (!a->event->event) {
    a->callback(NULL, a->user_arg);
    return NULL;
  }
  on_ready *r = malloc(sizeof *r);
  if (!r) return AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  *r = (on_ready){a->callback, a->user_arg, a->event->of_launch};
  // The callback may destroy the event: keep it until the call is over.
  at_event *e = at_event_retain(a->event->event);
  at_status s = at_event_on(e, call_on_ready, r);
  at_event_release(e);
  if (!at_ok(s)) free(r);
  return at_pjrt_error(s);
}

// An event that the client fires itself (PJRT_Event_Set). It is never the
// shared object, as it has not fired.
AT_API(Event_Create) {
  AT_ARGS(PJRT_Event_Create_Args);
  at_event *e = at_event_create();
  PJRT_Event *p = e ? calloc(1, sizeof *p) : NULL;
  if (!p) {
    if (e) at_event_release(e);
    return AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory for an event");
  }
  p->event = e;
  a->event = p;
  return NULL;
}

// Fires a client's event once. Two threads that set it at the same time are the
// client's mistake: the check is no lock.
AT_API(Event_Set) {
  AT_ARGS(PJRT_Event_Set_Args);
  AT_HANDLE(a->event);
  if (!a->event->event || at_event_fired(a->event->event))
    return AT_PFAIL(AT_FAILED_PRECONDITION,
                    "PJRT_Event_Set: the event has been set already");
  at_event_fire(a->event->event,
                at_pjrt_status_of(a->error_code, a->error_message,
                                  a->error_message_size));
  return NULL;
}
