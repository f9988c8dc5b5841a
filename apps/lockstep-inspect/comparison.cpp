#include "apps/lockstep-inspect/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/checkpoint/tensor_file.hpp"

namespace lockstep {
namespace {

/// The tensors of one side, by name.
class Side {
 public:
  explicit Side(const Contents& contents) {
    for (const std::filesystem::path& path : contents.tensors) {
      const OpenTensorFile& file = files_.emplace_back(path);
      for (const safetensors::Entry& entry : file.entries()) tensors_.emplace(entry.name, std::pair{&file, &entry});
    }
  }

  const auto& tensors() const { return tensors_; }
  /// Of a file of tensors alone.
  const WeightsMetadata& metadata() const { return files_.front().metadata(); }
  const safetensors::Entry* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second.second;
  }
  Tensor read(const std::string& name) const {
    const auto& [file, entry] = tensors_.at(name);
    return file->read(*entry);
  }

 private:
  std::deque<OpenTensorFile> files_;
  std::map<std::string, std::pair<const OpenTensorFile*, const safetensors::Entry*>> tensors_;
};

struct Difference {
  double largest = 0;        ///< a NaN if only one of two elements is a number
  std::size_t elements = 0;  ///< whose bytes differ
};

template <class T>
Difference difference_of(std::span<T> one, std::span<T> other) {
  Difference difference;
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (std::memcmp(&one[i], &other[i], sizeof(T)) == 0) continue;
    ++difference.elements;
    const auto a = static_cast<double>(one[i]), b = static_cast<double>(other[i]);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double distance = std::abs(a - b);
    // A NaN stays.
    if (!(distance <= difference.largest) && !std::isnan(difference.largest)) difference.largest = distance;
  }
  return difference;
}

Difference difference_of(const TensorView& one, const TensorView& other) {
  const auto by_element = [&]<class T>(T) { return difference_of<T>(one.elements<T>(), other.elements<T>()); };
  switch (one.dtype()) {
    case DType::f32: return by_element(float{});
    case DType::f64: return by_element(double{});
    case DType::f16: return by_element(Half{});
    case DType::bf16: return by_element(BFloat16{});
    case DType::i32: return by_element(std::int32_t{});
    case DType::i64: return by_element(std::int64_t{});
    case DType::u8: return by_element(std::uint8_t{});
  }
  return {};
}

/// The number of facts that differ, each printed in a line, in the order of the first.
int print_facts(std::string& text, const std::vector<Fact>& first, const std::vector<Fact>& second) {
  const auto value_in = [](const auto& facts, const std::string& name) {
    const auto found = std::ranges::find(facts, name, &Fact::first);
    return found == facts.end() ? std::string{"none"} : found->second;
  };
  auto all = first;
  for (const auto& fact : second)
    if (std::ranges::find(first, fact.first, &Fact::first) == first.end()) all.push_back(fact);
  int differing = 0;
  for (const auto& [name, unused] : all) {
    const std::string value = value_in(first, name), other = value_in(second, name);
    if (value == other) continue;
    ++differing;
    fmt::format_to(std::back_inserter(text), "  {}: {} | {}\n", excerpt(name), excerpt_from_difference(value, other),
                   excerpt_from_difference(other, value));
  }
  return differing;
}

std::string verdict_on(const Side& one, const Side& other, const std::string& name) {
  const safetensors::Entry* const first = one.find(name);
  const safetensors::Entry* const second = other.find(name);
  if (!second) return "only in the first";
  if (!first) return "only in the second";
  // Those of a foreign type are of bytes, and a long description of one is cut.
  if (first->dtype != second->dtype || first->shape != second->shape || describe(*first) != describe(*second))
    return fmt::format("{} | {}", describe(*first), describe(*second));
  const Tensor a = one.read(name), b = other.read(name);
  const Difference found = difference_of(a.view(), b.view());
  if (found.elements == 0) return "equal";
  if (!first->foreign.empty()) return fmt::format("{}: {} bytes differ", describe(*first), found.elements);
  return fmt::format("largest difference {:.6g}, in {} of {} elements", found.largest, found.elements, a.count());
}

Contents compared(const std::filesystem::path& path) {
  if (const auto inside = checkpoints_at(path); !inside.empty())
    throw ConfigError{fmt::format("{}: is a folder of checkpoints; expected one of them, such as {}", path.string(),
                                  inside.front().filename().string())};
  return contents_of(path);
}

/// What the names `one` and `other` lead to.
Report compare_found(const std::filesystem::path& one, Contents first, const std::filesystem::path& other,
                     Contents second) {
  Report report{fmt::format("{} | {}\n", one.string(), other.string())};
  int facts = 0, tensors = 0;
  const bool checkpoints = first.manifest && second.manifest;
  if (!checkpoints)
    for (Contents* const contents : {&first, &second})
      if (contents->manifest) contents->tensors = {contents->path / weights_file};

  const Side a{first}, b{second};
  if (checkpoints)
    facts = print_facts(report.text, facts_of(*first.manifest), facts_of(*second.manifest));
  else
    facts = print_facts(report.text, facts_of(a.metadata()), facts_of(b.metadata()));
  std::vector<std::string> names;
  for (const auto& [name, unused] : a.tensors()) names.push_back(name);
  for (const auto& [name, unused] : b.tensors())
    if (!a.find(name)) names.push_back(name);
  std::ranges::sort(names);
  std::size_t width = 0;
  for (const std::string& name : names) width = widened(width, excerpt(name));
  for (const std::string& name : names) {
    const std::string verdict = verdict_on(a, b, name);
    tensors += verdict == "equal" ? 0 : 1;
    fmt::format_to(std::back_inserter(report.text), "  {:{}}  {}\n", excerpt(name), width, verdict);
  }
  if (facts + tensors > 0)
    report.trouble = fmt::format("{} and {} differ: {} of the {}, {} of {} tensors", one.string(), other.string(),
                                 facts == 1 ? "1 entry" : fmt::format("{} entries", facts),
                                 checkpoints ? "manifest" : "metadata", tensors, names.size());
  return report;
}

}  // namespace

Report compare(const std::filesystem::path& one, const std::filesystem::path& other) {
  return read_checkpoint_at(one, [&](const std::filesystem::path& first) {
    return read_checkpoint_at(other, [&](const std::filesystem::path& second) {
      return compare_found(one, compared(first), other, compared(second));
    });
  });
}

}  // namespace lockstep
