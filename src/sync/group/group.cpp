#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/sync/group/group.hpp>

#include "core/base/digest.hpp"
#include "core/control/drift.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/operand_text.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {
namespace {

/// Agreements carry the number of the strategy that asks. Here none does: place and text tell them from strategy 0's.
constexpr int no_strategy = 0;

void make_agreement(ReplicaGroup& group, TagKind kind, const detail::GroupCall& call, Comparison comparison = {}) {
  comparison.site = call.site;
  group.meeting().agree(kind, no_strategy, call.here, call.text, comparison);
}

template <class T>
T read_as(std::span<const std::byte> bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// A value whose type is not known, for people, and with all that distinguishes it: "'adam'", "0.001 or the integer
/// 4562254508917369340", "64 bytes, digest …".
std::string shown_value(std::span<const std::byte> value) {
  constexpr std::size_t longest = 60;
  const auto is_printable = [](std::byte each) { return std::isprint(std::to_integer<unsigned char>(each)) != 0; };
  if (!value.empty() && value.size() <= longest && std::ranges::all_of(value, is_printable))
    return fmt::format("'{}'", std::string_view{reinterpret_cast<const char*>(value.data()), value.size()});
  if (value.size() == sizeof(double))
    return fmt::format("{} or the integer {}", read_as<double>(value), read_as<std::int64_t>(value));
  if (value.size() == sizeof(float))
    return fmt::format("{} or the integer {}", read_as<float>(value), read_as<std::int32_t>(value));
  return fmt::format("{} bytes, digest {}", value.size(), to_hex(digest_of(value)));
}

}  // namespace

int Group::rank() const {
  return group_->rank();
}
int Group::size() const {
  return group_->size();
}

Group Group::subset(std::span<const int> ranks, Here here) const {
  return Group{group_->subset(ranks, here, compares_places_ ? Tag::Site::compared : Tag::Site::told)};
}

Group Group::anywhere() const {
  Group same = *this;
  same.compares_places_ = false;
  return same;
}

Group Group::anywhere(std::string call) const {
  Group same = anywhere();
  same.call_ = std::move(call);
  return same;
}

detail::GroupCall Group::call(std::string text, const Here& here) const {
  if (!call_.empty()) return {call_, here, Tag::Site::told};
  if (!compares_places_) text += ", at any place";
  return {std::move(text), here, compares_places_ ? Tag::Site::compared : Tag::Site::told};
}

void Group::all_reduce(const TensorView& values, Here here) {
  all_reduce(ReduceOp::sum, values, here);
}

void Group::all_reduce(ReduceOp op, const TensorView& values, Here here) {
  require_here(values, group_->stream());
  op == ReduceOp::exact_sum ? require_exact(values) : require_reducible(op, values.dtype());
  make_agreement(*group_, TagKind::reduce,
                 call(fmt::format("all_reduce: {} of {}", name_of(op), operand_text(values)), here));
  group_->reductions().all_reduce(op, std::span{&values, 1});
}

void Group::add_up_words(std::span<std::int64_t> words, DType of, const Here& here) {
  make_agreement(*group_, TagKind::reduce, call(fmt::format("all_reduce: exact sum of {}", name_of(of)), here));
  const TensorView values = view_of(words);
  group_->reductions().all_reduce(ReduceOp::sum, std::span{&values, 1});
}

void Group::broadcast(const TensorView& values, int root, Here here) {
  require_here(values, group_->stream());
  if (root < 0 || root >= size())
    throw InvalidArgument{fmt::format("broadcast from rank {}: expected one of 0 to {}", root, size() - 1)};
  make_agreement(*group_, TagKind::broadcast, call(fmt::format("{} from rank {}", operand_text(values), root), here));
  group_->reductions().broadcast(std::span{&values, 1}, root);
}

void Group::agree(std::string_view label, Here here) {
  make_agreement(*group_, TagKind::agree, call(fmt::format("'{}'", label), here));
}

void Group::same_on_all(std::string_view name, std::span<const std::byte> value, Here here) {
  make_agreement(*group_, TagKind::compare, call(fmt::format("'{}': {}", name, shown_value(value)), here));
}

void Group::attest(std::string_view name, std::span<const std::byte> replica, Here here) {
  const std::vector<detail::ComparedValue> what{{fmt::format("'{}'", name)}};
  const std::uint64_t digest = digest_of(replica);
  const auto diagnose = [&](ControlChannel& channel, std::span<const std::string> names) {
    std::vector<std::uint64_t> all(names.size());
    channel.all_gather(std::as_bytes(std::span{&digest, 1}), std::as_writable_bytes(std::span{all}));
    return detail::judge_drift(what, all, names);
  };
  make_agreement(*group_, TagKind::attest, call(fmt::format("'{}' of {} bytes", name, replica.size()), here),
                 {.digest = digest | 1, .diagnose = diagnose});
}

void Group::fail(std::exception_ptr failure, Here here) {
  group_->meeting().fail(std::move(failure), here);
}

void Group::name_phase(std::string_view name) {
  group_->meeting().name_phase(name);
}

Tensor Group::gather(Tensor values, const Here& here) {
  std::array tensors{std::move(values)};
  make_agreement(*group_, TagKind::reduce, call("all_gather: " + rows_text(tensors), here));
  group_->reductions().all_gather(tensors);
  return tensors.front();
}

}  // namespace lockstep
