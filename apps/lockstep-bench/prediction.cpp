#include "apps/lockstep-bench/prediction.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/options/option_values.hpp"

namespace lockstep::bench {
namespace {

// Of a frame with its preamble and gap, and of what it carries with TCP's timestamps.
constexpr double frame_bytes = 1538, payload_bytes = 1448;

// Two agreements surround a step.
constexpr int agreements = 2;
// Gradients go to whoever adds them up, and return. Those under way do not wait for each other.
constexpr int ways = 2;

constexpr std::int64_t most_nodes = 1024;

/// The parts of a list. An empty text has one, which is empty.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t comma = std::min(text.find(',', first), text.size());
    parts.push_back(text.substr(first, comma - first));
    first = comma + 1;
  }
  return parts;
}

using Units = std::vector<std::pair<std::string_view, double>>;

/// A positive number with one of `units`, times its factor: nothing if `text` is something else.
std::optional<double> scaled(const std::string& text, const Units& units) {
  double number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !(number > 0) || number > 1e12) return {};
  const std::string_view unit{end, static_cast<std::size_t>(text.data() + text.size() - end)};
  for (const auto& [name, factor] : units)
    if (unit == name) return number * factor;
  return {};
}

/// Bytes of a sum: each slice but its own to its rank, and its own to all others.
double sent_by_node(int nodes, std::int64_t bytes) {
  return 2.0 * (nodes - 1) / nodes * static_cast<double>(bytes);
}

}  // namespace

std::int64_t StepWork::bytes() const {
  std::int64_t sum = 0;
  for (const Look& look : looks) sum += look.bytes;
  return sum;
}

std::string_view Prediction::limit() const {
  if (wire >= std::max(computation, latency)) return "wire";
  return latency > computation ? "latency" : "computation";
}

Prediction predict_step(int nodes, const StepWork& work, const Links& links, const Cores& cores) {
  const double slowdown = slowdown_of(nodes, cores);
  Prediction prediction{.computation = work.computation * slowdown};
  if (nodes == 1) return prediction;
  // A megabyte per second is a thousand bytes per millisecond.
  const double one_way = sent_by_node(nodes, 1) / ways / (slowest_rate(nodes, links) * 1e3);
  prediction.wire = ways * one_way * static_cast<double>(work.bytes());
  prediction.exposed = exposed_time(work.looks, work.backward * slowdown, one_way);
  prediction.latency = (agreements * rounds_of_agreement(nodes) + rounds_of_last_sum(nodes) + ways) * links.delay;
  return prediction;
}

double slowdown_of(int nodes, const Cores& cores) {
  return cores.of_machine == 0 ? 1 : std::max(1.0, static_cast<double>(nodes) * cores.of_rank / cores.of_machine);
}

int rounds_of_agreement(int nodes) {
  return std::bit_width(static_cast<unsigned>(nodes - 1));
}

int rounds_of_last_sum(int nodes) {
  // Two exchange theirs.
  return nodes <= 2 ? nodes - 1 : 1 + std::bit_width(static_cast<unsigned>(nodes - 1));
}

double slowest_rate(int nodes, const Links& links) {
  const std::span rates{links.rates.data(), std::min(links.rates.size(), static_cast<std::size_t>(nodes))};
  const double slowest = *std::ranges::min_element(rates);
  if (links.of == Links::Of::wires) return slowest * share_of_wire(nodes);
  return links.nodes == 0 ? slowest : slowest * share_of_wire(nodes) / share_of_wire(links.nodes);
}

Links links_of_sum(int nodes, std::int64_t bytes, double time, double delay) {
  return {{sent_by_node(nodes, bytes) / std::max(time - ways * delay, time / 2) / 1e3}, Links::Of::sums, nodes, delay};
}

bool tells_rate(double time, double delay) {
  constexpr double times_latency = 8;
  return time >= times_latency * ways * delay;
}

double payload_rate(double bits_per_second) {
  return bits_per_second / 8e6 * payload_bytes / frame_bytes;
}

double share_of_wire(int nodes) {
  return nodes == 2 ? 0.99 : 0.95;
}

Links parse_links(const std::string& option, const std::string& text) {
  Links links;
  const Units wires{{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}, measured{{"MB/s", 1}};
  for (const std::string& part : parts_of(text)) {
    const std::optional<double> rate = scaled(part, measured), bits = scaled(part, wires);
    if ((!rate && !bits) || (!links.rates.empty() && (links.of == Links::Of::sums) != rate.has_value()))
      throw ConfigError{fmt::format(
          "{} {}: expected rates of wires, such as 100mbit or 1gbit,500kbit, or measured ones, such as 8.6MB/s", option,
          shown(text))};
    links.of = rate ? Links::Of::sums : Links::Of::wires;
    links.rates.push_back(rate ? *rate : payload_rate(*bits));
  }
  return links;
}

double parse_delay(const std::string& option, const std::string& text) {
  if (const auto delay = scaled(text, {{"us", 1e-3}, {"ms", 1}, {"s", 1e3}})) return *delay;
  throw ConfigError{fmt::format("{} {}: expected a time such as 1ms or 250us", option, shown(text))};
}

std::vector<int> parse_nodes(const std::string& option, const std::string& text) {
  return parse_counts(option, text, "nodes", most_nodes);
}

std::vector<int> parse_counts(const std::string& option, const std::string& text, std::string_view of, int most) {
  std::vector<int> counts;
  const std::string expected = fmt::format("numbers of {} from 1 to {}, separated by commas, such as 2,3,4", of, most);
  const std::string where = text.find(',') == text.npos ? option : fmt::format("{} {}:", option, shown(text));
  for (const std::string& part : parts_of(text)) {
    const auto count = parse_number<std::int64_t>(where, part, 1, expected.c_str());
    if (count > most) throw ConfigError{fmt::format("{} {}: expected {}", where, shown(part), expected)};
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text, std::int64_t limit) {
  std::vector<std::int64_t> sizes;
  for (const std::string& part : parts_of(text)) sizes.push_back(parse_bytes(option, part, limit));
  return sizes;
}

}  // namespace lockstep::bench
