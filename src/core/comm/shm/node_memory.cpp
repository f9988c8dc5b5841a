#include "core/comm/shm/node_memory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include <sched.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/device/device.hpp"

namespace lockstep {
namespace {

constexpr std::size_t cache_line = 64;

// A slot that begins with a short message shares the line that tells of it: it then arrives at once.
struct alignas(16) Header {
  std::atomic<std::uint64_t> exchange;
  std::atomic<std::uint64_t> word;
};
static_assert(sizeof(Header) == 16 && std::atomic<std::uint64_t>::is_always_lock_free,
              "a lock would not work between processes");

// An odd number of lines: slots of several ranks do not compete for the same sets of a cache.
constexpr std::size_t stride_of_slots = NodeMemory::slot_bytes + 3 * cache_line;
static_assert(stride_of_slots % cache_line == 0 && sizeof(Header) + NodeMemory::slot_bytes <= stride_of_slots);

constexpr std::size_t stride_of_all_rooms = NodeMemory::rooms * NodeMemory::room_bytes + 3 * cache_line;

// While a rank that runs needs about so long to come, looking again is cheaper than giving the core away.
constexpr int patience = 1000;

std::size_t pages_for(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

/// Two for each rank, which take turns: a rank may lay down its next message while others still read the last.
struct NodeMemory::Slot {
  Header header;
  std::byte payload[slot_bytes];
};

/// The last task that a rank has begun, and the last that it has ended.
struct alignas(cache_line) NodeMemory::Tasks {
  std::atomic<std::uint64_t> begun, ended;
  /// Of the last tasks that it has begun, by number. No rank begins one before all have ended the one in its place.
  static constexpr std::uint64_t room = 64;
  std::atomic<std::uint64_t> words[room];
};

struct NodeMemory::Segment {
  std::uint64_t number;
  SharedMemory memory;
  std::size_t stride;
  std::byte* own;
  std::size_t bytes;
};

std::size_t NodeMemory::bytes_for(int ranks) {
  return static_cast<std::size_t>(ranks) *
         (sizeof(cpu_set_t) + 2 * stride_of_slots + sizeof(Tasks) + stride_of_all_rooms);
}

NodeMemory::NodeMemory(SharedMemory slots, int rank, int ranks, SharedMemory (*create)(std::size_t))
    : slots_{std::move(slots)},
      rank_{rank},
      ranks_{ranks},
      create_{create},
      segments_{std::make_shared<std::vector<Segment>>()} {
  auto* const cores = static_cast<cpu_set_t*>(slots_.data());
  if (::sched_getaffinity(0, sizeof(cpu_set_t), cores + rank_) != 0)
    for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(static_cast<std::size_t>(core), cores + rank_);
  exchange();
  if (count_cores() >= ranks_) spins_ = patience;
}

NodeMemory::~NodeMemory() = default;

/// Those that any of the ranks may use: mpirun may bind each to other ones.
int NodeMemory::count_cores() const {
  const auto* const cores = static_cast<const cpu_set_t*>(slots_.data());
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int rank = 0; rank < ranks_; ++rank) CPU_OR(&all, &all, cores + rank);
  return CPU_COUNT(&all);
}

NodeMemory::Slot& NodeMemory::slot_at(std::uint64_t exchange, int rank) const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  const std::size_t index = (exchange % 2) * ranks + static_cast<std::size_t>(rank);
  return *reinterpret_cast<Slot*>(static_cast<std::byte*>(slots_.data()) + ranks * sizeof(cpu_set_t) +
                                  index * stride_of_slots);
}

/// Behind the slots.
NodeMemory::Tasks& NodeMemory::tasks_of(int rank) const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  return reinterpret_cast<Tasks*>(static_cast<std::byte*>(slots_.data()) +
                                  ranks * (sizeof(cpu_set_t) + 2 * stride_of_slots))[rank];
}

std::byte* NodeMemory::payload(std::uint64_t exchange, int rank) const {
  return slot_at(exchange, rank).payload;
}

std::int64_t NodeMemory::slot_stride() {
  return static_cast<std::int64_t>(stride_of_slots);
}

bool NodeMemory::exchange(std::uint64_t word) {
  Header& mine = slot_at(next_, rank_).header;
  mine.word.store(word, std::memory_order_relaxed);
  mine.exchange.store(next_, std::memory_order_release);
  bool same = true;
  for (int other = 0; other < ranks_; ++other) {
    const Header& theirs = slot_at(next_, other).header;
    // No rank can be two exchanges ahead of this one, so its slot still holds this exchange's.
    for (int looks = 0; theirs.exchange.load(std::memory_order_acquire) < next_; ++looks)
      looks < spins_ ? pause() : std::this_thread::yield();
    same &= theirs.word.load(std::memory_order_relaxed) == word;
  }
  ++next_;
  return same;
}

