// What is known of each rank, and the same on all of them.
#pragma once

#include <cstddef>
#include <functional>
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

/// Makes entry r each time somebody asks for it, and keeps none: a job may have thousands of ranks.
template <class T>
class TableOnDemand {
 public:
  TableOnDemand() = default;
  TableOnDemand(int ranks, std::function<T(int rank)> make)
      : ranks_{ranks}, make_{std::make_shared<const std::function<T(int)>>(std::move(make))} {}

  /// One whose entries are there, and are kept.
  TableOnDemand(std::vector<T> entries)
      : TableOnDemand{static_cast<int>(entries.size()),
                      [kept = SharedTable<T>{std::move(entries)}](int rank) { return kept[rank]; }} {}
  TableOnDemand(std::initializer_list<T> entries) : TableOnDemand{std::vector<T>{entries}} {}

  T operator[](int rank) const { return (*make_)(rank); }

  std::vector<T> all() const {
    std::vector<T> entries;
    for (int rank = 0; rank < ranks_; ++rank) entries.push_back((*this)[rank]);
    return entries;
  }

  /// Those of some ranks, in their order.
  TableOnDemand of(const std::vector<int>& ranks) const {
    return {static_cast<int>(ranks.size()),
            [make = make_, ranks](int rank) { return (*make)(ranks[static_cast<std::size_t>(rank)]); }};
  }

 private:
  int ranks_ = 0;
  std::shared_ptr<const std::function<T(int)>> make_;
};

}  // namespace lockstep
