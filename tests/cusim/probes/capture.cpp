// Captures of streams and graphs.
#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

namespace {

void expect_status(cudaStream_t stream, cudaStreamCaptureStatus expected) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  OK(cudaStreamIsCapturing(stream, &status));
  expect("the capture's status is", int{status}, int{expected});
}

}  // namespace

// CUDA Runtime API, cudaStreamIsCapturing: none, active between the capture's begin and end, then none.
PROBE(capture_has_a_status) {
  const Stream stream;
  const Stream other;
  expect_status(stream, cudaStreamCaptureStatusNone);
  Capture capture{stream};
  expect_status(stream, cudaStreamCaptureStatusActive);
  expect_status(other, cudaStreamCaptureStatusNone);
  const Graph graph{capture.end()};
  expect_status(stream, cudaStreamCaptureStatusNone);
}

// CUDA Runtime API, cudaStreamBeginCapture: work in a capture is not run, but put into a graph; a launch runs it.
PROBE(captured_work_runs_at_the_launch) {
  const Stream stream;
  const Array<int> at{{1}};
  Capture capture{stream};
  OK(launch_fill(at.data(), 1, 7, stream));
  const Graph graph{capture.end()};
  wait(stream);
  expect("after the capture, memory holds", at.values()[0], 1);
  graph.launch(stream);
  wait(stream);
  expect("after the launch, memory holds", at.values()[0], 7);
}

// CUDA Runtime API, cudaGraphLaunch: a graph may be launched any number of times; each launch comes after the stream's
// earlier work and earlier launches, and before later work.
PROBE(graph_launches_come_in_order) {
  const Stream stream;
  const Array<int> at{{1}};
  Capture capture{stream};
  OK(launch_append(at.data(), 1, stream));
  OK(launch_append(at.data(), 0, stream));
  const Graph graph{capture.end()};
  OK(launch_append(at.data(), 0, stream));
  graph.launch(stream);
  OK(launch_append(at.data(), 1, stream));
  graph.launch(stream);
  graph.launch(stream);
  wait(stream);
  expect("eight kernels make", at.values()[0], 0b101011010);
}

// CUDA Runtime API, cudaGraphLaunch: launches of one graph in different streams do not overlap.
PROBE(graph_launches_do_not_overlap) {
  const Stream one;
  const Stream two;
  const Array<int> at{{0}};
  Capture capture{one};
  OK(launch_append(at.data(), 1, one));
  const Graph graph{capture.end()};
  graph.launch(one);  // the first may set things up for which it waits
  wait(one);
  Gate gate{one};
  graph.launch(one);
  graph.launch(two);
  expect_waits("the second launch's stream answers", two);
  gate.open();
  wait(one);
  wait(two);
  expect("three launches make", at.values()[0], 7);
}

// CUDA C++ Programming Guide, CUDA Graphs: a kernel node keeps the arguments of its capture; memory is read at the
// launch.
PROBE(graph_reads_memory_at_the_launch) {
  const Stream stream;
  const Array<int> from{{1}};
  const Array<int> to{{0}};
  Capture capture{stream};
  OK(launch_copy(from.data(), to.data(), stream));
  const Graph graph{capture.end()};
  OK(launch_fill(from.data(), 1, 2, stream));
  graph.launch(stream);
  wait(stream);
  expect("the graph's kernel copies", to.values()[0], 2);
}

// CUDA C++ Programming Guide, Creating a graph using stream capture: copies, memsets and host functions become nodes
// too.
PROBE(graph_has_copies_memsets_and_host_functions) {
  const Stream stream;
  const Array<int> at{{1, 1}};
  const Pinned<int> to{1};
  int calls = 0;
  Capture capture{stream};
  OK(cudaMemsetAsync(at.data(), 0, sizeof(int), stream));
  OK(launch_append(at.data(), 5, stream));
  OK(cudaMemcpyAsync(at.data() + 1, at.data(), sizeof(int), cudaMemcpyDeviceToDevice, stream));
  OK(cudaMemcpyAsync(to.data(), at.data() + 1, sizeof(int), cudaMemcpyDeviceToHost, stream));
  OK(cudaLaunchHostFunc(
      stream, [](void* data) { ++*static_cast<int*>(data); }, &calls));
  const Graph graph{capture.end()};
  expect("nodes:", graph.nodes(), std::size_t{5});
  expect("host functions called before the launch:", calls, 0);
  for (int i = 0; i < 2; ++i) graph.launch(stream);
  wait(stream);
  expect("the last copy brings", to[0], 5);
  expect("host functions called:", calls, 2);
}

// CUDA C++ Programming Guide, Creating a graph using stream capture: a capture may be empty.
PROBE(empty_graph_can_be_launched) {
  const Stream stream;
  Capture capture{stream};
  const Graph graph{capture.end()};
  expect("nodes:", graph.nodes(), std::size_t{0});
  graph.launch(stream);
  wait(stream);
}

