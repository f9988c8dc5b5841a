#include "apps/lockstep-run/hosts.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <sstream>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/options/option_values.hpp"
#include "core/base/file_io.hpp"
#include "core/base/host_name.hpp"

namespace lockstep::run {
namespace {

constexpr int most_slots = 1 << 20;

/// A host that is named twice has the slots of both.
void add(std::vector<Host>& hosts, const std::string& name, int slots) {
  const auto known = std::ranges::find(hosts, name, &Host::name);
  if (known == hosts.end())
    hosts.push_back({name, slots});
  else
    known->slots = std::min(known->slots + slots, most_slots);
}

/// mpirun and ssh would take such a name for an option. ssh first strips a user name.
void require_no_option(const std::string& where, const std::string& name) {
  if (name.starts_with('-') || name.find("@-") != std::string::npos)
    throw ConfigError{fmt::format("{} {}: expected the name of a host, which begins with no '-'", where, shown(name))};
}

int parse_slots(const std::string& where, const std::string& text) {
  return static_cast<int>(parse_count(where, text, 1, most_slots));
}

bool is_this_host(std::string_view name, std::string_view this_host) {
  const std::string_view label = first_label(name);
  return same_host_name(label, "localhost") || label.starts_with("127.") ||
         same_host_name(label, first_label(this_host));
}

}  // namespace

std::string_view first_label(std::string_view name) {
  name.remove_prefix(name.find('@') + 1);
  // An address has dots, too.
  const bool is_address = name.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_address ? name : name.substr(0, name.find('.'));
}

std::vector<Host> parse_host_list(const std::string& option, std::string_view text) {
  std::vector<Host> hosts;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t comma = std::min(text.find(',', first), text.size());
    const std::string entry{text.substr(first, comma - first)};
    const std::size_t colon = entry.find(':');
    if (entry.empty() || colon == 0)
      throw ConfigError{fmt::format("{} {}: expected hosts with their slots, such as node1:2,node2:2", option,
                                    shown(std::string{text}))};
    require_no_option(option, entry);
    add(hosts, entry.substr(0, colon),
        colon == std::string::npos ? 1 : parse_slots(option + " " + shown(entry) + ":", entry.substr(colon + 1)));
    first = comma + 1;
  }
  return hosts;
}

std::string read_hostfile(const std::string& option, const std::string& name) {
  constexpr std::size_t most = std::size_t{16} << 20;
  const std::string named = fmt::format("{} {}", option, name);
  try {
    return read_text(open_to_read(parse_file_name(option, name), named), most, named);
  } catch (const FileError& error) {
    throw ConfigError{error.what()};
  }
}

std::vector<Host> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string{text}};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words{line.substr(0, line.find('#'))};
    std::string name, word;
    if (!(words >> name)) continue;
    const std::string where = fmt::format("{}:{}:", file, number);
    require_no_option(where, name);
    std::optional<int> slots;
    if (const std::size_t colon = name.find(':'); colon != std::string::npos) {
      if (colon != name.rfind(':'))
        throw ConfigError{fmt::format(
            "{} {}: expected the name of a host or an IPv4 address; mpirun takes no IPv6 address", where, shown(name))};
      slots = parse_slots(where, name.substr(colon + 1));
      name.resize(colon);
    }
    while (words >> word) {
      if (word.starts_with("slots="))
        slots = parse_slots(where, word.substr(word.find('=') + 1));
      else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots="))
        throw ConfigError{fmt::format("{} {}: expected slots=N after the name of a host", where, shown(word))};
    }
    if (!slots)
      throw ConfigError{
          fmt::format("{} {} has no slots=N; expected the number of ranks that it takes", where, shown(name))};
    add(hosts, name, *slots);
  }
  if (hosts.empty()) throw ConfigError{fmt::format("{}: expected at least one line such as node1 slots=2", file)};
  return hosts;
}

std::vector<std::string> elsewhere(std::span<const Host> hosts, std::string_view this_host) {
  std::vector<std::string> names;
  for (const Host& host : hosts)
    if (!is_this_host(host.name, this_host)) names.push_back(host.name);
  return names;
}

std::string to_host_list(std::span<const Host> hosts) {
  std::string list;
  for (const Host& host : hosts) list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host.name, host.slots);
  return list;
}

int slots_of(std::span<const Host> hosts) {
  const auto sum = std::accumulate(hosts.begin(), hosts.end(), std::int64_t{0},
                                   [](std::int64_t so_far, const Host& host) { return so_far + host.slots; });
  return static_cast<int>(std::min<std::int64_t>(sum, std::numeric_limits<int>::max()));
}

std::optional<std::size_t> find_host(std::span<const Host> hosts, std::string_view name, std::string_view this_host) {
  const auto called = [&](auto&& matches) -> std::optional<std::size_t> {
    const auto found = std::ranges::find_if(hosts, matches, &Host::name);
    if (found == hosts.end()) return std::nullopt;
    return static_cast<std::size_t>(found - hosts.begin());
  };
  if (name.empty()) return std::nullopt;
  if (const auto exact = called([&](const std::string& each) { return same_host_name(each, name); })) return exact;
  return called([&](const std::string& each) {
    return same_host_name(first_label(each), first_label(name)) ||
           (is_this_host(each, this_host) && is_this_host(name, this_host));
  });
}

}  // namespace lockstep::run
