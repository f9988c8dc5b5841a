// Holds SIGTERM back for whoever has something to say before it ends the process.
#pragma once

namespace lockstep {

/// mpirun tells the survivors of a rank's death by SIGTERM. While an object of this class lives, SIGTERM does not end
/// the process. It makes a descriptor readable, for good; whoever watches that looks around once more and then calls
/// `die`. The first object installs the handler. The last one restores what was there before, and passes on a SIGTERM
/// that nobody acted on. Any thread may have one.
class KeptSigterm {
 public:
  KeptSigterm();
  KeptSigterm(const KeptSigterm&) = delete;
  ~KeptSigterm();

  /// Readable once SIGTERM has come.
  int descriptor() const { return descriptor_; }
  bool has_come() const;

  /// From here on SIGTERM does at once what it did before the first object of this class.
  void let_through() const;

  /// Ends the process by SIGTERM, if that still does so.
  [[noreturn]] void die() const;

 private:
  int descriptor_;  ///< the same for all objects
};

}  // namespace lockstep
