// Opens liblockstep-cuda.so.
#include <string_view>

#include <fmt/format.h>

#include "core/base/excerpt.hpp"
#include "core/base/part_library.hpp"
#include "core/device/gpu_backend.hpp"

namespace lockstep::detail {
namespace {

constexpr const char* file = "liblockstep-cuda.so." LOCKSTEP_VERSION;

GpuLibrary open() {
  const PartLibrary part = open_part(file, gpu_backend_symbol);
  if (!part.was_found && !LOCKSTEP_BUILDS_CUDA) return {.why_none = "this build has no GPU backend"};
  if (!part.trouble.empty()) return {.why_none = part.trouble};
  const auto find = reinterpret_cast<FindGpuBackend*>(part.symbol);
  if (!find) return {.why_none = fmt::format("{} is no GPU backend of lockstep", file)};
  const GpuBackend* const backend = find();
  if (backend->version != std::string_view{LOCKSTEP_VERSION})
    return {.why_none = fmt::format("{} belongs to lockstep {}, and this is lockstep {}", file,
                                    excerpt(backend->version), LOCKSTEP_VERSION)};
  return {.backend = backend};
}

}  // namespace

const GpuLibrary& gpu_library() {
  static const GpuLibrary library = open();
  return library;
}

}  // namespace lockstep::detail
