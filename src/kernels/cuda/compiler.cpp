#include "kernels/cuda/compiler.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/new_file.h"
#include "core/sha256.h"
#include "machine/ceilings.h"
#include "ridgeline/error.h"

namespace ridgeline::cuda {
namespace {

namespace fs = std::filesystem;

// Entry points of NVRTC's documented C interface.
struct Nvrtc {
  using Program = struct ProgramHandle*;
  int (*version)(int* major, int* minor);
  const char* (*error_string)(int);
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*destroy)(Program*);
  int (*compile)(Program, int options, const char* const* option);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  int (*ptx_size)(Program, size_t*);
  int (*ptx)(Program, char*);
  std::string trouble;
  int major = 0, minor = 0;
};

constexpr const char* kNames[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"};

void* open_library() {
  if (const char* given = std::getenv("RIDGELINE_NVRTC"); given && *given) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
  for (const char* name : kNames)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  std::error_code error;
  for (const fs::path folder : library_folders())
    for (const char* name : kNames)
      if (fs::exists(folder / name, error))
        if (void* library = dlopen((folder / name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

Nvrtc load() {
  Nvrtc n;
  void* const library = open_library();
  if (!library) {
    const char* given = std::getenv("RIDGELINE_NVRTC");
    n.trouble =
        given && *given
            ? fmt::format("RIDGELINE_NVRTC={}: cannot be loaded: it is to name libnvrtc.so itself", given)
            : "no NVRTC, the runtime compiler of CUDA: install the toolkit, or `pip install nvidia-cuda-nvrtc`, or "
              "name the library in RIDGELINE_NVRTC";
    return n;
  }
  const std::pair<const char*, void*> entries[] = {
      {"nvrtcVersion", &n.version},
      {"nvrtcGetErrorString", &n.error_string},
      {"nvrtcCreateProgram", &n.create},
      {"nvrtcDestroyProgram", &n.destroy},
      {"nvrtcCompileProgram", &n.compile},
      {"nvrtcGetProgramLogSize", &n.log_size},
      {"nvrtcGetProgramLog", &n.log},
      {"nvrtcGetCUBINSize", &n.cubin_size},
      {"nvrtcGetCUBIN", &n.cubin},
      {"nvrtcGetPTXSize", &n.ptx_size},
      {"nvrtcGetPTX", &n.ptx},
  };
  for (const auto& [name, place] : entries) {
    void* const symbol = dlsym(library, name);
    if (!symbol) {
      n.trouble = fmt::format("the NVRTC that was found has no {}: version 12 or newer is wanted", name);
      return n;
    }
    *static_cast<void**>(place) = symbol;
  }
  n.version(&n.major, &n.minor);
  if (n.major < 12) n.trouble = fmt::format("NVRTC is of version {}.{}: 12 or newer is wanted", n.major, n.minor);
  return n;
}

const Nvrtc& nvrtc() {
  static const Nvrtc once = load();
  return once;
}

std::atomic<int64_t> g_compilations{0};

// "Compiling entry function 'k' for 'sm_90a'", then "Used 24 registers, 4096 bytes smem"; spills on a line of their
// own.
std::vector<KernelResources> resources_of(const std::string& log) {
  std::vector<KernelResources> list;
  std::istringstream lines(log);
  const std::regex entry("Compiling entry function '([^']+)'"), used("Used ([0-9]+) registers"),
      shared("([0-9]+) bytes smem"), spills("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, entry)) list.push_back({match[1]});
    if (list.empty()) continue;
    if (std::regex_search(line, match, spills)) list.back().spill_bytes = std::stoll(match[1]) + std::stoll(match[2]);
    if (std::regex_search(line, match, used)) list.back().registers = std::stoi(match[1]);
    if (std::regex_search(line, match, shared)) list.back().shared_bytes = std::stoll(match[1]);
  }
  return list;
}

Compiled compile_now(const Source& source, const std::string& text, const std::string& architecture, std::string& log) {
  const Nvrtc& n = nvrtc();
  Nvrtc::Program program = nullptr;
  if (n.create(&program, text.c_str(), source.file.c_str(), 0, nullptr, nullptr) != 0)
    fail(ErrorCode::kResource, "NVRTC cannot take {}: out of memory?", source.file);
  const bool is_virtual = architecture.starts_with("compute_");
  std::vector<std::string> options = {"--gpu-architecture=" + architecture, "--std=c++17"};
  if (!is_virtual) options.emplace_back("--ptxas-options=-v");
  for (const std::string& define : source.defines) options.push_back("-D" + define);
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  const int result = n.compile(program, int(words.size()), words.data());
  size_t size = 0;
  if (n.log_size(program, &size) == 0 && size > 1) {
    log.resize(size);
    n.log(program, log.data());
    log.resize(size - 1);
  }
  Compiled compiled;
  const auto size_of = is_virtual ? n.ptx_size : n.cubin_size;
  if (result == 0 && size_of(program, &size) == 0) {
    compiled.code.resize(size);
    (is_virtual ? n.ptx : n.cubin)(program, compiled.code.data());
  }
  n.destroy(&program);
  if (result != 0)
    fail(ErrorCode::kUnsupported, "unsupported: {} does not compile for {} ({}):\n{}", source.file, architecture,
         n.error_string(result), log);
  compiled.kernels = resources_of(log);
  ++g_compilations;
  return compiled;
}

// A cached answer: the length of the log in ten digits, the log, the machine code.
constexpr size_t kDigits = 10;

std::optional<Compiled> read_cached(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream content;
  content << in.rdbuf();
  const std::string all = content.str();
  if (all.size() < kDigits || all.substr(0, kDigits).find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const size_t log_bytes = std::stoul(all.substr(0, kDigits));
  if (all.size() <= kDigits + log_bytes) return std::nullopt;
  Compiled compiled;
  compiled.kernels = resources_of(all.substr(kDigits, log_bytes));
  compiled.code = all.substr(kDigits + log_bytes);
  compiled.from_cache = true;
  return compiled;
}

// A cache that cannot be written costs the next start its time, nothing else.
void write_cached(const fs::path& file, const std::string& log, const std::string& cubin) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) return;
  NewFileName name(file.string());
  std::ofstream out(name.part(), std::ios::binary);
  out << fmt::format("{:0{}}", log.size(), kDigits) << log << cubin;
  out.close();
  if (out) name.finish();
}

}  // namespace

std::vector<std::string> library_folders() {
  std::vector<std::string> list;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable)) list.push_back((fs::path(home) / "lib64").string());
  list.emplace_back("/usr/local/cuda/lib64");
  std::vector<fs::path> pythons;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* root = std::getenv(variable)) pythons.push_back(fs::path(root) / "lib");
  if (const char* home = std::getenv("HOME")) pythons.push_back(fs::path(home) / ".local/lib");
  pythons.emplace_back("/usr/local/lib");
  pythons.emplace_back("/usr/lib");
  std::error_code error;
  for (const fs::path& root : pythons) {
    for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
      if (!it->path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const char* part : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cublas/lib", "nvidia/cudnn/lib"})
          list.push_back((it->path() / packages / part).string());
    }
    error.clear();
  }
  return list;
}

std::string compiler_trouble() { return nvrtc().trouble; }
std::string compiler_version() { return fmt::format("{}.{}", nvrtc().major, nvrtc().minor); }
int64_t compilations() { return g_compilations; }

Compiled compile(const Source& source, const std::string& architecture) {
  if (!nvrtc().trouble.empty()) fail(ErrorCode::kResource, "{}", nvrtc().trouble);
  const std::string text = fmt::format("{}\n{}\n#line 1 \"{}\"\n{}", embedded("prelude.cu"), source.program,
                                       source.file, embedded(source.file));
  const std::string key =
      fmt::format("{}\n{}\n{}\n{}", compiler_version(), architecture, fmt::join(source.defines, "\n"), text);
  std::optional<fs::path> file;
  if (const auto folder = cache_directory())
    file = fs::path(*folder) / "cuda" / (sha256(key.data(), key.size()) + ".cubin");
  if (file)
    if (std::optional<Compiled> cached = read_cached(*file)) return std::move(*cached);
  std::string log;
  Compiled compiled = compile_now(source, text, architecture, log);
  if (file) write_cached(*file, log, compiled.code);
  return compiled;
}

}  // namespace ridgeline::cuda
