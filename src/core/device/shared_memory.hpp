// Memory that the processes of a node share, handed over by a descriptor or a name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/base/descriptor.hpp"

namespace lockstep {

/// Memory that other processes of the node can map. It has no name while the job runs, so nothing is left behind
/// however the job ends.
class SharedMemory {
 public:
  /// How another process finds it.
  struct Handle {
    enum class Way : std::int32_t {
      none,
      descriptor,  ///< a descriptor of the creator, valid while the creator keeps it
      name,        ///< a POSIX shared memory object, valid until the creator unlinks it
    };
    Way way = Way::none;
    std::int32_t process = 0;
    std::int32_t descriptor = -1;
    char name[32] = {};
    std::uint64_t proof = 0;  ///< found in the memory when it is handed over: proves that this is the right memory
  };

  /// Zeroed except for the proof, which `take_over` removes. CommError if the system refuses.
  static SharedMemory create(std::size_t bytes);

  /// The same for processes that may not access each other: found by a name, which `take_over` removes. If it comes to
  /// that in no way, the destructor does, and the next `remove_abandoned` after a kill.
  static SharedMemory create_named(std::size_t bytes);

  /// Removes the names that processes of this user left behind which were killed between making and handing over. Those
  /// of living processes stay, on this host's other containers too. Every `create_named` begins with it.
  static void remove_abandoned();

  /// CommError if the system refuses, or if the memory is not the one that `handle` names.
  static SharedMemory open(const Handle& handle, std::size_t bytes);

  const Handle& handle() const { return handle_; }
  void* data() const { return data_.get(); }
  std::size_t bytes() const { return data_.get_deleter().bytes; }

  /// Takes pages from the system for a part of the memory, on the NUMA node of this thread. Touching it cannot fail
  /// from then on; elsewhere, a touch is SIGBUS if the system has nothing left. CommError if it has not.
  void reserve(std::size_t first, std::size_t bytes) const;

  /// Called by the creator once everyone has opened the memory: removes name and proof.
  void take_over();

 private:
  /// A name in shared memory, removed with the object.
  class Name {
   public:
    Name() = default;
    explicit Name(std::string text) : text_{std::move(text)} {}
    Name(Name&& other) noexcept : text_{std::exchange(other.text_, {})} {}
    Name& operator=(Name&& other) noexcept;
    ~Name() { remove(); }
    void remove();

   private:
    std::string text_;
  };
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(void* data) const;
  };

  SharedMemory(Name name, Descriptor descriptor, std::size_t bytes);
  void set_proof();

  Name name_;  ///< while others may look for it
  Descriptor descriptor_;
  std::unique_ptr<void, Unmap> data_;
  Handle handle_;
};

}  // namespace lockstep
