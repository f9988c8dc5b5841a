#include "base/part_library.hpp"

#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/excerpt.hpp"

namespace lockstep {

PartLibrary open_part(const char* file, const char* symbol) {
  if (void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL)) return {.symbol = ::dlsym(library, symbol)};
  // It begins with the name of a library, which lacks a folder only if the library was not found. The text after it may
  // be translated, so it is not parsed.
  const std::string_view said = ::dlerror();
  const std::string_view name = said.substr(0, said.find(": "));
  if (name == file) return {.exists = false};
  if (name.find('/') == name.npos)
    return {.trouble = fmt::format("{}, which {} needs, was not found", excerpt(name), file)};
  return {.trouble = fmt::format("{} cannot be loaded: {}", file, excerpt(said))};
}

}  // namespace lockstep
