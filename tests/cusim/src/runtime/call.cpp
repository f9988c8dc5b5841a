#include "runtime/call.hpp"

#include <atomic>
#include <utility>

#include "runtime/faults.hpp"

namespace cusim {
namespace {

std::atomic<cudaError_t> late = cudaSuccess;
thread_local cudaError_t last = cudaSuccess;

cudaError_t usual(int code, cudaError_t otherwise) {
  return code != 0 ? static_cast<cudaError_t>(code) : otherwise;
}

}  // namespace

void fail_late(cudaError_t error) {
  cudaError_t none = cudaSuccess;
  late.compare_exchange_strong(none, error);
}

cudaError_t late_failure() {
  return late;
}

cudaError_t leave(cudaError_t error) {
  // That work is left is no error that cudaGetLastError would report.
  if (error != cudaSuccess && error != cudaErrorNotReady) last = error;
  return error;
}

Entry enter(const char* name, Place place) {
  count(name);
  note_call();
  Entry entry;
  const Fault fault = next_fault(name);
  entry.code = fault.code;
  if (fault.kind == FaultKind::error) {
    entry.refused = usual(fault.code, cudaErrorUnknown);
  } else if (fault.kind == FaultKind::memory) {
    entry.refused = cudaErrorMemoryAllocation;
  } else if (fault.kind == FaultKind::late) {
    entry.fails_late = true;
  } else if (fault.kind == FaultKind::hang) {
    if (place == Place::call) hang();
    entry.hangs_in_stream = true;
  }
  if (entry.refused != cudaSuccess) return entry;
  if (is_in_host_function()) {
    entry.refused = cudaErrorNotPermitted;
  } else if (is_in_piece()) {
    found(std::string{name} + " within a piece of work");
  } else if (settings().devices == 0) {
    entry.refused = cudaErrorNoDevice;
  } else {
    entry.refused = late_failure();
  }
  return entry;
}

void fail_after(const Entry& entry) {
  fail_late(usual(entry.code, cudaErrorIllegalAddress));
}

void hang_in(cudaStream_t stream) {
  (void)enqueue(stream, "work that hangs", [] { return false; });
}

void fail_in(cudaStream_t stream, const Entry& entry) {
  (void)enqueue(stream, "work that fails", [code = usual(entry.code, cudaErrorIllegalAddress)] {
    fail_late(code);
    return true;
  });
}

}  // namespace cusim

using namespace cusim;

cudaError_t cudaGetLastError() {
  count("cudaGetLastError");
  if (late_failure() != cudaSuccess) return late_failure();
  return std::exchange(last, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  count("cudaPeekAtLastError");
  return late_failure() != cudaSuccess ? late_failure() : last;
}
