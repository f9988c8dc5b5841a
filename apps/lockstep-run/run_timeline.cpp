#include "apps/lockstep-run/run_timeline.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "apps/lockstep-run/say.hpp"
#include "checkpoint/exclusive_use.hpp"
#include "record/run_folder.hpp"
#include "record/timeline.hpp"

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

bool RunTimeline::says_how_it_ended() const {
  const auto lines = read_timeline(RunLayout{folder_}.timeline(), before_);
  return std::ranges::any_of(lines, [](const auto& line) {
    return line["kind"] == "failure" || line["kind"] == "end" || line["kind"] == "stop";
  });
}

void RunTimeline::end(const std::string& line, int exit_code) const {
  const RunLayout layout{folder_};
  std::error_code none;
  if (folder_.empty() || !std::filesystem::exists(layout.description(), none)) return;
  const std::string name = "--run-dir " + folder_.string();
  try {
    const ExclusiveUse use{{.file = folder_ / ".lock",
                            .lease = folder_ / ".lease",
                            .name = name,
                            .expected = "a folder that no other training uses",
                            .patience = patience_with_writers}};
    if (says_how_it_ended()) return;
    Timeline timeline{layout.timeline(), "--run-dir " + layout.timeline().string()};
    timeline.add("failure", failure_fields(line, exit_code));
  } catch (const Error& error) {
    say(fmt::format("the failure is missing in the timeline: {}", error.what()));
  }
}

}  // namespace lockstep::run
