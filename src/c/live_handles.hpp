// What a C program has made and not freed, by handle.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "c/calls.hpp"

namespace lockstep::in_c {

/// A handle is the address. Not for several threads at a time.
template <class T>
class LiveHandles {
 public:
  /// `kind` is the name of what it holds, and `lockstep_<kind>_<maker>` makes one.
  LiveHandles(std::string_view kind, std::string_view maker) : kind_{kind}, maker_{maker} {}

  /// InvalidArgument if it is none, or was freed.
  T& at(const T* handle) const {
    require(handle, "the {0} is NULL; expected one that lockstep_{0}_{1} has made", kind_, maker_);
    const auto found = all_.find(handle);
    require(found != all_.end(), "the {} is none, or was freed; expected one that lives", kind_);
    return *found->second;
  }

  T* add(std::unique_ptr<T> made) {
    T* const handle = made.get();
    all_.emplace(handle, std::move(made));
    return handle;
  }

  /// One that lives.
  std::unique_ptr<T> take(const T* handle) { return std::move(all_.extract(handle).mapped()); }

  bool empty() const { return all_.empty(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  std::string_view kind_, maker_;
  std::map<const T*, std::unique_ptr<T>> all_;
};

}  // namespace lockstep::in_c
