#include "core/base/part_library.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include "core/base/excerpt.hpp"

namespace lockstep {
namespace {

/// The folders where dlopen looks for what this library opens, in the order of the search: those of LD_LIBRARY_PATH,
/// those that this library was linked with, the system's.
std::string searched_folders() {
  Dl_info place{};
  link_map* own = nullptr;
  Dl_serinfo head{};
  if (::dladdr1(reinterpret_cast<void*>(&open_part), &place, reinterpret_cast<void**>(&own), RTLD_DL_LINKMAP) == 0 ||
      !own || ::dlinfo(own, RTLD_DI_SERINFOSIZE, &head) != 0)
    return "the folders of the dynamic loader";
  // The folders and their names follow the head.
  const auto memory = std::make_unique<std::max_align_t[]>(head.dls_size / sizeof(std::max_align_t) + 1);
  auto* const all = reinterpret_cast<Dl_serinfo*>(memory.get());
  if (::dlinfo(own, RTLD_DI_SERINFOSIZE, all) != 0 || ::dlinfo(own, RTLD_DI_SERINFO, all) != 0)
    return "the folders of the dynamic loader";
  std::vector<std::string> folders;
  const Dl_serpath* const paths = all->dls_serpath;
  for (unsigned i = 0; i < all->dls_cnt; ++i)
    if (std::string folder = excerpt(std::filesystem::path{paths[i].dls_name}.lexically_normal().string());
        std::ranges::find(folders, folder) == folders.end())
      folders.push_back(std::move(folder));
  constexpr std::size_t most = 12;
  const std::size_t shown = std::min(folders.size(), most), more = folders.size() - shown;
  return fmt::format("{}{}", fmt::join(folders.begin(), folders.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     more > 0 ? fmt::format(" and {} more folders", more) : "");
}

}  // namespace

PartLibrary open_part(const char* file, const char* symbol) {
  if (void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL)) return {.symbol = ::dlsym(library, symbol)};
  // It begins with the name of a library, which lacks a folder only if the library was not found. The text after it may
  // be translated, so it is not parsed.
  const std::string_view said = ::dlerror();
  const std::string_view name = said.substr(0, said.find(": "));
  if (name == file)
    return {.was_found = false, .trouble = fmt::format("{} was not found in {}", file, searched_folders())};
  if (name.find('/') == name.npos)
    return {.trouble = fmt::format("{}, which {} needs, was not found", excerpt(name), file)};
  return {.trouble = fmt::format("{} cannot be loaded: {}", file, excerpt(said))};
}

}  // namespace lockstep
