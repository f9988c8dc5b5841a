// What every function of the API does around its own work: it is counted, may be made to fail, and leaves its error.
#pragma once

#include "core.hpp"
#include "runtime/world.hpp"

namespace cusim {

/// Keeps an error for cudaGetLastError of this thread. Returns it.
cudaError_t leave(cudaError_t error);

/// Counts the call. An error if it may not go on; blocks for ever if it is to hang.
struct Entry {
  cudaError_t refused = cudaSuccess;
  bool fails_late = false;
  bool hangs_in_stream = false;
  int code = 0;
};
enum class Place { call, stream };
Entry enter(const char* name, Place place);

void fail_after(const Entry& entry);
void hang_in(cudaStream_t stream);
void fail_in(cudaStream_t stream, const Entry& entry);

/// A call that no stream is named in.
template <class Body>
cudaError_t call(const char* name, const Body& body) {
  const Entry entry = enter(name, Place::call);
  if (entry.refused != cudaSuccess) return leave(entry.refused);
  const cudaError_t result = body();
  if (entry.fails_late) fail_after(entry);
  return leave(result);
}

/// A call that enqueues work on the stream or asks it: a late failure or a hang is then the stream's.
template <class Body>
cudaError_t call_on(const char* name, cudaStream_t stream, const Body& body) {
  const Entry entry = enter(name, Place::stream);
  if (entry.refused != cudaSuccess) return leave(entry.refused);
  if (entry.hangs_in_stream) hang_in(stream);
  const cudaError_t result = body();
  if (entry.fails_late && result == cudaSuccess) fail_in(stream, entry);
  return leave(result);
}

}  // namespace cusim
