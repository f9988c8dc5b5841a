// Captures and graphs of the simulated runtime, and what a capture forbids.
#include <thread>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>

#include "child.hpp"

using namespace cusim::test;

namespace {

cudaStream_t begin_capture(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal,
                           unsigned flags = cudaStreamNonBlocking) {
  const cudaStream_t stream = make_stream(flags);
  MUST(cudaStreamBeginCapture(stream, mode));
  return stream;
}

cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  MUST(cudaStreamIsCapturing(stream, &status));
  return status;
}

/// That the call was refused and has spoilt the capture.
void expect_spoilt(cudaStream_t stream) {
  EXPECT(status_of(stream) == cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  EXPECT(graph == nullptr);
  EXPECT(status_of(stream) == cudaStreamCaptureStatusNone);
}

}  // namespace

TEST_CASE("a graph runs what was captured, once in each launch, in the captured order") {
  passes_in_any_order([] {
    static int value = 0;
    const cudaStream_t side = make_stream();
    const cudaStream_t stream = begin_capture();
    MUST(cudaLaunchHostFunc(
        stream, [](void*) { value += 1; }, nullptr));
    order(stream, side);
    MUST(cudaLaunchHostFunc(
        side, [](void*) { value *= 10; }, nullptr));
    order(side, stream);
    MUST(cudaLaunchHostFunc(
        stream, [](void*) { value += 5; }, nullptr));
    EXPECT(status_of(side) == cudaStreamCaptureStatusActive);
    cudaGraph_t graph = nullptr;
    MUST(cudaStreamEndCapture(stream, &graph));
    EXPECT(value == 0);
    EXPECT(status_of(side) == cudaStreamCaptureStatusNone);
    std::size_t nodes = 0;
    MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 3);
    cudaGraphExec_t launchable = nullptr;
    MUST(cudaGraphInstantiate(&launchable, graph, 0));
    MUST(cudaGraphDestroy(graph));
    const cudaStream_t other = make_stream();
    MUST(cudaGraphLaunch(launchable, other));
    MUST(cudaGraphLaunch(launchable, stream));
    MUST(cudaStreamSynchronize(stream));
    EXPECT(value == 165);
    MUST(cudaGraphExecDestroy(launchable));
    EXPECT(cudaGraphLaunch(launchable, stream) == cudaErrorInvalidValue);
  });
}

TEST_CASE("a graph may hold allocations and copies") {
  passes_in_any_order([] {
    int* const here = pinned_ints(8);
    int* const back = pinned_ints(8);
    const cudaStream_t stream = begin_capture();
    int* const there = device_ints(8, stream);
    copy_ints(there, here, 8, stream);
    copy_ints(back, there, 8, stream);
    MUST(cudaFreeAsync(there, stream));
    cudaGraph_t graph = nullptr;
    MUST(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t launchable = nullptr;
    MUST(cudaGraphInstantiate(&launchable, graph, 0));
    for (int round = 1; round < 4; ++round) {
      here[7] = round;
      MUST(cudaGraphLaunch(launchable, stream));
      MUST(cudaStreamSynchronize(stream));
      EXPECT(back[7] == round);
    }
  });
}

TEST_CASE("a capture forbids to wait for its streams or to ask them") {
  passes([] {
    cudaStream_t stream = begin_capture();
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    expect_spoilt(stream);
    stream = begin_capture();
    EXPECT(cudaStreamQuery(stream) == cudaErrorStreamCaptureUnsupported);
    expect_spoilt(stream);
    stream = begin_capture(cudaStreamCaptureModeRelaxed);
    EXPECT(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
    expect_spoilt(stream);
    stream = begin_capture();
    const cudaEvent_t event = make_event();
    MUST(cudaEventRecord(event, stream));
    EXPECT(cudaEventQuery(event) == cudaErrorCapturedEvent);
    expect_spoilt(stream);
  });
}

TEST_CASE("the mode of a capture says which threads may call what is unsafe") {
  passes([] {
    void* memory = nullptr;
    cudaStream_t stream = begin_capture(cudaStreamCaptureModeGlobal);
    std::thread{[&] { EXPECT(cudaMalloc(&memory, 8) == cudaErrorStreamCaptureUnsupported); }}.join();
    expect_spoilt(stream);
    stream = begin_capture(cudaStreamCaptureModeThreadLocal);
    std::thread{[&] { MUST(cudaMalloc(&memory, 8)); }}.join();
    EXPECT(cudaMalloc(&memory, 8) == cudaErrorStreamCaptureUnsupported);
    expect_spoilt(stream);
    stream = begin_capture(cudaStreamCaptureModeRelaxed);
    MUST(cudaMalloc(&memory, 8));
    cudaGraph_t graph = nullptr;
    MUST(cudaStreamEndCapture(stream, &graph));
    stream = begin_capture(cudaStreamCaptureModeGlobal);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    MUST(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == cudaStreamCaptureModeGlobal);
    MUST(cudaMalloc(&memory, 8));
    MUST(cudaStreamEndCapture(stream, &graph));
  });
}

TEST_CASE("a capture keeps apart from other work") {
  passes([] {
    const cudaEvent_t event = make_event();
    MUST(cudaEventRecord(event, make_stream()));
    cudaStream_t stream = begin_capture();
    EXPECT(cudaStreamWaitEvent(stream, event, 0) == cudaErrorStreamCaptureIsolation);
    expect_spoilt(stream);
    stream = begin_capture(cudaStreamCaptureModeGlobal, cudaStreamDefault);
    int number = 0;
    EXPECT(cudaLaunchHostFunc(
               nullptr, [](void*) {}, &number) == cudaErrorStreamCaptureImplicit);
    expect_spoilt(stream);
    stream = begin_capture();
    count_in(nullptr, number);  // a stream that does not block is not ordered with it
    cudaGraph_t graph = nullptr;
    MUST(cudaStreamEndCapture(stream, &graph));
    EXPECT(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
  });
}

TEST_CASE("two captures do not meet") {
  passes([] {
    const cudaStream_t first = begin_capture();
    const cudaStream_t second = begin_capture();
    const cudaEvent_t event = make_event();
    MUST(cudaEventRecord(event, first));
    EXPECT(cudaStreamWaitEvent(second, event, 0) == cudaErrorStreamCaptureMerge);
    expect_spoilt(first);
    expect_spoilt(second);
  });
}

TEST_CASE("a capture ends in its first stream, joined, in its thread") {
  passes([] {
    int number = 0;
    const cudaStream_t side = make_stream();
    cudaStream_t stream = begin_capture();
    order(stream, side);
    count_in(side, number);
    cudaGraph_t graph = nullptr;
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined);
    EXPECT(graph == nullptr);
    stream = begin_capture();
    order(stream, side);
    EXPECT(cudaStreamEndCapture(side, &graph) == cudaErrorStreamCaptureUnmatched);
    expect_spoilt(stream);
    stream = begin_capture();
    std::thread{[&] { EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureWrongThread); }}.join();
    expect_spoilt(stream);
    EXPECT(number == 0);
  });
}
