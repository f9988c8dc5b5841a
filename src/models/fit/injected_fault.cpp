#include "models/fit/injected_fault.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/element_count.hpp"
#include "core/base/excerpt.hpp"
#include "core/control/fault_variable.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

constexpr std::array<std::pair<std::string_view, InjectedFault::Kind>, 11> kinds{
    {{"throw", InjectedFault::Kind::throws},
     {"exit", InjectedFault::Kind::exits},
     {"kill", InjectedFault::Kind::kills},
     {"stop", InjectedFault::Kind::stops},
     {"hang", InjectedFault::Kind::hangs},
     {"skip-merge", InjectedFault::Kind::skips_merge},
     {"flip", InjectedFault::Kind::flips},
     {"usr1", InjectedFault::Kind::asks_to_stop},
     {"slow", InjectedFault::Kind::slows},
     {"miscompute", InjectedFault::Kind::miscomputes},
     {"misread", InjectedFault::Kind::misreads}}};

/// Of those that strike in a step.
std::string names_of_kinds() {
  std::vector<std::string_view> names;
  for (const auto& [name, kind] : kinds)
    if (kind != InjectedFault::Kind::slows) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string names_of_parts() {
  std::vector<std::string_view> names;
  for (std::size_t part = 0; part < BusyClock::parts; ++part)
    names.push_back(name_of(static_cast<BusyClock::Part>(part)));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// All of `text` as a number; empty if it is none, or negative.
template <class Integer>
std::optional<Integer> number(std::string_view text) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

constexpr double largest_factor = 1000;

/// All of `text` as a factor; empty if it is none.
std::optional<double> factor_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Written so that NaN fails.
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 1 && value <= largest_factor))
    return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (auto colon = text.find(':'); colon != text.npos; colon = text.find(':')) {
    parts.push_back(text.substr(0, colon));
    text.remove_prefix(colon + 1);
  }
  parts.push_back(text);
  return parts;
}

enum class Victims : std::uint8_t { normal, any };

/// Flips the highest mantissa bit of the first victim from `first` on, wrapping around. Returns its index; empty if
/// there is none.
template <class T>
std::optional<std::size_t> flip_from(std::size_t first, std::span<T> weights, Victims victims) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(std::uint64_t), std::uint64_t, std::uint32_t>;
  constexpr Bits highest = Bits{1} << (std::numeric_limits<T>::digits - 2);  // the bit above it is implicit
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::size_t index = (first + i) % weights.size();
    if (victims == Victims::normal && !std::isnormal(weights[index])) continue;
    weights[index] = std::bit_cast<T>(std::bit_cast<Bits>(weights[index]) ^ highest);
    return index;
  }
  return std::nullopt;
}

/// Of f32 or f64, on any device.
std::optional<std::size_t> flip_from(std::size_t first, const TensorView& values, Stream& stream, Victims victims) {
  const Tensor host = Tensor::on_host(values);
  const auto index = values.dtype() == DType::f64 ? flip_from(first, host.view().elements<double>(), victims)
                                                  : flip_from(first, host.view().elements<float>(), victims);
  if (index) copy(host.view(), values, stream);
  return index;
}

RandomStream draws_of(std::int64_t step) {
  return {0, RandomStream::Purpose::fault, static_cast<std::uint64_t>(step)};
}

void flip(std::int64_t step, std::span<const Variable> weights) {
  const RandomStream draw = draws_of(step);
  const std::size_t first = weights.empty() ? 0 : draw.below(weights.size(), 0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Variable& variable = weights[(first + i) % weights.size()];
    const auto count = static_cast<std::uint64_t>(element_count(variable.shape()));
    Stream& stream = *inside(variable).state().segment->stream;
    if (const auto index = flip_from(count == 0 ? 0 : draw.below(count, 1), variable.local(), stream, Victims::normal))
      return log::warning(
          fmt::format("LOCKSTEP_FAULT: a bit of element {} of variable {} is another one from step {} on", *index,
                      variable.label(), step + 1));
  }
  throw Error{fmt::format("LOCKSTEP_FAULT: in step {} all weights are 0; expected one to flip a bit of", step + 1)};
}

}  // namespace

std::string_view name_of(InjectedFault::Kind kind) {
  for (const auto& [name, each] : kinds)
    if (each == kind) return name;
  return "?";
}

namespace {

/// The text is known to begin with the name of the kind.
InjectedFault parse_slow(std::string_view text, int ranks) {
  const auto malformed = [&](std::string_view what) {
    return ConfigError{
        fmt::format("LOCKSTEP_FAULT '{}': {}; expected slow:RANK:FACTOR or slow:RANK:FACTOR:PART with RANK below {}, "
                    "FACTOR from 1 to {:g} and PART one of {}",
                    excerpt(text), what, ranks, largest_factor, names_of_parts())};
  };
  const std::vector<std::string_view> parts = split(text);
  if (parts.size() != 3 && parts.size() != 4) throw malformed("it has neither three nor four parts");
  const auto rank = number<int>(parts[1]);
  const auto factor = factor_of(parts[2]);
  if (!rank || *rank >= ranks) throw malformed("there is no such rank");
  if (!factor) throw malformed("there is no such factor");
  const bool names_part = parts.size() == 4;
  const std::optional<BusyClock::Part> part = names_part ? part_named(parts[3]) : std::nullopt;
  if (names_part && !part) throw malformed("there is no such part of a step");
  return {InjectedFault::Kind::slows, *rank, 0, *factor, part};
}

}  // namespace

