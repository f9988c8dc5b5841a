// Opens liblockstep-cuda.so.
#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/excerpt.hpp"
#include "device/gpu_backend.hpp"

namespace lockstep::detail {
namespace {

constexpr const char* file = "liblockstep-cuda.so." LOCKSTEP_VERSION;

/// `said` is dlerror's text. It begins with the name of a library, which lacks a folder only if the library was not
/// found. The text after it may be translated, so it is not parsed.
std::string why_not_opened(std::string_view said) {
  const std::string_view name = said.substr(0, said.find(": "));
  if (name == file) return "this build has no GPU backend";
  if (name.find('/') == name.npos) return fmt::format("{}, which {} needs, was not found", excerpt(name), file);
  return fmt::format("{} cannot be loaded: {}", file, excerpt(said));
}

GpuLibrary open() {
  // Its symbols are for nobody else. It stays open: memory and threads of the process depend on it until the end.
  void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) return {.why_none = why_not_opened(::dlerror())};
  const auto find = reinterpret_cast<FindGpuBackend*>(::dlsym(library, gpu_backend_symbol));
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
