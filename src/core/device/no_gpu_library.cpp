// The twin of gpu_library.cpp in programs that link the layers themselves and do not take the place of liblockstep.so:
// liblockstep-cuda.so would bring the layers once more, inside liblockstep.so, with another log, rank and bound GPU.
#include "core/device/gpu_backend.hpp"

namespace lockstep::detail {

const GpuLibrary& gpu_library() {
  static const GpuLibrary none{.why_none = "this program links no GPU backend"};
  return none;
}

}  // namespace lockstep::detail
