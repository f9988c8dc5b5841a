// Events.
#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

// CUDA Runtime API, cudaEventQuery and cudaEventSynchronize: an event that was never recorded counts as complete.
PROBE(unrecorded_event_is_complete) {
  const Event event;
  OK(cudaEventQuery(event));
  OK(cudaEventSynchronize(event));
}

// CUDA Runtime API, cudaStreamWaitEvent: if cudaEventRecord was not called on the event, the call does nothing.
PROBE(wait_for_unrecorded_event_waits_for_nothing) {
  const Stream recorded_later;
  const Stream waiting;
  const Event event;
  Gate gate{recorded_later};
  OK(cudaStreamWaitEvent(waiting, event));
  OK(cudaEventRecord(event, recorded_later));
  wait(waiting);
}

// CUDA Runtime API, cudaEventQuery: cudaErrorNotReady until all work that was captured by the last record is done.
PROBE(event_query_tells_whether_its_work_is_done) {
  const Stream stream;
  const Event event;
  Gate gate{stream};
  OK(cudaEventRecord(event, stream));
  expect_waits("the event answers", event);
  gate.open();
  wait(event);
  OK(cudaEventQuery(event));
}

// CUDA Runtime API, cudaEventRecord: captures the stream's contents at the time of the call, not later work.
PROBE(event_does_not_wait_for_later_work) {
  const Stream stream;
  const Event event;
  const Array<int> at{{0}};
  OK(launch_fill(at.data(), 1, 1, stream));
  OK(cudaEventRecord(event, stream));
  Gate gate{stream};
  wait(event);
  expect_waits("the stream answers", stream);
}

// CUDA Runtime API, cudaEventRecord: a further call on the event overwrites what it captured before.
PROBE(event_record_replaces_the_last) {
  const Stream done;
  const Stream held;
  const Event event;
  OK(cudaEventRecord(event, done));
  wait(event);
  Gate gate{held};
  OK(cudaEventRecord(event, held));
  expect_waits("the event answers", event);
}

// CUDA Runtime API, cudaStreamWaitEvent: the stream waits for the event's most recent record at the time of the call; a
// later record of the event changes nothing.
PROBE(wait_uses_the_record_of_its_time) {
  const Stream held;
  const Stream done;
  const Stream waiting;
  const Event event;
  Gate gate{held};
  OK(cudaEventRecord(event, held));
  OK(cudaStreamWaitEvent(waiting, event));
  OK(cudaEventRecord(event, done));
  wait(event);
  expect_waits("the waiting stream answers", waiting);
  gate.open();
  wait(waiting);
}
PROBE(wait_is_not_prolonged_by_a_later_record) {
  const Stream held;
  const Stream done;
  const Stream waiting;
  const Event event;
  OK(cudaEventRecord(event, done));
  OK(cudaStreamWaitEvent(waiting, event));
  Gate gate{held};
  OK(cudaEventRecord(event, held));
  wait(waiting);
  expect_waits("the event answers", event);
}

// CUDA Runtime API, cudaStreamWaitEvent: all later work of the stream waits for the event's work.
PROBE(wait_orders_streams) {
  const Stream first;
  const Stream second;
  const Event event;
  const Array<int> from{{1}};
  const Array<int> to{{0}};
  Gate gate{first};
  OK(launch_fill(from.data(), 1, 9, first));
  OK(cudaEventRecord(event, first));
  OK(cudaStreamWaitEvent(second, event));
  OK(launch_copy(from.data(), to.data(), second));
  expect_waits("the waiting stream answers", second);
  gate.open();
  wait(second);
  expect("the kernel after the wait reads", to.values()[0], 9);
}

// CUDA Runtime API, cudaStreamWaitEvent: work that the stream was given before the call does not wait.
PROBE(wait_keeps_back_later_work_alone) {
  const Stream held;
  const Stream waiting;
  const Event before;
  const Event event;
  Gate gate{held};
  OK(cudaEventRecord(event, held));
  OK(cudaEventRecord(before, waiting));
  OK(cudaStreamWaitEvent(waiting, event));
  wait(before);
}

// CUDA Runtime API, cudaEventDestroy: an event may be destroyed before it is complete; the call does not block, and
// waits for it stay.
PROBE(destroyed_event_is_waited_for) {
  const Stream held;
  const Stream waiting;
  Event event;
  Gate gate{held};
  OK(cudaEventRecord(event, held));
  OK(cudaStreamWaitEvent(waiting, event));
  OK(cudaEventDestroy(event.release()));
  expect_waits("the waiting stream answers", waiting);
  gate.open();
  wait(waiting);
}

// CUDA Runtime API, cudaEventRecord: on the default stream, the event also waits for blocking streams' work before it.
PROBE(event_of_the_default_stream_waits_for_blocking_streams) {
  const Stream blocking{cudaStreamDefault};
  const Event event;
  Gate gate{blocking};
  OK(cudaEventRecord(event, nullptr));
  expect_waits("the event answers", event);
  gate.open();
  wait(event);
}

// CUDA Runtime API, cudaEventElapsedTime: cudaErrorInvalidResourceHandle for an event that was created with
// cudaEventDisableTiming, or was never recorded.
PROBE(elapsed_time_needs_timing_and_records) {
  const Stream stream;
  const Event untimed{cudaEventDisableTiming};
  const Event timed{cudaEventDefault};
  OK(cudaEventRecord(untimed, stream));
  wait(stream);
  float ms = 0;
  expect("without a record,", cudaEventElapsedTime(&ms, timed, timed), cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(timed, stream));
  wait(stream);
  expect("without timing,", cudaEventElapsedTime(&ms, untimed, timed), cudaErrorInvalidResourceHandle);
}

// CUDA Runtime API, cudaEventElapsedTime: cudaErrorNotReady while one of the events is not complete.
PROBE(elapsed_time_of_incomplete_events_is_not_ready) {
  const Stream stream;
  const Event begin{cudaEventDefault};
  const Event end{cudaEventDefault};
  OK(cudaEventRecord(begin, stream));
  Gate gate{stream};
  OK(cudaEventRecord(end, stream));
  float ms = -1;
  expect("the time is", cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  gate.open();
  wait(end);
  OK(cudaEventElapsedTime(&ms, begin, end));
  expect("time does not run backwards", ms >= 0);
}

// CUDA Runtime API, cudaEventRecord: event and stream must belong to the same device.
PROBE(event_and_stream_have_one_device) {
  int devices = 0;
  OK(cudaGetDeviceCount(&devices));
  if (devices < 2) throw NotTried{"there is one GPU only"};
  OK(cudaSetDevice(1));
  const Event other;
  OK(cudaSetDevice(0));
  const Stream stream;
  expect("the record is", cudaEventRecord(other, stream), cudaErrorInvalidResourceHandle);
}
