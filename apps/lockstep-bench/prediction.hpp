// How long a training step will take on nodes that are not there: docs/prediction.md, as functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep-bench/overlap.hpp"

namespace lockstep::bench {

/// What joins the nodes.
struct Links {
  /// Of each node, in MB/s. The last is that of all further nodes.
  std::vector<double> rates;
  /// What the rates are: what the wires carry, or what a sum between several nodes sends on them, which is less.
  enum class Of : std::uint8_t { wires, sums } of = Of::wires;
  /// Of sums: between how many nodes; 0 if between as many as are asked about.
  int nodes = 0;
  double delay = 0;  ///< from one node to another, in milliseconds
};

/// Of a step on a number of nodes, each with one rank, without what goes between nodes.
struct StepWork {
  double computation = 0;   ///< of one rank, in milliseconds, where nobody else needs its cores
  double backward = 0;      ///< the part of it that is the backward pass
  std::vector<Look> looks;  ///< of that pass

  /// Of the gradients.
  std::int64_t bytes() const;
};

/// The cores on which ranks compute.
struct Cores {
  int of_rank = 1;     ///< that each rank uses
  int of_machine = 0;  ///< that the ranks of all nodes share, as nodes of scripts/nodes do; 0 if each has its own
};

/// Times of a step in milliseconds.
struct Prediction {
  double computation = 0;
  double wire = 0;     ///< how long the gradients travel
  double exposed = 0;  ///< the part of `wire` that no computation overlaps
  double latency = 0;

  double step() const { return computation + exposed + latency; }

  /// The longest, overlapped or not: "computation", "wire" or "latency".
  std::string_view limit() const;
};

/// The nodes up to which predictions were compared with measurements.
inline constexpr int most_verified_nodes = 4;

Prediction predict_step(int nodes, const StepWork& work, const Links& links, const Cores& cores);

/// How many times a step of `nodes` ranks computes as long as one that has its cores for itself.
double slowdown_of(int nodes, const Cores& cores);

/// The rounds of an agreement, which follow one another: ceil(log2(nodes)).
int rounds_of_agreement(int nodes);

/// The same for the last sum of a step, whose few bytes go to all: gathered by one, and spread by a tree.
int rounds_of_last_sum(int nodes);

/// What a node sends per time in a sum between so many of them, in MB/s.
double slowest_rate(int nodes, const Links& links);

/// Links between `nodes` nodes where a sum of `bytes` takes `time`, and a message `delay`, both in milliseconds. The
/// rate is that beside the latency.
Links links_of_sum(int nodes, std::int64_t bytes, double time, double delay);

/// Whether such a sum is so much longer than its latency that it tells the rate.
bool tells_rate(double time, double delay);

/// How much TCP carries on a wire of so many bits per second, in MB/s: full frames of Ethernet.
double payload_rate(double bits_per_second);

/// What a node's rate is in a sum between `nodes`, of the rate of its wire: a part that was measured.
double share_of_wire(int nodes);

/// "100mbit", "1gbit,500kbit": wires; "8.6MB/s": measured. ConfigError, naming the option, for anything else.
Links parse_links(const std::string& option, const std::string& text);

/// "1ms", "250us", "0.1s": in milliseconds. ConfigError, naming the option.
double parse_delay(const std::string& option, const std::string& text);

/// "2,3,4": numbers of nodes. ConfigError, naming the option.
std::vector<int> parse_nodes(const std::string& option, const std::string& text);

/// The same for numbers of something else, such as "ranks", up to `most`.
std::vector<int> parse_counts(const std::string& option, const std::string& text, std::string_view of, int most);

/// "8,64K,1M": numbers of bytes, up to `limit`. ConfigError, naming the option.
std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text, std::int64_t limit);

}  // namespace lockstep::bench
