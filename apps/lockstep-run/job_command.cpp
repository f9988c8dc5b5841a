#include "apps/lockstep-run/job_command.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/launcher_words.hpp"
#include "core/base/file_io.hpp"
#include "core/base/host_name.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/supervised_job.hpp"
#include "core/base/system_error.hpp"

namespace lockstep::run {
namespace {

/// A file in memory, which processes that this one starts can open by its path.
Descriptor file_with(std::string_view text) {
  Descriptor file{::memfd_create("hosts", 0)};
  if (file.get() < 0) throw Error{fmt::format("the hostfile: {}", error_text(errno))};
  write_all(file, text, "the hostfile");
  return file;
}

}  // namespace

std::vector<std::string> mpirun_of(const CommandLine& line) {
  std::vector<std::string> words = line.mpirun;
  if (!line.network.empty()) use_network(line.mpi, words, line.network);
  return words;
}

JobCommand::JobCommand(const CommandLine& line, const Start& start, std::vector<std::string> program, int threads)
    : line_{line}, start_{start}, program_{std::move(program)}, threads_{threads} {
  if (line.placement) placement_ = line.placement->on(start.hosts, start.ranks);
}

std::vector<std::string> JobCommand::words() {
  if (!placement_) return words_with("", {supervised_variable});
  hostfile_ = file_with(placement_->host_lines());
  ::setenv("TF_CONFIG", placement_->tf_config().c_str(), 1);
  return words_with(fmt::format("/proc/self/fd/{}", hostfile_.get()), {"TF_CONFIG", supervised_variable});
}

std::string JobCommand::script() const {
  const auto quoted = [](const std::vector<std::string>& words) {
    std::vector<std::string> all;
    std::ranges::transform(words, std::back_inserter(all), shell_word);
    return fmt::format("{}", fmt::join(all, " "));
  };
  if (!placement_) return quoted(words_with("", {})) + "\n";
  std::string script = fmt::format("export TF_CONFIG={}\n", shell_word(placement_->tf_config()));
  if (!names_srun(line_.mpirun))
    script += fmt::format("cat > hosts.lockstep << 'HOSTS'\n{}HOSTS\n", placement_->host_lines());
  return script + quoted(words_with("hosts.lockstep", {"TF_CONFIG"})) + "\n";
}

std::vector<std::string> JobCommand::words_with(const std::string& hostfile,
                                                const std::vector<std::string>& variables) const {
  std::vector<std::string> all = mpirun_of(line_);
  const bool is_here = elsewhere(start_.hosts, host_name()).empty();
  if (is_here) let_ranks_speak(line_.mpi, all);
  const bool by_srun = names_srun(line_.mpirun);
  if (placement_ && !is_here && !by_srun) probe_connections(line_.mpi, all);
  if (threads_ > 1) leave_unbound(line_.mpi, all);
  const bool names_hosts =
      !placement_ && !start_.hosts.empty() && !(line_.mpirun_knows_hosts && start_.hosts == line_.hosts);
  const Words where = placement_ && !by_srun ? words_of_placement(line_.mpi, start_.ranks, hostfile)
                                             : Words{"-n", std::to_string(start_.ranks)};
  all.insert(all.end(), where.begin(), where.end());
  if (placement_ && by_srun)
    std::ranges::move(words_of_srun(placement_->hosts_of_ranks()), std::back_inserter(all));
  else if (names_hosts)
    std::ranges::move(words_of_hosts(line_.mpi, line_.mpirun, start_.hosts, start_.ranks), std::back_inserter(all));
  if (gives_no_variables(line_.mpi, line_.mpirun, placement_ || names_hosts ? start_.hosts : std::vector<Host>{}))
    for (const std::string& variable : variables) all.insert(all.end(), {"-x", variable});
  all.insert(all.end(), program_.begin(), program_.end());
  return all;
}

}  // namespace lockstep::run
