// Tensors that share memory: a replicated module's parameters and buffers each get a place of their own.
#include <algorithm>
#include <string_view>

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "torch/replica.hpp"

namespace lockstep::libtorch {
namespace {

constexpr std::string_view parameter = "parameter", buffer = "buffer";

/// Where a tensor lies.
struct Place {
  std::string_view kind;  ///< "parameter"
  std::string name;       ///< "'w'"
  bool is_taken;          ///< by another module
  at::Tensor tensor;
  const std::byte* begin;
  const std::byte* end;
};

void add_place(std::vector<Place>& places, std::string_view kind, std::string name, bool is_taken,
               const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto* const begin = static_cast<const std::byte*>(tensor.data_ptr());
  const std::byte* const end = begin + (last + 1) * static_cast<std::int64_t>(tensor.itemsize());
  places.push_back({kind, std::move(name), is_taken, tensor, begin, end});
}

/// Of two whose ranges overlap, whether elements do: they may be the even and the odd columns of one table.
bool share_elements(const Place& a, const Place& b) {
  const auto item = static_cast<std::int64_t>(a.tensor.itemsize());
  const std::byte* const begin = std::min(a.begin, b.begin);
  const auto offset_of = [&](const Place& place) { return std::int64_t{place.begin - begin}; };
  const bool is_dense = a.tensor.is_non_overlapping_and_dense() && b.tensor.is_non_overlapping_and_dense();
  if (is_dense || b.tensor.itemsize() != a.tensor.itemsize() || (offset_of(a) + offset_of(b)) % item != 0) return true;
  const at::Tensor marks = at::zeros({(std::max(a.end, b.end) - begin) / item}, at::kBool);
  const auto marks_of = [&](const Place& place) {
    std::vector<std::int64_t> sizes = place.tensor.sizes().vec();
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (place.tensor.stride(static_cast<std::int64_t>(i)) == 0) sizes[i] = 1;  // torch refuses to write twice
    return marks.as_strided(sizes, place.tensor.strides(), offset_of(place) / item);
  };
  marks_of(a).fill_(1);
  return *marks_of(b).any().data_ptr<bool>();
}

[[noreturn]] void refuse(const Place& a, const Place& b) {
  const auto in_memory_of = [](const Place& one, const Place& other) {
    return fmt::format("{} {} lies in the memory of {} {}", one.kind, one.name, other.kind, other.name);
  };
  if (a.is_taken || b.is_taken)
    throw InvalidArgument{fmt::format("{}: expected each in one DataParallel, or a clone()",
                                      a.is_taken ? in_memory_of(b, a) : in_memory_of(a, b))};
  if (a.kind != b.kind)
    throw InvalidArgument{
        fmt::format("{}, which it would no longer follow: expected a clone(), or a view that forward takes of the "
                    "parameter",
                    a.kind == parameter ? in_memory_of(b, a) : in_memory_of(a, b))};
  throw InvalidArgument{
      fmt::format("{}s {} and {} are two tensors in the same memory; expected one tensor under both names, {}", a.kind,
                  a.name, b.name, a.kind == parameter ? "as a tied parameter is" : "or a clone()")};
}

}  // namespace

void require_own_memory(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::vector<ReplicatedModule::Impl*>& others) {
  std::vector<Place> places;
  for (const auto& [name, value] : parameters) add_place(places, parameter, fmt::format("'{}'", name), false, value);
  for (const auto& [name, value] : buffers) add_place(places, buffer, fmt::format("'{}'", name), false, value);
  for (const ReplicatedModule::Impl* const other : others) {
    const auto add = [&](std::string_view kind, const auto& values) {
      for (const auto& each : values)
        add_place(places, kind, fmt::format("{} of {}", each.variable.label(), other->label), true, each.tensor);
    };
    add(parameter, other->parameters);
    add(buffer, other->buffers);
  }
  std::ranges::stable_sort(places, {}, &Place::begin);
  for (auto a = places.begin(); a != places.end(); ++a)
    for (auto b = a + 1; b != places.end() && b->begin < a->end; ++b)
      if (!(a->is_taken && b->is_taken) && share_elements(*a, *b)) refuse(*a, *b);
}

}  // namespace lockstep::libtorch
