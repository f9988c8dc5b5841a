// Streams: order, independence, the default stream, host functions.
#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

// CUDA C++ Programming Guide, Streams: the commands of one stream are done in the order in which they were issued.
PROBE(stream_runs_in_order) {
  const Stream stream;
  const Array<int> at{{1}};
  for (int i = 0; i < 10; ++i) OK(launch_append(at.data(), i % 2, stream));
  wait(stream);
  int expected = 1;
  for (int i = 0; i < 10; ++i) expected = 2 * expected + i % 2;
  expect("ten kernels in a row make", at.values()[0], expected);
}

// CUDA C++ Programming Guide, Streams: kernels, copies and memsets of one stream follow each other.
PROBE(stream_orders_kinds_of_work) {
  const Stream stream;
  const Array<int> a{{5}};
  const Array<int> b{{0}};
  OK(cudaMemsetAsync(a.data(), 0, a.bytes(), stream));
  OK(launch_append(a.data(), 3, stream));
  OK(cudaMemcpyAsync(b.data(), a.data(), a.bytes(), cudaMemcpyDeviceToDevice, stream));
  OK(launch_append(b.data(), 1, stream));
  OK(cudaMemsetAsync(a.data(), 0xff, a.bytes(), stream));
  wait(stream);
  expect("a memset, a kernel, a copy and a kernel make", b.values()[0], 7);
  expect("the last memset makes", a.values()[0], -1);
}

// CUDA C++ Programming Guide, Streams: different streams may run their commands out of order or at the same time, so
// that work of one that is held back does not keep another's.
PROBE(streams_are_independent) {
  const Stream held;
  const Stream free;
  const Array<int> at{{0}};
  Gate gate{held};
  OK(launch_fill(at.data(), 1, 4, free));
  wait(free);
  expect_waits("the stream that is held back answers", held);
}

// CUDA Runtime API, cudaStreamQuery: cudaErrorNotReady while work is left, cudaSuccess when all is done.
PROBE(stream_query_tells_whether_work_is_left) {
  const Stream stream;
  OK(cudaStreamQuery(stream));
  Gate gate{stream};
  expect_waits("a stream with work answers", stream);
  gate.open();
  wait(stream);
  OK(cudaStreamQuery(stream));
}

