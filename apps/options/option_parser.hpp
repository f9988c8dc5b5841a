// The command line of a program: CLI11 with every value as text, so that what a value must be is said in our own words.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

class OptionParser {
 public:
  /// Reads the value of `option`; ConfigError, naming the option, where it is none.
  using Take = std::function<void(const std::string& option, const std::string& text)>;

  /// `program` is how help, version and messages call it: "lockstep-train".
  OptionParser(std::string program, const std::string& description);
  OptionParser(const OptionParser&) = delete;
  ~OptionParser();

  /// For a program of several commands, of which a command line names one: the groups and options that follow are this
  /// one's.
  void command(const std::string& name, const std::string& help);

  /// Heads the options that follow in the help.
  void group(std::string name) { group_ = std::move(name); }

  void option(const std::string& name, const char* value_name, const std::string& help, Take take);

  /// An option without a value.
  void flag(const std::string& name, const std::string& help, std::function<void()> take);

  /// The help or the version, if that is what was asked for. ConfigError in one line that says what is wrong.
  std::optional<std::string> parse(int argc, const char* const* argv);

  /// The command that was named.
  const std::string& chosen() const { return chosen_; }

 private:
  std::string what_is_wrong(const std::string& parse_error) const;
  std::string commands() const;
  const CLI::App* named_command() const;

  std::string program_;
  std::string group_ = "Options";
  std::unique_ptr<CLI::App> app_;
  CLI::App* current_;  ///< of the options that follow
  std::vector<CLI::App*> commands_;
  std::string chosen_;
};

}  // namespace lockstep