// CUDA C++ Programming Guide, Cross-stream dependencies and events: a stream that waits for an event of the capture is
// part of it; the origin must wait for it before the end.
PROBE(capture_follows_events_to_other_streams) {
  const Stream origin;
  const Stream branch;
  const Event fork;
  const Event join;
  const Array<int> at{{0, 0}};
  Capture capture{origin};
  OK(cudaEventRecord(fork, origin));
  OK(cudaStreamWaitEvent(branch, fork));
  expect_status(branch, cudaStreamCaptureStatusActive);
  OK(launch_fill(at.data(), 1, 3, branch));
  OK(cudaEventRecord(join, branch));
  OK(cudaStreamWaitEvent(origin, join));
  OK(launch_copy(at.data(), at.data() + 1, origin));
  const Graph graph{capture.end()};
  expect_status(branch, cudaStreamCaptureStatusNone);
  expect("nodes:", graph.nodes(), std::size_t{2});
  graph.launch(origin);
  wait(origin);
  expect_all("both kernels", at.values(), {3, 3});
}

// CUDA C++ Programming Guide, Cross-stream dependencies and events: if a stream is not joined to the origin at the end,
// the capture fails. CUDA Runtime API: cudaErrorStreamCaptureUnjoined.
PROBE(unjoined_capture_fails) {
  const Stream origin;
  const Stream branch;
  const Event fork;
  const Array<int> at{{0}};
  Capture capture{origin};
  OK(cudaEventRecord(fork, origin));
  OK(cudaStreamWaitEvent(branch, fork));
  OK(launch_fill(at.data(), 1, 3, branch));
  capture.expect_end(cudaErrorStreamCaptureUnjoined);
}

// CUDA Runtime API, cudaStreamEndCapture: must be called on the stream that the capture began with;
// cudaErrorStreamCaptureUnmatched otherwise.
PROBE(capture_ends_where_it_began) {
  const Stream origin;
  const Stream branch;
  const Event fork;
  Capture capture{origin};
  OK(cudaEventRecord(fork, origin));
  OK(cudaStreamWaitEvent(branch, fork));
  cudaGraph_t graph = nullptr;
  expect("the end on the other stream is", cudaStreamEndCapture(branch, &graph), cudaErrorStreamCaptureUnmatched);
}

