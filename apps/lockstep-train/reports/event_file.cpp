#include "apps/lockstep-train/reports/event_file.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/file_io.hpp"
#include "core/base/host_name.hpp"
#include "core/base/part_library.hpp"
#include "core/base/system_error.hpp"
#include "sync/checkpoint/exclusive_use.hpp"

namespace lockstep {
namespace {

constexpr const char* library_file = "liblockstep-tensorboard.so." LOCKSTEP_VERSION;
constexpr std::string_view name_begin = "events.out.tfevents.";

/// Stays open until the process ends. ConfigError if it is not there.
const EventRecords* open_records() {
  const PartLibrary part = open_part(library_file, event_records_symbol);
  if (!part.was_found && !LOCKSTEP_BUILDS_TENSORBOARD)
    throw ConfigError{
        "--tensorboard: this build writes no event files; expected one that found protobuf, protoc and Boost (Debian: "
        "libprotobuf-dev, protobuf-compiler, libboost-dev)"};
  if (!part.was_found)
    throw ConfigError{
        fmt::format("--tensorboard: {}; expected it in one of them, or its folder in LD_LIBRARY_PATH", part.trouble)};
  if (!part.trouble.empty())
    throw ConfigError{fmt::format("--tensorboard: {}; expected one that can be loaded", part.trouble)};
  const auto find = reinterpret_cast<FindEventRecords*>(part.symbol);
  const EventRecords* const records = find ? find() : nullptr;
  if (!records || records->version != std::string_view{LOCKSTEP_VERSION})
    throw ConfigError{
        fmt::format("--tensorboard: {} belongs to another lockstep; expected that of " LOCKSTEP_VERSION, library_file)};
  return records;
}

std::string name_of(const std::filesystem::path& folder) {
  return fmt::format("--tensorboard {}", folder.string());
}

[[noreturn]] void refuse(const std::filesystem::path& folder, int code) {
  if (!is_about_path(code)) throw FileError{name_of(folder), "written", code};
  throw ConfigError{fmt::format("{}: {}; expected a folder that can be written", name_of(folder), error_text(code))};
}

double now() {
  return std::chrono::duration<double>{std::chrono::system_clock::now().time_since_epoch()}.count();
}

/// The number that the next file's name has: readers take the files in the order of their names, so it is later than
/// those that are there, whatever the clock says.
std::int64_t next_time(const std::filesystem::path& folder) {
  auto time = static_cast<std::int64_t>(now());
  std::error_code error;
  for (std::filesystem::directory_iterator entry{folder, error}, end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(name_begin)) continue;
    std::int64_t there = 0;
    std::from_chars(name.data() + name_begin.size(), name.data() + name.size(), there);
    if (there < std::int64_t{1} << 40) time = std::max(time, there + 1);
  }
  return time;
}

}  // namespace

EventFile::EventFile(std::filesystem::path folder, std::shared_ptr<ExclusiveUse> use, std::int64_t steps)
    : folder_{std::move(folder)}, records_{open_records()}, use_{std::move(use)} {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) refuse(folder_, error.value());
  path_ = folder_ / fmt::format("{}{:010d}.{}", name_begin, next_time(folder_), host_name());
  const auto make = [&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666); };
  Descriptor file{uninterrupted(make)};
  if (file.get() < 0) refuse(folder_, errno);
  file_.emplace(std::move(file), path_, name_of(path_));
  write({.kind = TensorBoardEvent::Kind::file_version});
  write({.kind = TensorBoardEvent::Kind::session_start, .step = steps + 1});
}

void EventFile::on_step(const Observer::Step& report) {
  TensorBoardEvent event{.step = report.step,
                         .scalars = {{"train/loss", report.loss}, {"train/learning_rate", report.learning_rate}}};
  if (report.gradient_norm) event.scalars.emplace_back("train/gradient_norm", *report.gradient_norm);
  event.scalars.emplace_back("train/samples_per_second", report.samples_per_second);
  write(std::move(event));
}

void EventFile::on_evaluation(const Observer::Evaluation& report) {
  TensorBoardEvent event{.step = report.step, .scalars = {{"evaluation/loss", report.loss}}};
  if (report.bits_per_byte) event.scalars.emplace_back("evaluation/bits_per_byte", *report.bits_per_byte);
  if (report.r_squared) {
    event.scalars.emplace_back("evaluation/r2", *report.r_squared);
    event.scalars.emplace_back("evaluation/mean_absolute_error", *report.mean_absolute_error);
  } else {
    event.scalars.emplace_back("evaluation/accuracy", report.accuracy);
  }
  write(std::move(event));
}

void EventFile::on_parts(const Observer::Parts& report) {
  using Replica = Observer::Parts::Replica;
  constexpr std::pair<const char*, double Replica::*> parts[] = {
      {"data", &Replica::data},           {"forward", &Replica::forward},       {"backward", &Replica::backward},
      {"optimizer", &Replica::optimizer}, {"checkpoint", &Replica::checkpoint}, {"evaluation", &Replica::evaluation},
      {"other", &Replica::other},         {"waiting", &Replica::waiting}};
  if (report.steps == 0 || report.replicas.empty()) return;
  const double ranks = static_cast<double>(report.replicas.size()), steps = static_cast<double>(report.steps);
  TensorBoardEvent event{.step = report.step};
  for (const auto& [name, part] : parts) {
    double seconds = 0;
    for (const Replica& replica : report.replicas) seconds += replica.*part;
    event.scalars.emplace_back(fmt::format("parts/{}", name), seconds / ranks / steps);
  }
  for (const Replica& replica : report.replicas)
    event.scalars.emplace_back(fmt::format("late/{} {}", replica.replica, replica.name), replica.late);
  write(std::move(event));
}

void EventFile::write(TensorBoardEvent event) {
  if (use_) use_->require_not_lost();
  event.wall_time = now();
  file_->write(records_->record_of(event));
  if (is_loss_told_) return;
  try {
    file_->require_in_place();
  } catch (const CheckpointError& error) {
    is_loss_told_ = true;
    log::warning(fmt::format("{}; what the run still writes is lost", error.what()));
  }
}

}  // namespace lockstep
