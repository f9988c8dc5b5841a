#include "core/base/control_group.hpp"

#include <fstream>
#include <system_error>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct Place {
  int version;
  std::string path;
};

/// Where a process is, by the lines "4:memory:/path" (version 1) and "0::/path" of its file.
std::optional<Place> place_in(const std::filesystem::path& file, std::string_view controller) {
  std::ifstream lines{file};
  std::optional<Place> place;
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find(fmt::format(",{},", controller)) != std::string::npos)
      return Place{1, line.substr(second + 1)};
    if (line.starts_with("0::")) place = Place{2, line.substr(second + 1)};
  }
  return place;
}

}  // namespace

std::optional<ControlGroup> find_control_group(const std::filesystem::path& root, const std::string& process,
                                               std::string_view controller,
                                               const std::array<std::string_view, 2>& files) {
  const auto place = place_in(root / "proc" / process / "cgroup", controller);
  if (!place) return std::nullopt;
  ControlGroup group{place->version, root / "sys/fs/cgroup", {}};
  if (place->version == 1) group.base /= controller;
  group.folder = group.base / std::filesystem::path{place->path}.relative_path();
  std::error_code error;
  // In a container the path may be that of the host, and what is mounted the container's own group.
  if (!std::filesystem::exists(group.folder / files[place->version == 1 ? 0 : 1], error)) group.folder = group.base;
  return group;
}

}  // namespace lockstep