// CUDA Runtime API, cudaStreamSynchronize: blocks until the stream has completed all operations.
PROBE(stream_synchronize_waits) {
  const Stream stream;
  const Array<int> at{{0}};
  const Pinned<int> seen{1};
  OK(launch_fill(at.data(), 1, 6, stream));
  OK(cudaMemcpyAsync(seen.data(), at.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  expect("the copy has brought", seen[0], 6);
}

// CUDA Runtime API, cudaDeviceSynchronize: blocks until the device has completed all preceding tasks, of all streams.
PROBE(device_synchronize_waits_for_all_streams) {
  const Stream one;
  const Stream two{cudaStreamDefault};
  const Array<int> at{{0, 0}};
  OK(launch_fill(at.data(), 1, 1, one));
  OK(launch_fill(at.data() + 1, 1, 2, two));
  OK(cudaDeviceSynchronize());
  OK(cudaStreamQuery(one));
  OK(cudaStreamQuery(two));
  expect_all("both kernels", at.values(), {1, 2});
}

// CUDA Runtime API, Stream synchronization behavior: work of the legacy default stream begins after all that blocking
// streams were given before.
PROBE(default_stream_waits_for_blocking_streams) {
  const Stream blocking{cudaStreamDefault};
  const Array<int> at{{0}};
  Gate gate{blocking};
  OK(cudaMemsetAsync(at.data(), 1, at.bytes(), nullptr));
  expect_waits("the default stream answers", cudaStream_t{nullptr});
  gate.open();
  wait(cudaStream_t{nullptr});
}

// CUDA Runtime API, Stream synchronization behavior: work of a blocking stream begins after all that the legacy default
// stream was given before.
PROBE(blocking_stream_waits_for_default_stream) {
  const Stream blocking{cudaStreamDefault};
  const Array<int> at{{0}};
  Gate gate{nullptr};
  OK(launch_fill(at.data(), 1, 1, blocking));
  expect_waits("the blocking stream answers", blocking);
  gate.open();
  wait(blocking);
}

// CUDA Runtime API, cudaStreamCreateWithFlags: a stream with cudaStreamNonBlocking does not synchronize with the
// default stream; and so the other way round.
PROBE(non_blocking_stream_does_not_wait_for_default_stream) {
  const Stream stream;
  const Array<int> at{{0}};
  Gate gate{nullptr};
  OK(launch_fill(at.data(), 1, 1, stream));
  wait(stream);
  expect_waits("the default stream answers", cudaStream_t{nullptr});
}
PROBE(default_stream_does_not_wait_for_non_blocking_stream) {
  const Stream stream;
  const Array<int> at{{0}};
  Gate gate{stream};
  OK(launch_fill(at.data(), 1, 1, nullptr));
  wait(cudaStream_t{nullptr});
  expect_waits("the non-blocking stream answers", stream);
}

// CUDA Runtime API, Stream synchronization behavior: a blocking stream's work after the default stream's comes after
// other blocking streams' work before it.
PROBE(default_stream_orders_two_blocking_streams) {
  const Stream one{cudaStreamDefault};
  const Stream two{cudaStreamDefault};
  const Array<int> at{{1}};
  OK(launch_append(at.data(), 1, one));
  OK(launch_append(at.data(), 0, nullptr));
  OK(launch_append(at.data(), 1, two));
  wait(two);
  expect("three kernels make", at.values()[0], 13);
}

// CUDA Runtime API, Stream synchronization behavior: the per-thread default stream is a blocking one.
PROBE(stream_per_thread_waits_for_default_stream) {
  const Array<int> at{{0}};
  Gate gate{nullptr};
  OK(launch_fill(at.data(), 1, 1, cudaStreamPerThread));
  expect_waits("the stream per thread answers", cudaStreamPerThread);
  gate.open();
  wait(cudaStreamPerThread);
}

// CUDA Runtime API, cudaStreamDestroy: with work left in the stream, the call returns at once, and the work goes on.
PROBE(destroyed_stream_goes_on) {
  Stream stream;
  const Event done;
  const Array<int> at{{0}};
  Gate gate{stream};
  OK(launch_fill(at.data(), 1, 8, stream));
  OK(cudaEventRecord(done, stream));
  OK(cudaStreamDestroy(stream.release()));
  expect_waits("the event after the stream's work answers", done);
  gate.open();
  wait(done);
  expect("the kernel writes", at.values()[0], 8);
}

// CUDA Runtime API, cudaStreamGetFlags, cudaStreamCreateWithFlags.
PROBE(stream_has_its_flags) {
  unsigned flags = 77;
  OK(cudaStreamGetFlags(Stream{cudaStreamNonBlocking}, &flags));
  expect("flags are", flags, unsigned{cudaStreamNonBlocking});
  OK(cudaStreamGetFlags(Stream{cudaStreamDefault}, &flags));
  expect("flags are", flags, unsigned{cudaStreamDefault});
}

// CUDA Runtime API, cudaStreamCreateWithPriority: lower numbers are greater priorities, and numbers outside of the
// range are clamped to it.
PROBE(stream_priority_is_clamped) {
  int least = 0;
  int greatest = 0;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  expect("the least priority is not the smaller number", least >= greatest);
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 100));
  int priority = 0;
  const cudaError_t asked = cudaStreamGetPriority(stream, &priority);
  (void)cudaStreamDestroy(stream);
  OK(asked);
  expect("the priority is", priority, greatest);
}

// CUDA Runtime API, cudaLaunchHostFunc: the function is called after the stream's work so far, and keeps back later
// work.
PROBE(host_function_comes_in_order) {
  struct Seen {
    int* pinned;
    int value = -1;
  };
  const Stream stream;
  const Array<int> at{{0}};
  const Pinned<int> pinned{2};
  OK(launch_fill(at.data(), 1, 21, stream));
  OK(cudaMemcpyAsync(pinned.data(), at.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  Seen seen{pinned.data()};
  const auto function = [](void* data) {
    auto& all = *static_cast<Seen*>(data);
    all.value = all.pinned[0];
    all.pinned[1] = 2 * all.value;
  };
  OK(cudaLaunchHostFunc(stream, function, &seen));
  OK(cudaMemcpyAsync(at.data(), pinned.data() + 1, sizeof(int), cudaMemcpyHostToDevice, stream));
  wait(stream);
  expect("the function sees", seen.value, 21);
  expect("the copy after it brings", at.values()[0], 42);
}

// CUDA Runtime API, cudaLaunchHostFunc: the function is called once for each call, in order.
PROBE(host_functions_are_called_once_each) {
  const Stream stream;
  std::vector<int> seen;
  struct One {
    std::vector<int>* seen;
    int number;
  } all[] = {{&seen, 1}, {&seen, 2}, {&seen, 3}};
  for (One& one : all)
    OK(cudaLaunchHostFunc(
        stream, [](void* data) { static_cast<One*>(data)->seen->push_back(static_cast<One*>(data)->number); }, &one));
  wait(stream);
  expect_all("functions called", seen, {1, 2, 3});
}

// CUDA Runtime API, cudaLaunchHostFunc: the function must not call CUDA, which may answer cudaErrorNotPermitted.
PROBE(host_function_must_not_call_cuda) {
  throw NotTried{"the documentation leaves open what a call in a host function does, and it may hang"};
}
