#include "runtime/faults.hpp"

#include <charconv>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include <fmt/format.h>

namespace cusim {
namespace {

struct Asked {
  std::string call;
  int rank = -1;  ///< -1: each
  int nth = 1;
  Fault fault;
};

int number_in(const std::string& entry, std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size())
    found(fmt::format("CUSIM_FAULTS: '{}' is no number, in '{}'", text, entry));
  return number;
}

FaultKind kind_in(const std::string& entry, std::string_view text) {
  if (text == "error") return FaultKind::error;
  if (text == "late") return FaultKind::late;
  if (text == "hang") return FaultKind::hang;
  if (text == "memory") return FaultKind::memory;
  found(fmt::format("CUSIM_FAULTS: error, late, hang and memory are known, not '{}', in '{}'", text, entry));
}

Asked parse(const std::string& entry) {
  Asked asked;
  std::istringstream words{entry};
  for (std::string word; words >> word;) {
    const std::size_t sign = word.find('=');
    const std::string name = word.substr(0, sign);
    const std::string value = sign == std::string::npos ? "" : word.substr(sign + 1);
    if (name == "call" && !value.empty()) {
      asked.call = value;
    } else if (name == "rank") {
      asked.rank = number_in(entry, value);
    } else if (name == "nth") {
      asked.nth = number_in(entry, value);
    } else if (name == "kind") {
      asked.fault.kind = kind_in(entry, value);
    } else if (name == "code") {
      asked.fault.code = number_in(entry, value);
    } else {
      found(fmt::format("CUSIM_FAULTS: '{}' is not understood, in '{}'", word, entry));
    }
  }
  if (asked.call.empty()) found(fmt::format("CUSIM_FAULTS: no call= in '{}'", entry));
  if (asked.fault.kind == FaultKind::none) found(fmt::format("CUSIM_FAULTS: no kind= in '{}'", entry));
  return asked;
}

std::vector<Asked> parse_all() {
  std::vector<Asked> all;
  std::istringstream entries{settings().faults};
  for (std::string entry; std::getline(entries, entry, ';');)
    if (entry.find_first_not_of(' ') != std::string::npos) all.push_back(parse(entry));
  std::erase_if(all, [](const Asked& asked) { return asked.rank >= 0 && asked.rank != rank(); });
  return all;
}

struct Faults {
  std::mutex mutex;
  std::vector<Asked> asked = parse_all();
  std::map<std::string, int, std::less<>> calls;
};

thread_local int last_code = 0;

}  // namespace

Fault next_fault(std::string_view call) {
  static Faults* const faults = new Faults;
  last_code = 0;
  if (faults->asked.empty()) return {};
  const std::lock_guard lock{faults->mutex};
  auto at = faults->calls.find(call);
  if (at == faults->calls.end()) at = faults->calls.emplace(call, 0).first;
  const int nth = ++at->second;
  for (const Asked& asked : faults->asked) {
    if (asked.call != call || asked.nth != nth) continue;
    last_code = asked.fault.code;
    return asked.fault;
  }
  return {};
}

FaultKind fault_at(std::string_view call) {
  return next_fault(call).kind;
}

int fault_code() {
  return last_code;
}

}  // namespace cusim
