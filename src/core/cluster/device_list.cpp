#include "core/cluster/device_list.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/decimal.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/foreign_json.hpp"
#include "core/base/lower_case.hpp"
#include "core/cluster/counted.hpp"

namespace lockstep {
namespace {

/// What a device's name may consist of, each part at most once.
struct Name {
  std::string_view job, task, type, number;
};

/// Reads one entry of a list.
class NameParser {
 public:
  NameParser(std::string_view entry, std::string_view source) : entry_{entry}, source_{source} {}

  [[noreturn]] void fail(std::string_view why) const {
    throw ConfigError{fmt::format("{}: {}: {}", source_, shown(entry_), why)};
  }

  Name parse() const {
    Name name;
    if (!entry_.starts_with('/')) {
      read_device(entry_, name);
      return name;
    }
    for (std::string_view left = entry_.substr(1); !left.empty();) {
      const std::size_t slash = std::min(left.find('/'), left.size());
      read_part(left.substr(0, slash), name);
      left.remove_prefix(std::min(slash + 1, left.size()));
    }
    if (name.type.empty()) fail(expected);
    return name;
  }

  int number(std::string_view text) const {
    if (text.empty()) return 0;
    int value = 0;
    if (!parse_decimal(text, value) || value < 0) fail(expected);
    return value;
  }

 private:
  static constexpr std::string_view expected =
      "expected a device such as 0, GPU:0, GPU-<UUID>, CPU:0 or /job:worker/task:0/device:GPU:0";

  void read_part(std::string_view part, Name& name) const {
    const std::size_t colon = part.find(':');
    const std::string_view key = part.substr(0, colon);
    const std::string_view value = colon == part.npos ? std::string_view{} : part.substr(colon + 1);
    if (value.empty()) fail(expected);
    if (key == "job" && name.job.empty()) {
      name.job = value;
    } else if (key == "task" && name.task.empty()) {
      name.task = value;
    } else if (key == "device" && name.type.empty()) {
      read_device(value, name);
    } else if (key != "replica" || value != "0") {  // which some programs write
      fail(expected);
    }
  }

  /// "GPU:2", "GPU" or "2".
  void read_device(std::string_view device, Name& name) const {
    if (!device.empty() && device.find_first_not_of("0123456789") == device.npos) {
      name.type = "GPU";
      name.number = device;
      return;
    }
    if (device.starts_with("GPU-")) {
      name.type = device;
      return;
    }
    const std::size_t colon = std::min(device.find(':'), device.size());
    name.type = device.substr(0, colon);
    name.number = device.substr(std::min(colon + 1, device.size()));
    if (name.type == "gpu" || name.type == "cpu") fail("device types are written in capitals: GPU or CPU");
    if ((name.type != "GPU" && name.type != "CPU") || (name.number.empty() && colon < device.size())) fail(expected);
  }

  std::string_view entry_, source_;
};

/// Hexadecimal digits as CUDA gives them.
std::string plain_uuid(std::string_view text) {
  std::string uuid = lower_case(text);
  std::erase(uuid, '-');
  return uuid;
}

}  // namespace

DeviceList DeviceList::parse(std::string_view text, std::string_view source) {
  DeviceList list;
  list.source_ = source;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t comma = std::min(text.find(',', first), text.size());
    const std::string_view entry = text.substr(first, comma - first);
    const NameParser parser{entry, source};
    if (entry.empty())
      throw ConfigError{fmt::format("{}: {}: expected devices, separated by commas", source, shown(text))};
    const Name name = parser.parse();
    Listed listed;
    if (const bool local = name.job.empty() || name.job == "localhost"; !local) {
      if (name.task.empty()) parser.fail("has a job without a task; expected both, such as /job:worker/task:0");
      listed.task = Task{std::string{name.job}, parser.number(name.task)};
    } else if (name.job.empty() && !name.task.empty()) {
      parser.fail("has a task without a job; expected both, such as /job:worker/task:0");
    }
    if (name.type.starts_with("GPU-")) {
      listed.gpu = ChosenGpu{.uuid = plain_uuid(name.type.substr(4))};
      if (listed.gpu->uuid.empty()) parser.fail("expected a UUID as nvidia-smi -L prints it");
    } else if (const int number = parser.number(name.number); name.type == "GPU") {
      listed.gpu = ChosenGpu{.number = number};
    } else if (number != 0) {
      parser.fail("the CPU is one device, CPU:0");
    }
    if (!list.devices_.empty()) {
      const Listed& before = list.devices_.front();
      if (before.task.has_value() != listed.task.has_value())
        parser.fail(before.task ? "has no task, but the first entry of the list has one; expected all or none"
                                : "has a task, but the first entry of the list has none; expected all or none");
      if (before.gpu.has_value() != listed.gpu.has_value())
        parser.fail("the list has GPUs and CPUs; expected one kind, since ranks compute on devices of one kind");
    }
    list.devices_.push_back(std::move(listed));
    first = comma + 1;
  }
  return list;
}

std::vector<ChosenGpu> DeviceList::gpus_of(const std::vector<int>& ranks_of_node, const RankMap& ranks) const {
  std::vector<ChosenGpu> gpus;
  if (empty()) return gpus;
  const auto require_as_many = [&](std::ptrdiff_t listed, std::string_view whose, int there) {
    if (listed != there)
      throw ConfigError{fmt::format("{}: {} for {}, which runs {}; expected one for each", source_,
                                    counted(static_cast<int>(listed), "device"), whose, counted(there, "rank"))};
  };
  if (!devices_.front().task) {
    if (kind() == DeviceKind::cpu && devices_.size() == 1) return gpus;  // which all ranks share
    require_as_many(std::ssize(devices_), "this node", static_cast<int>(ranks_of_node.size()));
    for (const Listed& each : devices_)
      if (each.gpu) gpus.push_back(*each.gpu);
    return gpus;
  }
  const std::vector<Task> tasks = ranks.spec().tasks();
  for (const Listed& each : devices_)
    if (std::ranges::find(tasks, *each.task) == tasks.end())
      throw ConfigError{fmt::format("{}: {} is no task of this job, which has {}", source_,
                                    excerpt(to_string(*each.task)), counted(static_cast<int>(tasks.size()), "task"))};
  for (const Task& task : tasks)
    require_as_many(std::ranges::count(devices_, task, [](const Listed& each) { return *each.task; }), to_string(task),
                    ranks.spec().replicas_per_task());
  for (const int rank : ranks_of_node) {
    int before = ranks.replica_in_task(rank);  // entries of its task before its own
    for (const Listed& each : devices_)
      if (*each.task == ranks.task_of(rank) && before-- == 0 && each.gpu) gpus.push_back(*each.gpu);
  }
  return gpus;
}

}  // namespace lockstep