// CUDA C++ Programming Guide, Prohibited and unhandled operations: a stream in a capture must not be synchronized or
// queried. The capture is then invalid, and its end returns an error and no graph.
PROBE(capture_forbids_synchronize) {
  const Stream stream;
  Capture capture{stream};
  expect("cudaStreamSynchronize is", cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  expect_status(stream, cudaStreamCaptureStatusInvalidated);
  capture.expect_end(cudaErrorStreamCaptureInvalidated);
  expect_status(stream, cudaStreamCaptureStatusNone);
}
PROBE(capture_forbids_query) {
  const Stream stream;
  Capture capture{stream};
  expect("cudaStreamQuery is", cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  capture.expect_end(cudaErrorStreamCaptureInvalidated);
}

// CUDA C++ Programming Guide, Prohibited and unhandled operations: nor may the device be synchronized, which includes
// the stream.
PROBE(capture_forbids_device_synchronize) {
  const Stream stream;
  Capture capture{stream};
  expect("cudaDeviceSynchronize is", cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  capture.expect_end(cudaErrorStreamCaptureInvalidated);
}

// CUDA Runtime API, cudaErrorStreamCaptureInvalidated: work is refused where an earlier error has made a capture
// invalid.
PROBE(invalid_capture_takes_no_work) {
  const Stream stream;
  const Array<int> at{{0}};
  Capture capture{stream};
  (void)cudaStreamSynchronize(stream);
  expect("a launch is", launch_fill(at.data(), 1, 3, stream), cudaErrorStreamCaptureInvalidated);
}

// CUDA Runtime API, cudaStreamBeginCapture: in the global and thread-local modes, the thread must not make potentially
// unsafe calls such as cudaMalloc; in relaxed mode it may.
PROBE(capture_forbids_malloc) {
  const Stream stream;
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    Capture capture{stream, mode};
    void* made = nullptr;
    const cudaError_t result = cudaMalloc(&made, 100);
    if (result == cudaSuccess) (void)cudaFree(made);
    expect("cudaMalloc is", result, cudaErrorStreamCaptureUnsupported);
    capture.expect_end(cudaErrorStreamCaptureInvalidated);
  }
}
PROBE(relaxed_capture_permits_malloc) {
  const Stream stream;
  Capture capture{stream, cudaStreamCaptureModeRelaxed};
  void* made = nullptr;
  OK(cudaMalloc(&made, 100));
  const Graph graph{capture.end()};
  OK(cudaFree(made));
}

// CUDA Runtime API, cudaStreamBeginCapture: in thread-local mode, other threads may make such calls.
PROBE(thread_local_capture_leaves_other_threads_alone) {
  const Stream stream;
  Capture capture{stream, cudaStreamCaptureModeThreadLocal};
  cudaError_t result = cudaErrorUnknown;
  std::thread{[&] {
    void* made = nullptr;
    result = cudaMalloc(&made, 100);
    (void)cudaFree(made);
  }}.join();
  const Graph graph{capture.end()};
  expect("another thread's cudaMalloc is", result, cudaSuccess);
}

// CUDA Runtime API, cudaStreamBeginCapture: cudaStreamLegacy must not be captured.
PROBE(default_stream_cannot_be_captured) {
  const cudaError_t result = cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal);
  expect("the capture is", result, cudaErrorStreamCaptureUnsupported);
}

// CUDA Runtime API, cudaErrorStreamCaptureImplicit: a use of the default stream would depend on the capture of a
// blocking stream.
PROBE(capture_of_blocking_stream_forbids_the_default_stream) {
  const Stream stream{cudaStreamDefault};
  const Array<int> at{{0}};
  Capture capture{stream};
  expect("the launch is", launch_fill(at.data(), 1, 3, nullptr), cudaErrorStreamCaptureImplicit);
  capture.expect_end(cudaErrorStreamCaptureInvalidated);
}
PROBE(capture_of_non_blocking_stream_permits_the_default_stream) {
  const Stream stream;
  const Array<int> at{{0}};
  Capture capture{stream};
  OK(launch_fill(at.data(), 1, 3, nullptr));
  const Graph graph{capture.end()};
  wait(cudaStream_t{nullptr});
  expect("the kernel writes", at.values()[0], 3);
}

// CUDA Runtime API, cudaErrorCapturedEvent: an event that was recorded in a capture last can be neither queried nor
// waited for by the host.
PROBE(event_of_a_capture_cannot_be_queried) {
  const Stream stream;
  const Event event;
  Capture capture{stream};
  OK(cudaEventRecord(event, stream));
  expect("cudaEventQuery is", cudaEventQuery(event), cudaErrorCapturedEvent);
}

// CUDA Runtime API, cudaErrorStreamCaptureIsolation: a capture cannot wait for an event from outside.
PROBE(capture_cannot_wait_for_an_event_from_outside) {
  const Stream stream;
  const Stream other;
  const Event event;
  OK(cudaEventRecord(event, other));
  Capture capture{stream};
  expect("the wait is", cudaStreamWaitEvent(stream, event), cudaErrorStreamCaptureIsolation);
  capture.expect_end(cudaErrorStreamCaptureInvalidated);
}

// CUDA Runtime API, cudaErrorStreamCaptureMerge: two captures cannot be merged.
PROBE(captures_cannot_be_merged) {
  const Stream one;
  const Stream two;
  const Event event;
  Capture first{one};
  Capture second{two};
  OK(cudaEventRecord(event, one));
  expect("the wait is", cudaStreamWaitEvent(two, event), cudaErrorStreamCaptureMerge);
}

// CUDA Runtime API, cudaStreamEndCapture: unless the mode is relaxed, the thread that began must end;
// cudaErrorStreamCaptureWrongThread otherwise.
PROBE(capture_ends_in_its_thread) {
  const Stream stream;
  Capture capture{stream, cudaStreamCaptureModeThreadLocal};
  cudaError_t result = cudaSuccess;
  std::thread{[&] {
    cudaGraph_t graph = nullptr;
    result = cudaStreamEndCapture(stream, &graph);
  }}.join();
  expect("the end in another thread is", result, cudaErrorStreamCaptureWrongThread);
}

// CUDA Runtime API, cudaThreadExchangeStreamCaptureMode: sets the thread's mode and gives the one before; a relaxed
// thread may make unsafe calls during its capture.
PROBE(relaxed_thread_may_call_malloc_in_a_capture) {
  const Stream stream;
  Capture capture{stream, cudaStreamCaptureModeThreadLocal};
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  expect("the thread's mode was", int{mode}, int{cudaStreamCaptureModeGlobal});
  void* made = nullptr;
  const cudaError_t result = cudaMalloc(&made, 100);
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  expect("the thread's mode was", int{mode}, int{cudaStreamCaptureModeRelaxed});
  OK(result);
  const Graph graph{capture.end()};
  OK(cudaFree(made));
}

// CUDA C++ Programming Guide, CUDA Graphs: a graph made executable does not need the graph it was made of.
PROBE(launchable_graph_outlives_its_graph) {
  const Stream stream;
  const Array<int> at{{0}};
  Capture capture{stream};
  OK(launch_fill(at.data(), 1, 6, stream));
  cudaGraph_t const graph = capture.end();
  cudaGraphExec_t launchable = nullptr;
  OK(cudaGraphInstantiateWithFlags(&launchable, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphLaunch(launchable, stream));
  wait(stream);
  OK(cudaGraphExecDestroy(launchable));
  expect("the kernel writes", at.values()[0], 6);
}
