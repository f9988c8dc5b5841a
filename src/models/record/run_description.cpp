#include "models/record/run_description.hpp"

#include <array>
#include <ctime>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"
#include "core/base/own_file.hpp"
#include "core/comm/mpi/mpi_library.hpp"
#include "core/control/meeting_point.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

constexpr std::string_view description_begin = "{\n  \"format\": ";

/// "cuda:1" of "/job:worker/task:1/device:GPU:1".
std::string device_in(std::string_view name) {
  constexpr std::string_view gpu = "/device:GPU:";
  const auto found = name.find(gpu);
  return found == name.npos ? "cpu" : "cuda:" + std::string{name.substr(found + gpu.size())};
}

std::vector<std::string> own_command() {
  std::ifstream file{"/proc/self/cmdline", std::ios::binary};
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

OrderedJson gather_ranks(Strategy& strategy, const Here& here) {
  ReplicaGroup& group = inside(strategy).group();
  inside(strategy).agree(TagKind::compare, here, "the ranks of a run");
  const std::vector<std::int64_t> processes = group.meeting().gather(std::array{std::int64_t{::getpid()}});
  const std::vector<std::string> devices = group.device_names();
  const std::vector<Job::Residence> residences = group.residences();
  OrderedJson ranks = OrderedJson::array();
  for (std::size_t rank = 0; rank < processes.size(); ++rank)
    ranks.push_back({{"replica", rank},
                     {"task", residences[rank].task},
                     {"host", residences[rank].host},
                     {"device", device_in(devices[rank])},
                     {"process", processes[rank]}});
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

OrderedJson read_description(const std::filesystem::path& path, const std::string& name) {
  require_own(path, {description_begin}, name, "another folder, or none of that name");
  const std::optional<Descriptor> file = find_to_read(path, name);
  if (!file) return OrderedJson::object();
  const std::string text = read_text(*file, longest_description, name);
  try {
    return with_memory(name, [&] { return parse_object(text, "run.json"); });
  } catch (const InvalidArgument&) {
    return OrderedJson::object();
  }
}

}  // namespace lockstep