bool NodeMemory::may_begin(std::uint64_t task) const {
  return task <= Tasks::room || ended(task - Tasks::room);
}

void NodeMemory::begin(std::uint64_t task, std::uint64_t word) {
  Tasks& mine = tasks_of(rank_);
  mine.words[task % Tasks::room].store(word, std::memory_order_relaxed);
  mine.begun.store(task, std::memory_order_release);
}

NodeMemory::Begun NodeMemory::begun(std::uint64_t task) const {
  std::optional<std::uint64_t> word;
  Begun begun = Begun::with_one_word;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Tasks& theirs = tasks_of(rank);
    if (theirs.begun.load(std::memory_order_acquire) < task) return Begun::not_by_all;
    const std::uint64_t its_word = theirs.words[task % Tasks::room].load(std::memory_order_relaxed);
    if (word.value_or(its_word) != its_word) begun = Begun::with_several;
    word = its_word;
  }
  return begun;
}

void NodeMemory::end(std::uint64_t task) {
  tasks_of(rank_).ended.store(task, std::memory_order_release);
}

bool NodeMemory::ended(std::uint64_t task) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (tasks_of(rank).ended.load(std::memory_order_acquire) < task) return false;
  return true;
}

/// Behind the tasks.
std::byte* NodeMemory::rooms_of(std::uint64_t task) const {
  return reinterpret_cast<std::byte*>(&tasks_of(ranks_)) + task % rooms * room_bytes;
}

std::int64_t NodeMemory::stride_of_rooms() {
  return static_cast<std::int64_t>(stride_of_all_rooms);
}

SharedAllocation NodeMemory::allocate(std::size_t bytes) {
  // A few lines more than whole pages, so that the same element of several ranks is in different sets of a cache: up to
  // a tenth of the time of a sum.
  const std::size_t stride = pages_for(std::max<std::size_t>(bytes, 1)) + 16 * cache_line;
  const std::size_t all_bytes = stride * static_cast<std::size_t>(ranks_);
  std::optional<SharedMemory> memory;
  SharedAllocation made;
  // Whatever happens on this rank, the others wait for it in the exchanges.
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (const std::exception& error) {
      made.failure = error.what();
    }
  };
  SharedMemory::Handle handle;
  if (rank_ == 0) attempt([&] { memory.emplace(create_(all_bytes)); });
  if (memory) handle = memory->handle();
  std::memcpy(slot(), &handle, sizeof handle);
  exchange();
  std::memcpy(&handle, slots(), sizeof handle);
  const bool created = handle.way != SharedMemory::Handle::Way::none;
  if (rank_ != 0 && created) attempt([&] { memory.emplace(SharedMemory::open(handle, all_bytes)); });
  const std::size_t first = stride * static_cast<std::size_t>(rank_);
  // Each rank its own part, on its own NUMA node.
  if (memory) attempt([&] { memory->reserve(first, stride); });
  const bool ready = created && made.failure.empty();
  const bool everyone = exchange(ready ? 0 : 1 + static_cast<std::uint64_t>(rank_)) && ready;
  if (rank_ == 0 && memory) memory->take_over();
  if (!everyone) return made;
  auto* const own = static_cast<std::byte*>(memory->data()) + first;
  segments_->push_back({++allocations_, *std::move(memory), stride, own, bytes});
  made.memory = Buffer{own, bytes, DeviceKind::cpu, [segments = segments_, number = allocations_](void*) {
                         std::erase_if(*segments, [&](const Segment& each) { return each.number == number; });
                       }};
  return made;
}

std::optional<NodeMemory::Place> NodeMemory::place_of(const std::byte* data, std::size_t bytes) const {
  for (const Segment& segment : *segments_) {
    if (data < segment.own || data >= segment.own + segment.bytes) continue;
    const auto offset = static_cast<std::size_t>(data - segment.own);
    if (bytes > segment.bytes - offset) return std::nullopt;
    constexpr int offset_bits = 40;
    return Place{segment.number << offset_bits | offset, static_cast<std::byte*>(segment.memory.data()) + offset,
                 static_cast<std::int64_t>(segment.stride)};
  }
  return std::nullopt;
}

}  // namespace lockstep
