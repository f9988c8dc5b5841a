// MPI, from its start to its end.
#pragma once

namespace lockstep {

/// Initialises MPI, unless the program has done so itself, and then ends it too.
class MpiSession {
 public:
  /// CommError if this MPI cannot be called from several threads at once: the watchdog does.
  MpiSession(int& argc, char**& argv);
  MpiSession(const MpiSession&) = delete;
  ~MpiSession();

  /// Ends every rank of the job with `code`. Any thread may call it. Does not return.
  [[noreturn]] static void abort_job(int code);

 private:
  bool owned_ = false;
};

}  // namespace lockstep
