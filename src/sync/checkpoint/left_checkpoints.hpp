// Checkpoints that a training leaves: it goes on from an earlier one, or from one in another folder, and the newest of
// them would otherwise be where the next start of it goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What follows the name of a checkpoint that was set aside.
inline constexpr std::string_view aside_suffix = ".aside";

/// In the place of a step: no checkpoint in the folder stays.
inline constexpr std::int64_t none_stays = -1;

/// LOCAL, by the process that uses `folder` alone. Sets the checkpoints of steps after `step` aside: "step-30" becomes
/// "step-30.aside", or "step-30.aside-2" if there is one, which no reader takes for a checkpoint unless it is named.
/// Then `latest` points to the one of `step`, and `best` to the one of `best`, or there is no such link. From the first
/// moment on, readers find those alone that stay, and if this process is killed, `finish_setting_aside` does the rest.
/// Returns the old names, the newest first. CheckpointError if that fails.
std::vector<std::string> set_aside_after(const std::filesystem::path& folder, std::int64_t step,
                                         std::optional<std::int64_t> best);

/// LOCAL, by the process that uses `folder` alone. Sets aside what a killed process wanted to.
void finish_setting_aside(const std::filesystem::path& folder);

/// While checkpoints are being set aside, or when a process was killed at that: the newest step that stays.
std::optional<std::int64_t> newest_that_stays(const std::filesystem::path& folder);

}  // namespace lockstep
