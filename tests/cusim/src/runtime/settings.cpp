// What the environment sets, random draws, and the end of a program that did what is forbidden.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "core.hpp"

namespace cusim {
namespace {

const char* value_of(const char* name) {
  const char* const text = std::getenv(name);
  return text && *text ? text : nullptr;
}

/// The variable's number, else `otherwise`. Ends the process at a text that is none; only a `double` may have a
/// fraction.
template <class Number>
Number number_of(const char* name, Number otherwise) {
  const char* const text = value_of(name);
  if (!text) return otherwise;
  char* end = nullptr;
  Number number{};
  if constexpr (std::is_floating_point_v<Number>)
    number = std::strtod(text, &end);
  else
    number = static_cast<Number>(std::strtoll(text, &end, 10));
  if (*end) found(fmt::format("{}={} is no number", name, text));
  return number;
}

/// What the variable's word means, else `otherwise`. Ends the process at another word.
template <class Value>
Value word_of(const char* name, Value otherwise, std::initializer_list<std::pair<std::string_view, Value>> words) {
  const char* const text = value_of(name);
  if (!text) return otherwise;
  std::string known;
  for (const auto& [word, value] : words) {
    if (word == text) return value;
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", word);
  }
  found(fmt::format("{}={}: known: {}", name, text, known));
}

Settings read_settings() {
  Settings read;
  read.seed = number_of("CUSIM_SEED", read.seed);
  read.order =
      word_of("CUSIM_ORDER", read.order, {{"late", Order::late}, {"eager", Order::eager}, {"thread", Order::thread}});
  read.memory_bytes = number_of("CUSIM_MEMORY", read.memory_bytes);
  read.devices = number_of("CUSIM_DEVICES", read.devices);
  read.patience_ms = number_of("CUSIM_PATIENCE_MS", read.patience_ms);
  read.check_kernels = word_of("CUSIM_CHECKS", read.check_kernels, {{"none", false}});
  read.guard_memory = word_of("CUSIM_GUARD", read.guard_memory, {{"off", false}});
  read.most_blocks = number_of("CUSIM_MOST_BLOCKS", read.most_blocks);
  read.sums_by_rank = word_of("CUSIM_NCCL_ORDER", read.sums_by_rank, {{"ring", true}});
  read.hang =
      word_of("CUSIM_NCCL_HANG", read.hang, {{"call", Hang::call}, {"start", Hang::start}, {"middle", Hang::middle}});
  read.nccl_patience_s = number_of("CUSIM_NCCL_PATIENCE_S", read.nccl_patience_s);
  read.share_gpus = word_of("CUSIM_SHARED_GPU", read.share_gpus, {{"allow", true}});
  if (const char* const faults = value_of("CUSIM_FAULTS")) read.faults = faults;
  if (const char* const file = value_of("CUSIM_COUNTS")) read.counts_file = file;
  return read;
}

/// The stream of draws of one purpose.
struct Draws {
  std::mutex mutex;
  std::map<std::string, std::uint64_t, std::less<>> states;
};

}  // namespace

const Settings& settings() {
  static const Settings* const read = new Settings{read_settings()};
  return *read;
}

int rank() {
  static const int own = [] {
    for (const char* const name : {"CUSIM_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"})
      if (value_of(name)) return number_of(name, 0);
    return 0;
  }();
  return own;
}

std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::uint64_t mix(std::uint64_t first, std::uint64_t second) {
  return mix(first * 0x9e3779b97f4a7c15u + second + 0xc4f46be25a6a6404u);
}

std::uint64_t draw(std::string_view purpose, std::uint64_t bound) {
  static Draws* const draws = new Draws;
  const std::lock_guard lock{draws->mutex};
  auto at = draws->states.find(purpose);
  if (at == draws->states.end()) {
    std::uint64_t begin = mix(settings().seed) ^ mix(static_cast<std::uint64_t>(rank()) + 7);
    for (const char letter : purpose) begin = mix(begin ^ static_cast<unsigned char>(letter));
    at = draws->states.emplace(purpose, begin).first;
  }
  return mix(++at->second) % bound;
}

void found(const std::string& what) {
  const std::string line = fmt::format("cusim: rank {}: {}\n", rank(), what);
  // One write, so that lines of several processes stay whole.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::abort();
  _exit(86);
}

void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours{1});
}

}  // namespace cusim
