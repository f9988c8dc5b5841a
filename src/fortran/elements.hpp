// Arrays and sections of Fortran's, as a module hands them over: packed where they are not contiguous.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include <ISO_Fortran_binding.h>

#include <lockstep/lockstep.h>

namespace lockstep::in_fortran {

/// What a rank refuses, in words that begin with the name of an argument.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The elements of a section in the order of Fortran's arrays, one after the other.
class Elements {
 public:
  /// What a call does with them. Those that it only writes are not packed before, and are unspecified until then.
  enum class Use { read, written };

  /// Refused for an array that is not allocated, or has no last extent; `name` is what a sentence calls it.
  explicit Elements(const CFI_cdesc_t* section, Use use = Use::read, const std::string& name = "the array")
      : base_{static_cast<std::byte*>(section->base_addr)},
        element_bytes_{section->elem_len},
        rank_{section->rank},
        type_{section->type},
        run_bytes_{static_cast<std::ptrdiff_t>(section->elem_len)} {
    std::copy_n(section->dim, rank_, dims_);
    // The extents of an array that is not allocated may be anything. An empty constructor has no address either.
    if (!base_ && std::ranges::none_of(dims(), [](const CFI_dim_t& each) { return each.extent == 0; }))
      throw Refused{name + " is not allocated; expected one that is"};
    for (int dimension = 0; dimension < rank_; ++dimension) {
      const CFI_dim_t& each = dims_[dimension];
      if (each.extent < 0)
        throw Refused{name + " has no last extent; expected a section with one, as a(1:n), of an array a(*)"};
      if (run_rank_ == dimension && (each.extent == 1 || each.sm == run_bytes_)) {
        ++run_rank_;
        run_bytes_ *= each.extent;
      }
      count_ *= each.extent;
    }
    if (run_rank_ == rank_ || count_ == 0) return;
    packed_ = std::make_unique_for_overwrite<std::byte[]>(bytes());
    if (use == Use::read) copy(Way::pack);
  }

  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * element_bytes_; }
  void* data() const { return packed_ ? packed_.get() : base_; }
  std::span<const CFI_dim_t> dims() const { return {dims_, static_cast<std::size_t>(rank_)}; }

  /// Back into the section.
  void unpack() {
    if (packed_) copy(Way::unpack);
  }

  bool has_shape_of(const Elements& other) const {
    return type_ == other.type_ && std::ranges::equal(dims(), other.dims(), {}, &CFI_dim_t::extent, &CFI_dim_t::extent);
  }

  /// 0, which no function takes, for types without one.
  int type() const {
    switch (type_) {
      case CFI_type_float: return LOCKSTEP_F32;
      case CFI_type_double: return LOCKSTEP_F64;
      case CFI_type_int32_t: return LOCKSTEP_I32;
      case CFI_type_int64_t: return LOCKSTEP_I64;
      default: return 0;
    }
  }

 private:
  enum class Way { pack, unpack };

  /// Run by run: as many of the first dimensions as lie in memory as one.
  void copy(Way way) {
    const auto run = static_cast<std::size_t>(run_bytes_);
    CFI_index_t at[CFI_MAX_RANK] = {};
    for (std::byte* packed = packed_.get(); packed != packed_.get() + bytes(); packed += run) {
      std::byte* place = base_;
      for (int dimension = run_rank_; dimension < rank_; ++dimension) place += at[dimension] * dims_[dimension].sm;
      std::memcpy(way == Way::pack ? packed : place, way == Way::pack ? place : packed, run);
      for (int dimension = run_rank_; dimension < rank_; ++dimension) {
        if (++at[dimension] < dims_[dimension].extent) break;
        at[dimension] = 0;
      }
    }
  }

  std::byte* base_;
  std::size_t element_bytes_;
  int rank_;
  CFI_type_t type_;
  CFI_dim_t dims_[CFI_MAX_RANK] = {};
  std::int64_t count_ = 1;
  int run_rank_ = 0;  ///< of the first dimensions that are contiguous
  std::ptrdiff_t run_bytes_;
  std::unique_ptr<std::byte[]> packed_;
};

/// Calls `body`, which returns a code. What it refuses, and that there is no memory to pack, goes to `refuse`.
template <class Refuse, class Body>
int packed(const char* call, const char* at, const Refuse& refuse, const Body& body) noexcept {
  try {
    try {
      return body();
    } catch (const Refused& refused) {
      return refuse((call + (at ? std::string{" ("} + at + ")" : std::string{}) + ": " + refused.what()).c_str());
    }
  } catch (const std::exception&) {
    return refuse("no memory is left to pack a section");
  }
}

/// The same for a COLL call: the others get what a rank refuses.
template <class Body>
int packed(lockstep_group* group, const char* call, const char* at, const Body& body) noexcept {
  return packed(
      call, at, [&](const char* why) { return (lockstep_fail)(group, why, at); }, body);
}

}  // namespace lockstep::in_fortran