InjectedFault InjectedFault::parse(std::string_view text, int ranks) {
  const auto malformed = [&](std::string_view what) {
    return ConfigError{
        fmt::format("LOCKSTEP_FAULT '{}': {}; expected KIND:RANK:STEP with KIND one of {}, RANK below {} and STEP from "
                    "0, or slow:RANK:FACTOR, or miscompute:RANK:STEP:always",
                    excerpt(text), what, names_of_kinds(), ranks)};
  };
  if (text.substr(0, text.find(':')) == name_of(Kind::slows)) return parse_slow(text, ranks);
  const std::vector<std::string_view> parts = split(text);
  const bool says_how_often = parts.size() == 4 && parts[0] == name_of(Kind::miscomputes);
  if (parts.size() != 3 && !says_how_often) throw malformed("it has not three parts");
  if (says_how_often && parts[3] != "once" && parts[3] != "always")
    throw malformed("it strikes neither 'once' nor 'always'");
  const auto rank = number<int>(parts[1]);
  const auto step = number<std::int64_t>(parts[2]);
  if (!rank || *rank >= ranks) throw malformed("there is no such rank");
  if (!step) throw malformed("there is no such step");
  for (const auto& [name, kind] : kinds)
    if (name == parts[0])
      return {.kind = kind, .rank = *rank, .step = *step, .always = says_how_often && parts[3] == "always"};
  throw malformed("there is no such kind");
}

std::optional<InjectedFault> InjectedFault::from_environment(int ranks) {
  const char* const text = read_fault_variable();
  if (!text) return std::nullopt;
  return parse(text, ranks);
}

bool InjectedFault::skips_merge(int at_rank, std::int64_t at_step) const {
  return kind == Kind::skips_merge && at_rank == rank && at_step == step;
}

bool InjectedFault::miscomputes(int at_rank, std::int64_t at_step, std::int64_t shard, std::int64_t shards) const {
  if (kind != Kind::miscomputes || at_rank != rank) return false;
  if (always) return at_step >= step;
  return at_step == step &&
         draws_of(step).below(static_cast<std::uint64_t>(shards), 2) == static_cast<std::uint64_t>(shard);
}

bool InjectedFault::miscomputes_still(int at_rank, std::int64_t at_step) const {
  return kind == Kind::miscomputes && at_rank == rank && always && at_step >= step;
}

bool InjectedFault::misreads(int at_rank, std::int64_t at_step) const {
  return kind == Kind::misreads && at_rank == rank && at_step == step;
}

void InjectedFault::miscompute(const TensorView& gradient, std::size_t variable, std::size_t variables,
                               Stream& stream) const {
  if (variable == draws_of(step).below(variables, 0)) flip_in(gradient, stream);
}

void InjectedFault::misread(const SampleBatch& samples, Stream& stream) const {
  const TensorView rows = samples.inputs.view();
  const std::int64_t of_row = rows.count() / std::max<std::int64_t>(rows.shape().front(), 1);
  flip_in(rows.reshaped({rows.count()}).slice(0, samples.samples * of_row), stream);
}

void InjectedFault::flip_in(const TensorView& values, Stream& stream) const {
  if (values.count() == 0) return;
  const std::size_t first = draws_of(step).below(static_cast<std::uint64_t>(values.count()), 1);
  if (values.dtype() == DType::f32 || values.dtype() == DType::f64) {
    // A gradient may be zero everywhere.
    if (!flip_from(first, values, stream, Victims::normal)) (void)flip_from(first, values, stream, Victims::any);
    return;
  }
  const Tensor host = Tensor::on_host(values);
  host.view().elements<std::int32_t>()[first] ^= 1;
  copy(host.view(), values, stream);
}

void InjectedFault::slow_down(BusyClock& clock, int at_rank) const {
  if (kind != Kind::slows || at_rank != rank) return;
  clock.slow_down(part ? std::vector{*part} : std::vector{BusyClock::Part::forward, BusyClock::Part::backward}, factor);
}

std::string InjectedFault::announcement() const {
  if (kind != Kind::slows)
    return fmt::format("replica {} will fail ({}) in step {}{}", rank, name_of(kind), step + 1,
                       always ? " and after it" : "");
  return fmt::format("replica {} takes {:g} times as long for {}", rank, factor,
                     part ? name_of(*part) : "forward and backward");
}

void InjectedFault::strike(int at_rank, std::int64_t at_step, std::span<const Variable> weights) const {
  if (at_rank != rank || at_step != step) return;
  switch (kind) {
    case Kind::throws: throw std::runtime_error{fmt::format("LOCKSTEP_FAULT: thrown in step {}", step + 1)};
    case Kind::exits: ::_exit(0);
    case Kind::kills: ::raise(SIGKILL); break;
    case Kind::stops: ::kill(::getpid(), SIGSTOP); break;
    case Kind::hangs:
      while (true) ::pause();
    case Kind::skips_merge:
    case Kind::slows:
    case Kind::miscomputes:
    case Kind::misreads: break;
    case Kind::flips: flip(step, weights); break;
    case Kind::asks_to_stop: ::raise(SIGUSR1); break;
  }
}

}  // namespace lockstep
