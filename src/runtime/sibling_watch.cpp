#include "runtime/sibling_watch.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "runtime/job_end.hpp"
#include "runtime/launcher.hpp"

namespace lockstep {
namespace {

struct Sibling {
  int rank = 0;
  bool stopped = false;
};

/// The rank that a launcher gave a process, by the variables in its environment.
std::optional<int> rank_in(const std::string& variable) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK="})
    if (variable.starts_with(name)) return std::atoi(variable.c_str() + variable.find('=') + 1);
  return std::nullopt;
}

std::optional<int> own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return std::nullopt;
}

int number_in(const char* name) {
  const char* const value = std::getenv(name);
  return value ? std::atoi(value) : 0;
}

/// The ranks that the same launcher started on this node, this one among them. A process may go while it is looked at:
/// then it is not there.
std::vector<Sibling> siblings() {
  std::vector<Sibling> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc", ignored}) {
    const std::string process = entry.path().filename();
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string line;
    std::ifstream stat{entry.path() / "stat"};
    std::getline(stat, line);
    // "12 (a name) T 10 …": the state and the parent, behind a name that may hold anything.
    const auto name_end = line.rfind(')');
    if (name_end == std::string::npos || name_end + 4 > line.size()) continue;
    if (std::atoi(line.c_str() + name_end + 4) != ::getppid()) continue;
    Sibling sibling{-1, line[name_end + 2] == 'T'};
    std::ifstream environment{entry.path() / "environ", std::ios::binary};
    for (std::string variable; std::getline(environment, variable, '\0');)
      if (const auto rank = rank_in(variable)) sibling.rank = *rank;
    if (sibling.rank >= 0) found.push_back(sibling);
  }
  std::sort(found.begin(), found.end(), [](const Sibling& a, const Sibling& b) { return a.rank < b.rank; });
  return found;
}

/// The lowest of them that runs speaks for the node.
bool speaks_for(const std::vector<Sibling>& all) {
  const auto first = std::find_if(all.begin(), all.end(), [](const Sibling& each) { return !each.stopped; });
  return first != all.end() && first->rank == *own_rank();
}

using Seconds = std::chrono::duration<double>;

constexpr Seconds between_looks{0.25};
// A rank of another node, where this one sees nothing: a slow start is likelier than the end of a node.
constexpr Seconds without_evidence{20};

}  // namespace

/// The lowest rank that is not there, or has stopped. Only where all ranks of the job are on this node is it known
/// which should be there.
std::optional<SiblingWatch::Trouble> SiblingWatch::look() {
  const std::vector<Sibling> all = siblings();
  const int ranks = number_in("OMPI_COMM_WORLD_SIZE");
  for (int rank = 0; rank < ranks && number_in("OMPI_COMM_WORLD_LOCAL_SIZE") == ranks; ++rank)
    if (std::none_of(all.begin(), all.end(), [&](const Sibling& each) { return each.rank == rank; }))
      return Trouble{rank, false};
  const auto stopped = std::find_if(all.begin(), all.end(), [](const Sibling& each) { return each.stopped; });
  return stopped == all.end() ? std::nullopt : std::optional{Trouble{stopped->rank, true}};
}

SiblingWatch::SiblingWatch(std::string doing, std::chrono::duration<double> patience)
    : doing_{std::move(doing)}, patience_{patience}, stop_{::eventfd(0, EFD_CLOEXEC)} {
  // What is no patience is the options' mistake, which is still to be told.
  if (own_rank() && patience_.count() > 0) thread_ = std::thread{[this] { watch(); }};
}

SiblingWatch::~SiblingWatch() {
  const std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void SiblingWatch::watch() {
  if (!wait(patience_)) return;
  // What is seen once may be a process that is just beginning, or one that is stopped for a moment.
  std::optional<Trouble> before;
  for (Seconds passed{0}; passed < without_evidence; passed += between_looks) {
    if (!wait(between_looks)) return;
    const auto trouble = look();
    if (trouble && trouble == before) end_for(*trouble);
    before = trouble;
  }
  end_without_evidence();
}

bool SiblingWatch::wait(Seconds time) const {
  // In short waits, as the watchdog: a job that is suspended as a whole is not late.
  constexpr std::chrono::milliseconds tick{50};
  pollfd stop{stop_.get(), POLLIN, 0};
  for (Seconds passed{0}; passed < time; passed += tick) {
    if (::poll(&stop, 1, tick.count()) > 0) return false;
    // mpirun's daemon that loses mpirun ends at once, and may leave us behind.
    if (::getppid() != launcher_) end_without_launcher(ExitCode::stall);
  }
  return true;
}

void SiblingWatch::end_for(const Trouble& trouble) const {
  const bool speaking = speaks_for(siblings());
  if (speaking)
    print_line(fmt::format("lockstep: replica {} {}: it was waited for {:g} s while the job was {}", trouble.rank,
                           trouble.stopped ? "has stopped" : "is gone", patience_.count(), doing_));
  // Whoever ends first ends the job; the line gets the time to get out before.
  std::this_thread::sleep_for(std::chrono::milliseconds{speaking ? 200 : 3000});
  std::_Exit(static_cast<int>(ExitCode::stall));
}

void SiblingWatch::end_without_evidence() const {
  const std::vector<Sibling> all = siblings();
  const int rank = *own_rank();
  const bool with_chief = all.empty() || all.front().rank == 0;
  if (!with_chief) std::this_thread::sleep_for(std::chrono::seconds{1});
  if (speaks_for(all))
    print_line(fmt::format("lockstep: replica {} waited {:g} s for ranks of other nodes while the job was {}", rank,
                           (patience_ + without_evidence).count(), doing_));
  const auto place = std::count_if(all.begin(), all.end(), [&](const Sibling& each) { return each.rank < rank; });
  end_this_side(ExitCode::stall, with_chief ? Reach::chiefs_side : Reach::cut_off, static_cast<int>(place));
}

}  // namespace lockstep
