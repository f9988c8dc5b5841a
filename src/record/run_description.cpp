#include "record/run_description.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "base/file_type.hpp"
#include "base/host_name.hpp"
#include "comm/mpi/mpi_library.hpp"
#include "control/meeting_point.hpp"
#include "strategy/replica_group.hpp"

namespace lockstep {
namespace {

/// What a rank says of itself.
struct OwnPlace {
  std::array<char, 256> host = {};
  std::int64_t process = 0;
};

/// The part of "/job:worker/task:1/device:GPU:0" between `before` and the next slash; empty if there is none.
std::string part_of_device(std::string_view name, std::string_view before) {
  const auto found = name.find(before);
  if (found == name.npos) return {};
  name.remove_prefix(found + before.size());
  return std::string{name.substr(0, name.find('/'))};
}

std::string device_in(std::string_view name) {
  const std::string device = part_of_device(name, "/device:");
  constexpr std::string_view gpu = "GPU:";
  return device.starts_with(gpu) ? "cuda:" + device.substr(gpu.size()) : "cpu";
}

std::string task_in(std::string_view name) {
  const std::string job = part_of_device(name, "/job:");
  return job.empty() ? "" : job + ":" + part_of_device(name, "/task:");
}

std::vector<std::string> own_command() {
  std::ifstream file{"/proc/self/cmdline", std::ios::binary};
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

OrderedJson gather_ranks(Strategy& strategy, const Here& here) {
  ReplicaGroup& group = strategy.group();
  OwnPlace own{.process = ::getpid()};
  const std::string host = host_name();
  std::memcpy(own.host.data(), host.data(), std::min(host.size(), own.host.size() - 1));
  std::vector<OwnPlace> all(static_cast<std::size_t>(strategy.num_replicas_in_sync()));
  const MeetingPoint::NamedSteps named = group.meeting().keep_named_steps();
  strategy.set_step(0, Strategy::RunKind::setup);
  strategy.run(
      [&](ReplicaContext& context) {
        const Tensor mine = Tensor::zeros(DType::u8, {1, static_cast<std::int64_t>(sizeof own)});
        std::memcpy(mine.view().data(), &own, sizeof own);
        const Tensor rows = context.all_gather(mine, here);
        std::memcpy(all.data(), rows.view().data(), all.size() * sizeof own);
      },
      {}, here);
  OrderedJson ranks = OrderedJson::array();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string& device = group.device_names()[rank];
    ranks.push_back({{"replica", rank},
                     {"task", task_in(device)},
                     {"host", std::string{all[rank].host.data()}},
                     {"device", device_in(device)},
                     {"process", all[rank].process}});
  }
  return ranks;
}

OrderedJson describe_run(OrderedJson ranks) {
  const std::vector<std::string> command = own_command();
  const std::string mpi = name_of_started_mpi();
  const std::string program = command.empty() ? "" : std::filesystem::path{command.front()}.filename().string();
  return {{"format", 1},
          {"lockstep", LOCKSTEP_VERSION},
          {"program", program},
          {"command", command},
          {"options", OrderedJson::object()},
          {"cluster", nullptr},
          {"mpi", mpi.empty() ? OrderedJson{} : OrderedJson(mpi)},
          {"fingerprint", OrderedJson::array()},
          {"data", nullptr},
          {"ranks", std::move(ranks)},
          {"paths", OrderedJson::object()},
          {"started", time_text()},
          {"ended", nullptr},
          {"result", nullptr},
          {"starts", 1}};
}

std::string time_text() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::string path_in(const std::filesystem::path& folder, const std::filesystem::path& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  const std::filesystem::path inside =
      whole.lexically_relative(std::filesystem::absolute(folder / "").lexically_normal());
  const bool is_inside = !inside.empty() && *inside.begin() != ".." && inside != ".";
  return is_inside ? inside.string() : whole.string();
}

OrderedJson parse_object(std::string_view text, const char* what) {
  try {
    if (OrderedJson object = parse_foreign_json(text); object.is_object()) return object;
  } catch (const Error& error) {
    throw InvalidArgument{fmt::format("{} {}; expected a JSON object", what, error.what())};
  }
  throw InvalidArgument{fmt::format("{} is no JSON object; expected one", what)};
}

OrderedJson read_description(const std::filesystem::path& path) {
  if (!why_not_regular(path).empty()) return OrderedJson::object();
  std::ifstream file{path, std::ios::binary};
  try {
    return parse_object(std::string{std::istreambuf_iterator<char>{file}, {}}, "run.json");
  } catch (const InvalidArgument&) {
    return OrderedJson::object();
  }
}

}  // namespace lockstep
