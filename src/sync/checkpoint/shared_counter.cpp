#include "sync/checkpoint/shared_counter.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "sync/strategy/step_counter.hpp"

namespace lockstep {
namespace {

std::string shared_counter() {
  return detail::step_counter(detail::default_optimizer_name(0));
}

}  // namespace

void SharedCounter::take_missing(std::vector<NamedTensor>& wanted, const std::function<bool(std::string_view)>& has) {
  const auto find = [&](const std::string& name) { return std::ranges::find(wanted, name, &NamedTensor::name); };
  std::vector<NamedTensor> missing;
  for (int number = 1;; ++number) {
    const auto counter = find(detail::step_counter(detail::default_optimizer_name(number)));
    if (counter == wanted.end()) break;
    if (has(counter->name)) continue;
    missing.push_back(*counter);
  }
  const auto counter = find(shared_counter());
  if (missing.empty() || counter == wanted.end() || !has(shared_counter())) return;
  steps_ = counter->value;
  missing_ = std::move(missing);
  std::erase_if(wanted, [&](const NamedTensor& each) {
    return std::ranges::find(missing_, each.name, &NamedTensor::name) != missing_.end();
  });
}

void SharedCounter::restore(std::string_view checkpoint) const {
  if (missing_.empty()) return;
  std::vector<std::string_view> names;
  for (const NamedTensor& counter : missing_) {
    copy(steps_, counter.value);
    names.push_back(counter.name);
  }
  log::warning(
      fmt::format("checkpoint {}: has no {}; takes the {} steps of '{}', in which older releases counted the "
                  "steps of all optimizers",
                  checkpoint, listed(names), steps_.elements<std::int64_t>()[0], shared_counter()));
}

}  // namespace lockstep
