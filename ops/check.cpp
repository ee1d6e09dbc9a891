#include "ops/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/store/run_folder.h"
#include "convert/check/config_check.h"
#include "convert/check/dialect.h"
#include "convert/check/folder_files.h"
#include "convert/check/model_check.h"
#include "convert/check/names.h"
#include "convert/check/original_check.h"
#include "convert/check/weight_files.h"

namespace ferry {
namespace {

constexpr const char* kConfigName = "config.json";

// The folder that `path` leads to; invalid where it is not a Hugging Face folder.
std::string folder_of(const FileSystem& files, const std::string& path) {
  const PathKind kind = files.status(path).kind;
  if (kind == PathKind::missing) fail_missing(files, path);
  if (kind != PathKind::folder) {
    fail(ErrorKind::invalid, "{}: is not a folder; what is checked is a Hugging Face folder", path);
  }
  const auto lead = leads_to(files, path, {});
  std::string folder = lead ? lead->path : path;
  if (files.status(folder).kind != PathKind::folder) {
    fail(ErrorKind::invalid, "{}: is not a Hugging Face folder: it leads to {}", path, folder);
  }
  const auto format = format_of_folder(files, folder);
  const bool has_config = files.status(join(folder, kConfigName)).kind == PathKind::file;
  if (format == Format::hugging_face || (!format && has_config)) return folder;
  if (!format && !is_run_folder(files, folder)) {
    fail(ErrorKind::invalid,
         "{}: is not a Hugging Face folder: it holds neither weights nor a config.json", path);
  }
  fail(ErrorKind::invalid, "{}: is not a Hugging Face folder{}; convert makes one of a model ({})",
       path,
       format ? fmt::format(" but a checkpoint of format {}", name(*format)) : " but a run folder",
       option("to", "hugging_face"));
}

// What to do where a finding's own part of the program has nothing more to say.
std::string usual_advice(const Finding& finding) {
  if (finding.kind == "missing") {
    return fmt::format(
        "download or convert the model again, or take it from the original (convert "
        "with {})",
        option("fill_from", "DIR"));
  }
  if (finding.kind == "left_over") return "correct config.json, or leave the tensors out";
  if (finding.kind == "shape") return "correct config.json, or write the model anew";
  if (finding.kind == "dtype") {
    return fmt::format("write the model in one type (convert with {})", option("dtype"));
  }
  if (finding.kind == "quantisation") return "download or quantise the model again";
  if (finding.kind == "names") {
    return fmt::format("write the model anew (convert with {})", option("to", "hugging_face"));
  }
  return finding.is_problem ? "download or copy the folder again" : "see whether this is meant";
}

class Check {
 public:
  Check(std::shared_ptr<const FileSystem> files, const CheckOptions& options, CheckReport& report)
      : files_(std::move(files)), options_(options), report_(report) {}

  void run() {
    const auto base = adapter_base(*files_, report_.path);
    const bool has_config = files_->status(join(report_.path, kConfigName)).kind == PathKind::file;
    if (base && !has_config) {
      findings_.problem("files", report_.path, what_adapter(*base), "check the merged model");
    } else {
      check_model_folder();
    }
    report_.findings = findings_.take();
    for (Finding& finding : report_.findings) {
      if (finding.advice.empty()) finding.advice = usual_advice(finding);
    }
    std::ranges::stable_partition(report_.findings, &Finding::is_problem);
    report_.problems = std::ranges::count(report_.findings, true, &Finding::is_problem);
  }

 private:
  void check_model_folder() {
    const std::shared_ptr<const nlohmann::json> config = read_config();
    std::optional<Checkpoint> checkpoint = open();
    if (!checkpoint) return;
    check_tensors(*checkpoint, config.get());
    if (!report_.like.empty()) compare_with_original(*checkpoint);
  }

  std::shared_ptr<const nlohmann::json> read_config() {
    try {
      auto config = read_hugging_face_config(*files_, report_.path);
      if (config) return config;
      findings_.problem("config", kConfigName, "the folder has no config.json",
                        "copy it from the original model");
    } catch (const Error& error) {
      findings_.problem("config", kConfigName, error.what(), "copy it again");
    }
    return nullptr;
  }

  std::optional<Checkpoint> open() {
    if (format_of_folder(*files_, report_.path) != Format::hugging_face) {
      findings_.problem("files", report_.path,
                        "the folder has no weights: no .safetensors files and no "
                        "pytorch_model*.bin",
                        "complete the download or copy");
      return std::nullopt;
    }
    try {
      Checkpoint checkpoint = open_checkpoint(files_, report_.path);
      report_.tensors = static_cast<int64_t>(checkpoint.catalog->entries.size());
      report_.files = static_cast<int64_t>(checkpoint.catalog->files.size());
      check_weight_files(checkpoint, options_.loader, findings_);
      return checkpoint;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::cancelled || error.kind() == ErrorKind::exhausted) throw;
      find_unread_weights(files_, report_.path, error.what(), findings_);
      return std::nullopt;
    }
  }

  void check_tensors(Checkpoint& checkpoint, const nlohmann::json* config) {
    try {
      if (std::string wrapped = unwrap_names(checkpoint); !wrapped.empty()) {
        findings_.problem("names", report_.path, std::move(wrapped));
      }
    } catch (const Error& error) {
      findings_.problem("names", report_.path, error.what());
    }
    if (config == nullptr) return;
    ModelExamination found = examine_model(checkpoint);
    for (const Finding& each : found.findings.list()) {
      // transformers loads no such layers.
      if (each.kind == "mtp" && options_.loader == Loader::transformers) continue;
      const bool is_problem = each.is_problem || each.kind == "names";
      findings_.add(is_problem, each.kind, each.subject, each.what, each.advice);
    }
    add_misfit(found.misfit);
    const KnownModel* model = found.model ? &*found.model : nullptr;
    if (model != nullptr) report_.family = model->family->name;
    check_config(checkpoint, *config, model, options_.loader, findings_);
    check_dialect(checkpoint.catalog, *config, options_.loader, findings_);
    check_folder_files(checkpoint, *config, options_.loader, findings_);
  }

  void add_misfit(const Misfit& misfit) {
    for (const NameGroup& group : grouped(misfit.missing, misfit.left_over)) {
      findings_.problem("missing", group.pattern,
                        fmt::format("{}: is missing{}", group.line,
                                    group.near.empty() ? "" : "; the folder has " + group.near));
    }
    for (const NameGroup& group : grouped(misfit.left_over, {})) {
      findings_.problem(
          "left_over", group.pattern,
          fmt::format("{}: is not a tensor of the model that config.json describes", group.line));
    }
    for (const std::string& sentence : misfit.misshapen) {
      findings_.problem("shape", sentence.substr(0, sentence.find(": ")), sentence);
    }
  }

  void compare_with_original(const Checkpoint& checkpoint) {
    const Checkpoint original = open_model(files_, report_.like);
    check_against_original(checkpoint, original, findings_);
  }

  std::shared_ptr<const FileSystem> files_;
  const CheckOptions& options_;
  CheckReport& report_;
  Findings findings_;
};

}  // namespace

std::string_view name(Loader loader) noexcept {
  constexpr std::string_view kNames[] = {"any", "transformers", "vllm", "sglang"};
  return kNames[static_cast<size_t>(loader)];
}

CheckReport check(const std::string& path, const CheckOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto files = posix_file_system();
  CheckReport report;
  report.path = folder_of(*files, path);
  report.loader = options.loader;
  if (!options.like.empty()) report.like = folder_of(*files, options.like);
  Check(files, options, report).run();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace ferry
