#include "models/record/run_trace.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/file_io.hpp"
#include "core/base/own_file.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/clock_offset.hpp"
#include "core/control/meeting_point.hpp"
#include "core/device/devices.hpp"
#include "core/trace/chrome.hpp"
#include "core/trace/ring_file.hpp"
#include "sync/checkpoint/file.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// Of the picture of all ranks. More make pictures that viewers open slowly.
constexpr std::uint32_t merged_steps = 20;
constexpr const char* merged_name = "all-ranks.trace";
constexpr const char* before_name = "before";

std::filesystem::path ring_of(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank-{}.ring", rank);
}

/// The files in `folder` whose names are "rank-R" and `ending`; none if there is no such folder. ConfigError if it is
/// something else.
std::vector<std::filesystem::path> files_of_ranks(const std::filesystem::path& folder, std::string_view ending) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry{folder, error}, end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with("rank-") && name.ends_with(ending)) files.push_back(entry->path());
  }
  if (error == std::errc::not_a_directory)
    throw ConfigError{fmt::format("{}: is no folder; expected that of a trace", folder.string())};
  if (error && error != std::errc::no_such_file_or_directory) throw FileError{folder.string(), "read", error.value()};
  // By rank.
  std::ranges::sort(files, {}, [](const auto& file) { return std::pair{file.string().size(), file.string()}; });
  return files;
}

void require_own_picture(const std::filesystem::path& path, const std::string& name) {
  require_own(path, {trace::chrome_begin}, name, "another folder, or none of that name");
}

/// What a rank that was killed at its start has left is zeros.
void require_own_rings(const std::filesystem::path& folder, const std::string& name) {
  constexpr std::string_view ring_begin{"lockstep trace"}, of_killed{"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16};
  for (const auto& ring : files_of_ranks(folder, ".ring"))
    require_own(ring, {ring_begin, of_killed}, fmt::format("{} {}", name, ring.string()),
                "another folder, or none of that name");
}

void write_spans(std::span<const trace::ReadRing> rings, const trace::Steps& steps, const std::filesystem::path& path) {
  require_own_picture(path, path.string());
  NewFile file{path, "trace"};
  trace::write_chrome(rings, steps, [&](std::string_view piece) { file.write(std::as_bytes(std::span{piece})); });
  file.commit();
}

/// If one rank cannot make it, all learn of that.
std::unique_ptr<trace::Ring> make_ring(Strategy& strategy, const trace::Ring::Options& options, const Here& here) {
  auto ring = detail::announcing_failure(inside(strategy).group().meeting(), here,
                                         [&] { return std::make_unique<trace::Ring>(options); });
  inside(strategy).agree(TagKind::save, here, "the files of a trace");
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

/// For rings of ranks that live: what one of them has not come out of yet is over a moment later. A program's own spans
/// may be around the call that writes.
void keep_whole_spans_of_last_steps(trace::ReadRing& ring) {
  std::erase_if(ring.spans,
                [](const trace::ReadSpan& span) { return !span.length && span.kind != trace::Kind::program; });
  keep_last_steps(ring);
}

}  // namespace

RunTrace::RunTrace(Strategy& strategy, std::filesystem::path folder, const OrderedJson& ranks, const Here& here)
    : strategy_{strategy},
      folder_{std::move(folder)},
      rank_{strategy.rank()},
      ring_{make_ring(strategy, options_of(folder_, rank_, ranks), here)} {
  if (strategy.stream().kind() == DeviceKind::cuda)
    if (auto marks = make_device_marks()) gpu_.emplace(std::move(marks));
  if (!are_on_several_hosts(ranks)) return;
  const ClockOffset clock = find_clock_offset(inside(strategy).group().meeting().channel());
  ring_->set_clock(clock.offset, clock.error);
}

void RunTrace::write_pictures() const {
  const auto alone = inside(strategy_).group().meeting().working_alone();
  try {
    write_picture(folder_, trace::read_ring(ring_of(folder_, rank_)));
    if (rank_ == 0) write_merged_picture(folder_, read_rings(folder_, keep_whole_spans_of_last_steps).read);
  } catch (const Error& error) {
    log::warning(fmt::format("{}; lockstep-inspect --trace {} makes the pictures", error.what(), folder_.string()));
  }
}

void require_own_trace(const std::filesystem::path& folder, const std::string& name) {
  require_own_rings(folder, name);
  require_own_rings(folder / before_name, name);
  for (const auto& picture : files_of_ranks(folder, ".json"))
    require_own_picture(picture, fmt::format("{} {}", name, picture.string()));
  require_own_picture(folder / merged_name, fmt::format("{} {}", name, (folder / merged_name).string()));
}

void clear_trace(const std::filesystem::path& folder) {
  const std::filesystem::path before = folder / before_name;
  try {
    std::filesystem::create_directories(folder);
    if (const auto rings = files_of_ranks(folder, ".ring"); !rings.empty()) {
      std::filesystem::create_directory(before);
      for (const auto& ring : files_of_ranks(before, ".ring")) std::filesystem::remove(ring);
      for (const auto& ring : rings) std::filesystem::rename(ring, before / ring.filename());
    }
    for (const auto& picture : files_of_ranks(folder, ".json")) std::filesystem::remove(picture);
    std::filesystem::remove(folder / merged_name);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string what =
        fmt::format("{}: cannot be made ready for a trace ({})", folder.string(), error.code().message());
    if (!is_about_path(error.code().value())) throw CheckpointError{what};
    throw ConfigError{what};
  }
}

void write_picture(const std::filesystem::path& folder, const trace::ReadRing& ring) {
  write_spans({&ring, 1}, {}, folder / fmt::format("rank-{}.json", ring.rank));
}

void write_merged_picture(const std::filesystem::path& folder, std::span<const trace::ReadRing> rings) {
  write_spans(rings, trace::last_steps(rings, merged_steps), folder / merged_name);
}

Rings read_rings(const std::filesystem::path& folder, const std::function<void(trace::ReadRing&)>& see) {
  Rings rings;
  for (const auto& file : files_of_ranks(folder, ".ring")) {
    try {
      see(rings.read.emplace_back(trace::read_ring(file)));
    } catch (const ConfigError& error) {
      rings.unreadable.emplace_back(error.what());
    }
  }
  if (rings.read.empty())
    throw ConfigError{rings.unreadable.empty() ? fmt::format("{}: holds no trace of a rank", folder.string())
                                               : rings.unreadable.front()};
  return rings;
}

void keep_last_steps(trace::ReadRing& ring) {
  // Ranks are at most one step apart.
  constexpr std::uint32_t enough = merged_steps + 2;
  std::uint32_t last = 0;
  for (const trace::ReadSpan& span : ring.spans) last = std::max(last, span.step);
  const auto removed =
      std::erase_if(ring.spans, [&](const trace::ReadSpan& span) { return span.step + enough < last; });
  // What comes before the first step that is kept is not what was lost.
  if (removed > 0) ring.lost = 0;
  ring.spans.shrink_to_fit();
}

}  // namespace lockstep
