// What is known of each rank, and the same on all of them.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

/// Entry r is rank r's. Copies share the entries: a process keeps them once, however many of its parts ask for them,
/// and so do all simulated ranks.
template <class T>
class SharedTable {
 public:
  SharedTable() : SharedTable{std::vector<T>{}} {}
  SharedTable(std::initializer_list<T> entries) : SharedTable{std::vector<T>{entries}} {}
  SharedTable(std::vector<T> entries) : entries_{std::make_shared<const std::vector<T>>(std::move(entries))} {}

  const std::vector<T>& all() const { return *entries_; }
  const T& operator[](int rank) const { return (*entries_)[static_cast<std::size_t>(rank)]; }

  /// Those of some ranks, in their order.
  SharedTable of(const std::vector<int>& ranks) const {
    std::vector<T> some;
    for (const int rank : ranks) some.push_back((*this)[rank]);
    return some;
  }

 private:
  std::shared_ptr<const std::vector<T>> entries_;
};

}  // namespace lockstep
