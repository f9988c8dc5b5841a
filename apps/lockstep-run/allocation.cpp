#include "apps/lockstep-run/allocation.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <sstream>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/launcher_words.hpp"
#include "apps/options/option_values.hpp"
#include "core/base/host_name.hpp"

namespace lockstep::run {
namespace {

constexpr std::size_t most_hosts = 1 << 20;

/// `list` at the commas outside of brackets.
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    parts.push_back(list.substr(first, i - first));
    first = i + 1;
  }
  return parts;
}

std::optional<int> whole(std::string_view digits) {
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

/// Appends the names that `text` stands for, each after `before`. False if it stands for none.
bool expand(const std::string& before, std::string_view text, std::vector<std::string>& names) {
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos) {
    names.push_back(before + std::string{text});
    return names.size() <= most_hosts && text.find(']') == std::string_view::npos && !names.back().empty();
  }
  const std::size_t close = text.find(']', open);
  if (close == std::string_view::npos) return false;
  const std::string start = before + std::string{text.substr(0, open)};
  for (const std::string_view range : parts_of(text.substr(open + 1, close - open - 1))) {
    const std::size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const auto first = whole(low), last = dash == std::string_view::npos ? first : whole(range.substr(dash + 1));
    if (!first || !last || *last < *first) return false;
    // "08" and "10" have the width of the first.
    for (int number = *first; number <= *last; ++number)
      if (!expand(start + fmt::format("{:0{}}", number, low.size()), text.substr(close + 1), names)) return false;
  }
  return true;
}

Allocation of_slurm(const char* nodes, const ReadVariable& variable) {
  const std::vector<std::string> names = expand_hosts(nodes, "SLURM_JOB_NODELIST");
  const char* const tasks = variable("SLURM_TASKS_PER_NODE");
  const std::vector<int> slots =
      tasks ? expand_counts(tasks, "SLURM_TASKS_PER_NODE") : std::vector<int>(names.size(), 1);
  if (slots.size() != names.size())
    throw ConfigError{
        fmt::format("SLURM_TASKS_PER_NODE {}: expected a number for each of the {} nodes of {}, or "
                    "--ignore-scheduler",
                    tasks, names.size(), nodes)};
  const char* const job = variable("SLURM_JOB_ID");
  Allocation all{fmt::format("Slurm job {}", job ? job : "without a number"), {}};
  for (std::size_t i = 0; i < names.size(); ++i) all.hosts.push_back({names[i], slots[i]});
  return all;
}

/// A line for each rank, with the name of its host.
Allocation of_pbs(const std::string& file) {
  // Debian's Open MPI is built without PBS.
  Allocation all{fmt::format("PBS_NODEFILE {}", file), {}, !is_open_mpi(own_mpi())};
  std::istringstream words{read_hostfile("PBS_NODEFILE", file)};
  for (std::string name; words >> name;) {
    const auto known = std::ranges::find(all.hosts, name, &Host::name);
    if (known == all.hosts.end())
      all.hosts.push_back({name, 1});
    else
      ++known->slots;
  }
  if (all.hosts.empty()) throw ConfigError{all.source + ": expected the name of a host in each line"};
  return all;
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list, const std::string& source) {
  std::vector<std::string> names;
  for (const std::string_view part : parts_of(list))
    if (!expand("", part, names))
      throw ConfigError{fmt::format("{} {}: expected hosts such as a[1-3,07],b", source, shown(std::string{list}))};
  return names;
}

std::vector<int> expand_counts(std::string_view list, const std::string& source) {
  std::vector<int> counts;
  for (const std::string_view part : parts_of(list)) {
    const std::size_t repeat = part.find("(x");
    const auto count = whole(part.substr(0, repeat));
    auto times = std::optional<int>{1};
    if (repeat != std::string_view::npos)
      times = part.ends_with(')') ? whole(part.substr(repeat + 2, part.size() - repeat - 3)) : std::nullopt;
    if (!count || *count < 1 || *count > static_cast<int>(most_hosts) || !times || *times < 1 ||
        counts.size() + static_cast<std::size_t>(*times) > most_hosts)
      throw ConfigError{fmt::format("{} {}: expected numbers such as 2(x10),5", source, shown(std::string{list}))};
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

std::optional<Allocation> read_allocation(const ReadVariable& variable) {
  if (const char* const nodes = variable("SLURM_JOB_NODELIST")) return of_slurm(nodes, variable);
  if (const char* const file = variable("PBS_NODEFILE")) return of_pbs(file);
  if (const char* const file = variable("OMPI_MCA_orte_default_hostfile"))
    return Allocation{fmt::format("the hostfile {}", file),
                      parse_hostfile(read_hostfile("OMPI_MCA_orte_default_hostfile", file), file)};
  return std::nullopt;
}

void require_in_allocation(std::span<const Host> hosts, const Allocation& allocation) {
  for (const Host& host : hosts) {
    const auto found = find_host(allocation.hosts, host.name, host_name());
    if (!found)
      throw ConfigError{fmt::format("host {} is not in {}, which has {}; expected one of these, or --ignore-scheduler",
                                    host.name, allocation.source, to_host_list(allocation.hosts))};
    if (const int slots = allocation.hosts[*found].slots; slots < host.slots)
      throw ConfigError{
          fmt::format("host {} is to take {} ranks, and has {} in {}; expected at most as many, or "
                      "--ignore-scheduler",
                      host.name, host.slots, slots, allocation.source)};
  }
}

}  // namespace lockstep::run
