// What the environment sets, random draws, and the end of a program that did what is forbidden.
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <unistd.h>

#include "core.hpp"

namespace cusim {
namespace {

const char* text_of(const char* name) {
  const char* const text = std::getenv(name);
  return text && *text ? text : nullptr;
}

/// Ends the process if the text is no whole number.
long long number_of(const char* name, long long otherwise) {
  const char* const text = text_of(name);
  if (!text) return otherwise;
  char* end = nullptr;
  const long long number = std::strtoll(text, &end, 10);
  if (*end) found(fmt::format("{}={} is no number", name, text));
  return number;
}

/// Whether the variable has the value `word`; ends the process at any other value.
bool is_word(const char* name, std::string_view word) {
  const char* const text = text_of(name);
  if (!text) return false;
  if (text != word) found(fmt::format("{}={}: only '{}' is known", name, text, word));
  return true;
}

Order order_of_environment() {
  const std::string_view text = text_of("CUSIM_ORDER") ? text_of("CUSIM_ORDER") : "late";
  if (text == "late") return Order::late;
  if (text == "eager") return Order::eager;
  if (text == "thread") return Order::thread;
  found(fmt::format("CUSIM_ORDER={}: late, eager and thread are known", text));
}

Settings read_settings() {
  Settings read;
  read.seed = static_cast<std::uint64_t>(number_of("CUSIM_SEED", 1));
  read.order = order_of_environment();
  read.memory_bytes = static_cast<std::uint64_t>(number_of("CUSIM_MEMORY", 4LL << 30));
  read.devices = static_cast<int>(number_of("CUSIM_DEVICES", 1));
  read.patience_ms = static_cast<int>(number_of("CUSIM_PATIENCE_MS", 50));
  read.check_kernels = !is_word("CUSIM_CHECKS", "none");
  read.guard_memory = !is_word("CUSIM_GUARD", "off");
  read.most_blocks = static_cast<unsigned>(number_of("CUSIM_MOST_BLOCKS", 0));
  if (const char* const faults = text_of("CUSIM_FAULTS")) read.faults = faults;
  if (const char* const file = text_of("CUSIM_COUNTS")) read.counts_file = file;
  return read;
}

/// One step of splitmix64.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
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
      if (text_of(name)) return static_cast<int>(number_of(name, 0));
    return 0;
  }();
  return own;
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

}  // namespace cusim
