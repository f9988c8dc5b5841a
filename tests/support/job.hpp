// Commands and jobs for end-to-end tests: run one, see what it said and how it ended, and leave nothing
// behind.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::test {

using Environment = std::map<std::string, std::string>;

/// How a command ended, and what it wrote.
struct Outcome {
  int exit_code = 0;  ///< as a shell counts: 128 + the signal for a command that one killed
  bool timed_out = false;
  std::chrono::duration<double> seconds{0};
  std::string out;
  std::string err;
  std::string marker;  ///< names this run's processes, see processes_left()
};

struct CommandOptions {
  Environment environment = {};  ///< added to this process's own, and stronger
  /// Then the command's process group, and every process it left elsewhere, is killed. Only for a command that hangs:
  /// most take a second or two.
#ifdef __SANITIZE_ADDRESS__
  std::chrono::duration<double> timeout = std::chrono::seconds{480};  // as scripts/test multiplies its own
#else
  std::chrono::duration<double> timeout = std::chrono::seconds{120};
#endif
};

/// Runs a command (found as a shell finds it) with nothing to read from, and waits until it ends or its time
/// is up. Processes it leaves running are not waited for. Throws std::system_error if it cannot be started.
Outcome run_command(const std::vector<std::string>& command, const CommandOptions& options = {});

/// Runs `mpirun -n ranks lockstep-train arguments…` on this machine, whatever its number of cores. The
/// program is the one LOCKSTEP_TRAIN names (`meson test` sets it); std::runtime_error where it is not set.
Outcome run_job(int ranks, const std::vector<std::string>& arguments, const CommandOptions& options = {});

/// What run_job() gives mpirun beside the caller's environment: the same as `mpi_environment` in
/// tests/meson.build.
const Environment& mpi_environment();

/// For the environment of a job: mpirun kills at once the ranks that are left, not a second after it has told them to
/// end. For ranks that have nothing more to say.
extern const Environment::value_type kills_at_once;

/// What may take `promised` on a machine that does nothing else: as many times longer as there are processes now, or
/// were in the last minute, that want one of its cores.
std::chrono::duration<double> on_this_machine(std::chrono::duration<double> promised);

enum class Which {
  all,
  ranks,  ///< not mpirun and its daemons
};

/// The processes of a run that are still there, as "pid command", after waiting up to `grace` for them to end: a killed
/// rank takes a moment to be torn down. A zombie does not count: it runs no more. Empty is what tests want.
std::vector<std::string> processes_left(std::string_view marker,
                                        std::chrono::duration<double> grace = std::chrono::seconds{10},
                                        Which which = Which::all);

/// The rank that a launcher gave a process, in a variable such as "PMI_RANK=1" of its environment; nothing in another.
std::optional<int> rank_in(std::string_view variable);

/// Kills the processes of a run that are still there.
void kill_processes(std::string_view marker);

/// The last line without its end; trailing empty lines do not count. Empty where there is none.
std::string last_line(std::string_view text);

/// The lines that start with `prefix`, in order, without their ends.
std::vector<std::string> lines_starting_with(std::string_view text, std::string_view prefix);

/// A folder of its own for one test, gone with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  const std::filesystem::path& path() const { return path_; }

  /// Writes a file in it, bytes as they are, and returns its path.
  std::filesystem::path write(const std::filesystem::path& name, std::string_view contents) const;

 private:
  std::filesystem::path path_;
};

/// A whole file. std::runtime_error names one that cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace lockstep::test
