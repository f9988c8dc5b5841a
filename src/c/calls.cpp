// What the ranks of a group do together. A rank that calls with an invalid argument tells the others.
#include "c/calls.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/lockstep.h>
#include <lockstep/sync/reduce/exact_sum.hpp>

#include "c/live_groups.hpp"

// The functions themselves, which take a place.
#undef lockstep_all_reduce
#undef lockstep_exact_sum
#undef lockstep_broadcast
#undef lockstep_agree
#undef lockstep_same_on_all
#undef lockstep_check_replicas
#undef lockstep_fail

namespace lockstep::in_c {
namespace {

/// Calls `prepare`, which this rank does by itself, and then `act` with the group and the place, unless that fails: the
/// others get a PeerError then.
template <class Prepare, class Act>
int in_group(const char* call, const lockstep_group* handle, const char* at, Prepare&& prepare, Act&& act) {
  return code_of([&] {
    const Place place{at};
    lockstep_group& live = in_call(call, place.here(), [&]() -> lockstep_group& { return live_group(handle); });
    Group group = place.on(live.ranks);
    prepare_in(group, call, place.here(), prepare);
    act(group, place.here());
  });
}

/// Calls `act` with a value of the C++ type.
template <class Act>
auto with_type(int type, Act&& act) {
  switch (type) {
    case LOCKSTEP_F32: return act(float{});
    case LOCKSTEP_F64: return act(double{});
    case LOCKSTEP_I32: return act(std::int32_t{});
    case LOCKSTEP_I64: return act(std::int64_t{});
    case LOCKSTEP_U8: return act(std::uint8_t{});
    default: break;
  }
  throw InvalidArgument{fmt::format("type {} is none; expected LOCKSTEP_F32 or another lockstep_type", type)};
}

std::int64_t bytes_of(int type) {
  return with_type(type, [](auto value) { return static_cast<std::int64_t>(sizeof value); });
}

void require_elements(const void* values, std::int64_t count, int type, std::string_view name) {
  const std::int64_t size = bytes_of(type);
  require(count >= 0, "count {} is negative; expected 0 or more", count);
  require(count <= std::numeric_limits<std::ptrdiff_t>::max() / size,
          "count {} is more than memory can hold; expected a number of elements", count);
  require_memory(values, count, size, name);
}

void require_bytes(const char* name, const void* value, std::size_t bytes) {
  require(name, "the name is NULL; expected a text");
  require(value || bytes == 0, "the value is NULL; expected {} bytes", bytes);
}

std::span<const std::byte> bytes_at(const void* value, std::size_t bytes) {
  return {static_cast<const std::byte*>(value), bytes};
}

bool overlap(const void* a, const void* b, std::int64_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
  return (first < second ? second - first : first - second) < static_cast<std::uintptr_t>(bytes);
}

TensorView view_of(void* values, std::int64_t count, int type) {
  const DType dtype = with_type(type, []<class T>(T) { return detail::dtype_of<T>; });
  return {static_cast<std::byte*>(values), {count}, dtype};
}

/// The exact sum of all ranks' numbers.
template <class T>
T sum_of_all(Group& group, std::span<const T> numbers, const Here& here) {
  if constexpr (std::is_floating_point_v<T>) {
    ExactSum<T> sum;
    sum.add(numbers);
    group.all_reduce(sum, here);
    return sum.value();
  } else {
    std::uint64_t sum = 0;  // modulo 2^64, and so modulo any less
    for (const T number : numbers) sum += static_cast<std::uint64_t>(number);
    T own = static_cast<T>(sum);
    group.all_reduce(std::span{&own, 1}, here);
    return own;
  }
}

}  // namespace
}  // namespace lockstep::in_c

using namespace lockstep;
using namespace lockstep::in_c;

int lockstep_all_reduce(lockstep_group* group, const void* send, void* receive, int64_t count, int type, int op,
                        const char* at) {
  const bool in_place = send == LOCKSTEP_IN_PLACE || send == receive;
  return in_group(
      "lockstep_all_reduce", group, at,
      [&] {
        require_elements(receive, count, type, "receive");
        if (!in_place) require_elements(send, count, type, "send");
        require(op == LOCKSTEP_SUM || op == LOCKSTEP_EXACT_SUM,
                "operation {} is none; expected LOCKSTEP_SUM or LOCKSTEP_EXACT_SUM", op);
        require(in_place || count == 0 || !overlap(send, receive, count * bytes_of(type)),
                "send and receive overlap; expected LOCKSTEP_IN_PLACE, or memory apart");
      },
      [&](Group& ranks, const Here& here) {
        const std::size_t bytes = static_cast<std::size_t>(count * bytes_of(type));
        if (!in_place && bytes > 0) std::memcpy(receive, send, bytes);
        const bool exact = op == LOCKSTEP_EXACT_SUM && (type == LOCKSTEP_F32 || type == LOCKSTEP_F64);
        ranks.all_reduce(exact ? ReduceOp::exact_sum : ReduceOp::sum, view_of(receive, count, type), here);
      });
}

int lockstep_exact_sum(lockstep_group* group, const void* values, int64_t count, int type, void* result,
                       const char* at) {
  return in_group(
      "lockstep_exact_sum", group, at,
      [&] {
        require_elements(values, count, type, "values");
        require_elements(result, 1, type, "result");
      },
      [&](Group& ranks, const Here& here) {
        with_type(type, [&]<class T>(T) {
          const std::span numbers{static_cast<const T*>(values), static_cast<std::size_t>(count)};
          *static_cast<T*>(result) = sum_of_all(ranks, numbers, here);
        });
      });
}

int lockstep_broadcast(lockstep_group* group, void* values, int64_t count, int type, int root, const char* at) {
  return in_group(
      "lockstep_broadcast", group, at,
      [&] {
        require_elements(values, count, type, "values");
        const int size = live_group(group).ranks.size();
        require(root >= 0 && root < size, "root {} is no rank of the group; expected one of 0 to {}", root, size - 1);
      },
      [&](Group& ranks, const Here& here) { ranks.broadcast(view_of(values, count, type), root, here); });
}

int lockstep_agree(lockstep_group* group, const char* label, const char* at) {
  return in_group(
      "lockstep_agree", group, at, [&] { require(label, "the label is NULL; expected a text"); },
      [&](Group& ranks, const Here& here) { ranks.agree(label, here); });
}

int lockstep_same_on_all(lockstep_group* group, const char* name, const void* value, size_t bytes, const char* at) {
  return in_group(
      "lockstep_same_on_all", group, at, [&] { require_bytes(name, value, bytes); },
      [&](Group& ranks, const Here& here) { ranks.same_on_all(name, bytes_at(value, bytes), here); });
}

int lockstep_check_replicas(lockstep_group* group, const char* name, const void* replica, size_t bytes, int* differing,
                            const char* at) {
  if (differing) *differing = -1;
  return in_group(
      "lockstep_check_replicas", group, at, [&] { require_bytes(name, replica, bytes); },
      [&](Group& ranks, const Here& here) {
        try {
          ranks.attest(name, bytes_at(replica, bytes), here);
        } catch (const DriftError& error) {
          if (differing && !error.drift().blamed.empty()) *differing = error.drift().blamed.front();
          throw;
        }
      });
}

int lockstep_fail(lockstep_group* group, const char* reason, const char* at) {
  return in_group(
      "lockstep_fail", group, at, [&] { throw Error{reason ? reason : "it did not say why"}; },
      [](Group&, const Here&) {});
}
