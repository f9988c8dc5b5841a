// Memory that processes share.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/descriptor.hpp"
#include "core/device/shared_memory.hpp"
#include "support/child_process.hpp"

using namespace lockstep;
using lockstep::test::ChildProcess;

TEST_CASE("shared memory is the same in every process that opens it, and then has neither name nor proof") {
  constexpr std::size_t bytes = 10'000;
  for (const auto create : {SharedMemory::create, SharedMemory::create_named}) {
    SharedMemory memory = create(bytes);
    const SharedMemory::Handle handle = memory.handle();
    auto* const mine = static_cast<volatile unsigned char*>(memory.data());
    ChildProcess child{[&] {
      const SharedMemory opened = SharedMemory::open(handle, bytes);
      if (opened.data() == memory.data()) return 1;
      static_cast<volatile unsigned char*>(opened.data())[bytes - 1] = 7;
      return 0;
    }};
    CHECK(child.wait() == 0);
    memory.take_over();
    CHECK(mine[bytes - 1] == 7);
    CHECK(std::all_of(mine, mine + bytes - 1, [](unsigned char byte) { return byte == 0; }));
    CHECK_THROWS_AS(SharedMemory::open(handle, bytes), CommError);

    SharedMemory moved = std::move(memory);
    CHECK(memory.data() == nullptr);
    memory = std::move(moved);
    CHECK(static_cast<unsigned char*>(memory.data())[bytes - 1] == 7);
  }
}

TEST_CASE("only shared memory made with a name has one, until all have opened it") {
  CHECK(std::string{SharedMemory::create(100).handle().name}.empty());
  SharedMemory memory = SharedMemory::create_named(100);
  const std::string path = std::string{"/dev/shm"} + memory.handle().name;
  CHECK(std::filesystem::exists(path));
  memory.take_over();
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("shared memory that was never handed over leaves no name, not even of a process that was killed") {
  // Other jobs on this machine have names, too.
  const auto abandoned = [] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator{"/dev/shm"}) {
      if (!entry.path().filename().string().starts_with("lockstep-")) continue;
      const Descriptor file{::open(entry.path().c_str(), O_RDWR | O_CLOEXEC)};
      if (file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) names.push_back(entry.path());
    }
    return names;
  };
  SharedMemory::remove_abandoned();
  {
    SharedMemory memory = SharedMemory::create_named(100);
    SharedMemory moved = std::move(memory);
    memory = std::move(moved);
    CHECK_THROWS_AS(memory.reserve(std::size_t{1} << 62, std::size_t{1} << 62), CommError);
  }
  CHECK_THROWS_AS(SharedMemory::create_named(0), CommError);  // it cannot be mapped
  CHECK(abandoned().empty());

  // The moment before the lock, and the one after the memory was made.
  const std::string unlocked = "/dev/shm/lockstep-0123456789abcdef", others = "/dev/shm/lockstep-of-somebody-else";
  for (const std::string& each : {unlocked, others}) std::ofstream{each};
  ChildProcess killed{[] {
    const SharedMemory memory = SharedMemory::create_named(100);
    return ::kill(::getpid(), SIGKILL);
  }};
  CHECK(killed.wait() == -SIGKILL);
  const SharedMemory living = SharedMemory::create_named(100);
  SharedMemory::remove_abandoned();
  CHECK(abandoned() == std::vector{others});
  CHECK(SharedMemory::open(living.handle(), 100).data() != nullptr);
  std::filesystem::remove(others);
}

TEST_CASE("memory that is gone, of another size, or another process's is not opened") {
  SharedMemory::Handle gone;
  {
    const SharedMemory memory = SharedMemory::create(100);
    gone = memory.handle();
    CHECK_THROWS_WITH(SharedMemory::open(gone, 101), Catch::Contains("not of the size agreed on"));
    SharedMemory::Handle other = gone;
    ++other.proof;
    CHECK_THROWS_WITH(SharedMemory::open(other, 100), Catch::Contains("another process's"));
    CHECK(SharedMemory::open(gone, 100).data() != nullptr);
  }
  CHECK_THROWS_WITH(SharedMemory::open(gone, 100),
                    Catch::StartsWith("/proc/" + std::to_string(::getpid()) + "/fd/") && Catch::Contains(": "));
  CHECK_THROWS_AS(SharedMemory::open({}, 100), CommError);
}

TEST_CASE("memory that the system will not give is an error when it is made or reserved, not a signal later") {
  ChildProcess child{[] {
    const SharedMemory memory = SharedMemory::create(100'000);
    memory.reserve(0, 100'000);
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      SharedMemory::create(100'001);
    } catch (const CommError&) {
      return 1;
    }
    return 0;
  }};
  CHECK(child.wait() == 1);
  const SharedMemory memory = SharedMemory::create(100);
  CHECK_THROWS_AS(memory.reserve(std::size_t{1} << 62, std::size_t{1} << 62), CommError);
}
