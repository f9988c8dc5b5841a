#include "sync/checkpoint/left_checkpoints.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <span>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/system_error.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/file.hpp"
#include "sync/checkpoint/file_system.hpp"
#include "sync/checkpoint/folder.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// While it is there, newer checkpoints than it names do not count. It appears as a whole.
fs::path note_in(const fs::path& folder) {
  return folder / ".setting-aside";
}

/// One that is free, as far as the file system tells.
fs::path name_aside(const fs::path& checkpoint) {
  const std::string name = fmt::format("{}{}", checkpoint.string(), aside_suffix);
  fs::path aside = name;
  std::error_code unknown;
  for (int number = 2; fs::exists(fs::symlink_status(aside, unknown)); ++number)
    aside = fmt::format("{}-{}", name, number);
  return aside;
}

void point_link(const fs::path& folder, std::string_view link, std::optional<std::int64_t> step) {
  if (step && !is_gone(folder / checkpoint_name(*step)))
    switch_link(folder / link, checkpoint_name(*step));
  else
    remove_link(folder / link);
}

std::vector<std::string> move_aside(const fs::path& folder, std::int64_t step) {
  std::vector<std::string> moved;
  for (const fs::path& each : all_checkpoints_in(folder)) {
    if (step_in(each.filename().string()).value() <= step) break;
    if (::rename(each.c_str(), name_aside(each).c_str()) != 0)
      fail_checkpoint(each.string(), fmt::format("cannot be set aside: {}", error_text(errno)));
    moved.push_back(each.filename().string());
  }
  return moved;
}

void remove_note(const fs::path& folder) {
  if (!sync_folder(folder) || (::unlink(note_in(folder).c_str()) != 0 && errno != ENOENT))
    fail_checkpoint(note_in(folder).string(), fmt::format("cannot be removed: {}", error_text(errno)));
}

}  // namespace

std::vector<std::string> set_aside_after(const fs::path& folder, std::int64_t step, std::optional<std::int64_t> best) {
  const auto all = all_checkpoints_in(folder);
  if (all.empty() || step_in(all.front().filename().string()).value() <= step) return {};
  NewFile note{note_in(folder)};
  const std::string text = fmt::format("{}\n", step);
  note.write(std::as_bytes(std::span{text}));
  note.commit();
  const std::vector<std::string> moved = move_aside(folder, step);
  point_link(folder, latest_link, step);
  point_link(folder, best_link, best);
  remove_note(folder);
  return moved;
}

void finish_setting_aside(const fs::path& folder) {
  const auto step = newest_that_stays(folder);
  if (!step) return;
  (void)move_aside(folder, *step);
  for (const std::string_view link : {latest_link, best_link}) {
    std::error_code none;
    const fs::path target = fs::read_symlink(folder / link, none);
    if (!none && is_gone(folder / target)) remove_link(folder / link);  // it led to one of them
  }
  if (const auto left = all_checkpoints_in(folder); !left.empty())
    switch_link(folder / latest_link, left.front().filename().string());
  remove_note(folder);
}

std::optional<std::int64_t> newest_that_stays(const fs::path& folder) {
  const fs::path note = note_in(folder);
  if (is_gone(note)) return std::nullopt;
  std::string text;
  try {
    const ExistingFile file{note};
    text.resize(std::min<std::size_t>(file.size(), 32));
    file.read(0, std::as_writable_bytes(std::span{text}));
  } catch (const CheckpointError&) {
    if (is_gone(note)) return std::nullopt;  // removed meanwhile
    throw;
  }
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc{} || *end != '\n')
    fail_checkpoint(note.string(), "is no note of lockstep; expected the number of a step, or no such file");
  return step;
}

}  // namespace lockstep
