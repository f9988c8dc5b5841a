// Memory that the processes of a node share, handed over by a descriptor or a name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/descriptor.hpp"

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

  /// The same for processes that may not access each other: found by a name, which `take_over` unlinks.
  static SharedMemory create_named(std::size_t bytes);

  /// CommError if the system refuses, or if the memory is not the one that `handle` names.
  static SharedMemory open(const Handle& handle, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  const Handle& handle() const { return handle_; }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// Takes pages from the system for a part of the memory, on the NUMA node of this thread. Touching it cannot fail
  /// from then on; elsewhere, a touch is SIGBUS if the system has nothing left. CommError if it has not.
  void reserve(std::size_t first, std::size_t bytes) const;

  /// Called by the creator once everyone has opened the memory: removes name and proof.
  void take_over();

 private:
  SharedMemory(Descriptor descriptor, std::size_t bytes);
  void set_proof();

  Descriptor descriptor_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Handle handle_;
};

}  // namespace lockstep
