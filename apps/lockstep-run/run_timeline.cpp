#include "apps/lockstep-run/run_timeline.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/say.hpp"
#include "models/record/run_folder.hpp"
#include "models/record/timeline.hpp"
#include "sync/checkpoint/folder_lock.hpp"

namespace lockstep::run {
namespace {

// Ranks of another host may take a moment longer to end.
constexpr std::chrono::seconds patience_with_writers{2};

}  // namespace

RunTimeline::RunTimeline(std::filesystem::path folder) : folder_{std::move(folder)} {}

void RunTimeline::begin() {
  std::error_code none;
  const auto size = std::filesystem::file_size(RunLayout{folder_}.timeline(), none);
  before_ = none ? 0 : size;
}

bool RunTimeline::lacks_an_end() const {
  const auto lines = read_timeline(RunLayout{folder_}.timeline(), before_);
  const auto has = [&](std::string_view kind) {
    return std::ranges::any_of(lines, [&](const auto& line) { return line["kind"] == kind; });
  };
  return has("start") && !has("failure") && !has("end") && !has("stop");
}

void RunTimeline::end(const std::string& line, int exit_code) const {
  const RunLayout layout{folder_};
  std::error_code none;
  if (folder_.empty() || !std::filesystem::exists(layout.description(), none)) return;
  const std::string name = "--run-dir " + folder_.string();
  try {
    if (!lacks_an_end()) return;
    const auto use = lock_folder(folder_, name, patience_with_writers);
    if (!lacks_an_end()) return;  // a rank was still ending
    Timeline timeline{layout.timeline(), "--run-dir " + layout.timeline().string()};
    timeline.add("failure", failure_fields(line, exit_code));
  } catch (const Error& error) {
    say(fmt::format("the failure is missing in the timeline: {}", error.what()));
  }
}

}  // namespace lockstep::run
