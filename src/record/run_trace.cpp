#include "record/run_trace.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "checkpoint/file.hpp"
#include "control/clock_offset.hpp"
#include "control/meeting_point.hpp"
#include "strategy/replica_group.hpp"
#include "trace/chrome.hpp"
#include "trace/ring_file.hpp"

namespace lockstep {
namespace {

/// Of the picture of all ranks. More make pictures that viewers open slowly.
constexpr std::uint32_t merged_steps = 20;

std::filesystem::path ring_of(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank-{}.ring", rank);
}

/// The files in `folder` whose names are "rank-R" and `ending`.
std::vector<std::filesystem::path> files_of_ranks(const std::filesystem::path& folder, std::string_view ending) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;  // such as of a folder that is not there, which has no files
  for (const auto& entry : std::filesystem::directory_iterator{folder, ignored}) {
    const std::string name = entry.path().filename();
    if (name.starts_with("rank-") && name.ends_with(ending)) files.push_back(entry.path());
  }
  return files;
}

void write_spans(std::span<const trace::ReadRing> rings, const trace::Steps& steps, const std::filesystem::path& path) {
  NewFile file{path, "trace"};
  trace::write_chrome(rings, steps, [&](std::string_view piece) { file.write(std::as_bytes(std::span{piece})); });
  file.commit();
}

/// If one rank cannot make it, all learn of that.
std::unique_ptr<trace::Ring> make_ring(Strategy& strategy, const trace::Ring::Options& options, const Here& here) {
  std::unique_ptr<trace::Ring> ring;
  try {
    ring = std::make_unique<trace::Ring>(options);
  } catch (...) {
    strategy.group().meeting().fail(std::current_exception(), here);
  }
  strategy.agree(TagKind::save, here, "the files of a trace");
  return ring;
}

trace::Ring::Options options_of(const std::filesystem::path& folder, int rank, const OrderedJson& ranks) {
  const OrderedJson& own = ranks.at(static_cast<std::size_t>(rank));
  return {.file = ring_of(folder, rank),
          .rank = rank,
          .ranks = static_cast<int>(ranks.size()),
          .task = own.at("task"),
          .host = own.at("host"),
          .device = own.at("device")};
}

bool are_on_several_hosts(const OrderedJson& ranks) {
  return std::ranges::any_of(ranks, [&](const OrderedJson& each) { return each.at("host") != ranks[0].at("host"); });
}

}  // namespace

RunTrace::RunTrace(Strategy& strategy, std::filesystem::path folder, const OrderedJson& ranks, const Here& here)
    : folder_{std::move(folder)},
      rank_{strategy.rank()},
      ring_{make_ring(strategy, options_of(folder_, rank_, ranks), here)} {
  if (!are_on_several_hosts(ranks)) return;
  const ClockOffset clock = find_clock_offset(strategy.group().meeting().channel());
  ring_->set_clock(clock.offset, clock.error);
}

void RunTrace::write_pictures() const {
  write_picture(folder_, rank_);
  if (rank_ == 0) write_merged_picture(folder_);
}

void clear_trace(const std::filesystem::path& folder) {
  try {
    std::filesystem::create_directories(folder);
    for (const char* const ending : {".ring", ".json"})
      for (const auto& file : files_of_ranks(folder, ending)) std::filesystem::remove(file);
  } catch (const std::filesystem::filesystem_error& error) {
    throw ConfigError{
        fmt::format("{}: cannot be made ready for a trace ({})", folder.string(), error.code().message())};
  }
}

void write_picture(const std::filesystem::path& folder, int rank) {
  const trace::ReadRing ring = trace::read_ring(ring_of(folder, rank));
  write_spans({&ring, 1}, {}, folder / fmt::format("rank-{}.json", rank));
}

void write_merged_picture(const std::filesystem::path& folder) {
  const std::vector<trace::ReadRing> rings = read_rings(folder);
  write_spans(rings, trace::last_steps(rings, merged_steps), folder / "all-ranks.json");
}

std::vector<trace::ReadRing> read_rings(const std::filesystem::path& folder) {
  std::vector<trace::ReadRing> rings;
  for (const auto& file : files_of_ranks(folder, ".ring")) rings.push_back(trace::read_ring(file));
  if (rings.empty()) throw ConfigError{fmt::format("{}: holds no trace of a rank", folder.string())};
  std::ranges::sort(rings, {}, &trace::ReadRing::rank);
  return rings;
}

}  // namespace lockstep
