// The control group of a process, as the kernel's two versions of them show it.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct ControlGroup {
  int version;                   ///< 1 or 2
  std::filesystem::path base;    ///< the outermost group
  std::filesystem::path folder;  ///< the process's own, in or below it
};

/// The group of `process`, a number or "self", for a controller such as "memory". Nothing where there are no control
/// groups. `root` is where /proc and /sys are. `files` names a file that each group has, in version 1 and in version 2.
std::optional<ControlGroup> find_control_group(const std::filesystem::path& root, const std::string& process,
                                               std::string_view controller,
                                               const std::array<std::string_view, 2>& files);

}  // namespace lockstep
