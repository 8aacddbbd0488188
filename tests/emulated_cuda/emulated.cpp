// The CUDA driver and NVRTC as far as this library uses them, on the host: `RIDGELINE_CUDA_DRIVER` and
// `RIDGELINE_NVRTC` name this library, and kernels are compiled by g++ and run thread by thread. For tests of what
// kernels compute on machines without a card (the sweep, plans, the executor); not for any timing. Kernels with
// instructions of their own (mma, cp.async, mbarriers) do not compile here: the log says "not emulated", and the sweep
// leaves them out.
//
// A block's threads are fibers of one OS thread: a barrier is a switch. What deadlocks on a card ends here with an
// error.
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "runtime.h"

namespace {

constexpr int kIllegal = 700, kNotFound = 500, kDeadlock = 719;
constexpr size_t kStack = 256 << 10;

// ---- threads of a block

enum class State { kReady, kBlock, kWarp, kDone };
struct Fiber {
  ucontext_t context{};
  State state = State::kReady;
  unsigned mask = 0;
  uint64_t given = 0;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<std::unique_ptr<char[]>> stacks;
  std::vector<uint64_t> seen;  // 32 a warp
  ucontext_t scheduler{};
  int now = -1;
  EmulatedIndex* thread_index = nullptr;
  void (*body)(void**) = nullptr;
  void** parameters = nullptr;
};
Block g_block;

void run_fiber() {
  g_block.body(g_block.parameters);
  g_block.fibers[size_t(g_block.now)].state = State::kDone;
  swapcontext(&g_block.fibers[size_t(g_block.now)].context, &g_block.scheduler);
}

void wait_in(State state) {
  Fiber& me = g_block.fibers[size_t(g_block.now)];
  me.state = state;
  swapcontext(&me.context, &g_block.scheduler);
}

void block_barrier() { wait_in(State::kBlock); }

const uint64_t* warp_exchange(unsigned mask, uint64_t value) {
  Fiber& me = g_block.fibers[size_t(g_block.now)];
  const size_t warp = size_t(g_block.now) / 32;
  me.mask = mask;
  me.given = value;
  wait_in(State::kWarp);
  return &g_block.seen[warp * 32];
}

EmulatedRuntime g_runtime{block_barrier, warp_exchange};

// Lets those go on that all others have joined; false if nobody may.
bool release() {
  bool any = false, all_at_barrier = true;
  const size_t count = g_block.fibers.size();
  for (const Fiber& f : g_block.fibers)
    if (f.state != State::kDone && f.state != State::kBlock) all_at_barrier = false;
  for (size_t warp = 0; warp * 32 < count; ++warp) {
    const size_t first = warp * 32, last = std::min(count, first + 32);
    for (size_t leader = first; leader < last; ++leader) {
      if (g_block.fibers[leader].state != State::kWarp) continue;
      const unsigned mask = g_block.fibers[leader].mask;
      bool complete = true;
      for (size_t i = first; i < last; ++i) {
        const Fiber& f = g_block.fibers[i];
        if ((mask >> (i - first) & 1) && f.state != State::kDone && f.state != State::kWarp) complete = false;
      }
      if (!complete) continue;
      for (size_t i = first; i < last; ++i)
        if (mask >> (i - first) & 1) g_block.seen[i] = g_block.fibers[i].given;
      for (size_t i = first; i < last; ++i) {
        Fiber& f = g_block.fibers[i];
        if ((mask >> (i - first) & 1) && f.state == State::kWarp) f.state = State::kReady, any = true;
      }
    }
  }
  if (all_at_barrier) {
    for (Fiber& f : g_block.fibers)
      if (f.state == State::kBlock) f.state = State::kReady, any = true;
  }
  return any;
}

int run_block(unsigned threads) {
  while (g_block.stacks.size() < threads) g_block.stacks.emplace_back(new char[kStack]);
  g_block.fibers.assign(threads, Fiber{});
  g_block.seen.assign((size_t(threads) + 31) / 32 * 32, 0);
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& f = g_block.fibers[t];
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = g_block.stacks[t].get();
    f.context.uc_stack.ss_size = kStack;
    f.context.uc_link = &g_block.scheduler;
    makecontext(&f.context, run_fiber, 0);
  }
  for (;;) {
    bool ran = false, alive = false;
    for (unsigned t = 0; t < threads; ++t) {
      Fiber& f = g_block.fibers[t];
      alive = alive || f.state != State::kDone;
      if (f.state != State::kReady) continue;
      g_block.now = int(t);
      *g_block.thread_index = {t, 0, 0};
      swapcontext(&g_block.scheduler, &f.context);
      ran = true;
    }
    if (!alive) return 0;
    if (!release() && !ran) return kDeadlock;
  }
}

// ---- modules, launches, graphs

struct Module {
  void* library = nullptr;
};
struct Function {
  Module* module;
  void (*call)(void**);
  size_t (*parameter)(size_t);
  EmulatedIndex *thread, *block, *block_dim, *grid_dim;
};
struct Config {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  void* stream;
  void* attributes;
  unsigned count;
};
struct Work {
  enum Kind { kLaunch, kCopy, kFill, kEvent } kind;
  Config config{};
  Function* function = nullptr;
  std::vector<std::vector<char>> parameters;
  void *to = nullptr, *from = nullptr;
  size_t bytes = 0;
  unsigned char value = 0;
};
struct Stream {
  bool capturing = false;
  std::vector<Work> captured;
};
struct Event {
  std::chrono::steady_clock::time_point at;
};

std::recursive_mutex g_mutex;
int g_failure = 0;  // sticky, as on a card

void perform(Work& w) {
  if (g_failure) return;
  if (w.kind == Work::kCopy) std::memmove(w.to, w.from, w.bytes);
  if (w.kind == Work::kFill) std::memset(w.to, w.value, w.bytes);
  if (w.kind == Work::kEvent) static_cast<Event*>(w.to)->at = std::chrono::steady_clock::now();
  if (w.kind != Work::kLaunch) return;
  Function& f = *w.function;
  std::vector<void*> at;
  for (std::vector<char>& p : w.parameters) at.push_back(p.data());
  g_block.thread_index = f.thread;
  g_block.body = f.call;
  g_block.parameters = at.data();
  *f.block_dim = {w.config.block_x, 1, 1};
  *f.grid_dim = {w.config.grid_x, w.config.grid_y, w.config.grid_z};
  for (unsigned z = 0; z < w.config.grid_z; ++z)
    for (unsigned y = 0; y < w.config.grid_y; ++y)
      for (unsigned x = 0; x < w.config.grid_x; ++x) {
        *f.block = {x, y, z};
        if (const int result = run_block(w.config.block_x)) {
          g_failure = result;
          return;
        }
      }
}

int enqueue(void* stream, Work work) {
  const std::lock_guard lock(g_mutex);
  auto* s = static_cast<Stream*>(stream);
  if (s && s->capturing)
    s->captured.push_back(std::move(work));
  else
    perform(work);
  return g_failure;
}

// ---- compiling

struct Program {
  std::string text, log;
  std::string code;
};

std::string folder_of_this() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&folder_of_this), &info);
  return info.dli_fname;
}

// Instructions that have a plain meaning.
std::string plain(std::string text) {
  const std::pair<const char*, const char*> rules[] = {
      {R"rx(asm\("cvt\.f32\.f16 %0, %1;" : "=f"\((\w+)\) : "h"\(([^()]+)\)\);)rx", "$1 = emulated_from_f16($2);"},
      {R"rx(asm\("cvt\.rn\.bf16\.f32 %0, %1;" : "=h"\(([\w.]+)\) : "f"\((\w+)\)\);)rx", "$1 = emulated_to_bf16($2);"},
      {R"rx(asm\("cvt\.rn\.f16\.f32 %0, %1;" : "=h"\(([\w.]+)\) : "f"\((\w+)\)\);)rx", "$1 = emulated_to_f16($2);"},
      {R"rx(asm\("ex2\.approx(?:\.ftz)?\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((.*)\)\);)rx", "$1 = exp2f_approx($2);"},
      {R"rx(asm\("rcp\.approx\.ftz\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((.*)\)\);)rx", "$1 = 1.0f / ($2);"},
      {R"rx(asm\("max\.NaN\.f32 %0, %1, %2;" : "=f"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\);)rx",
       "$1 = emulated_nan_max($2, $3);"},
      {R"rx(asm\("min\.NaN\.f32 %0, %1, %2;" : "=f"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\);)rx",
       "$1 = emulated_nan_min($2, $3);"},
      {R"rx(extern __shared__ (__align__\(\d+\) )?([\w ]+) (\w+)\[\];)rx",
       "auto* const $3 = reinterpret_cast<$2*>(emulated_shared);"},
  };
  for (const auto& [from, to] : rules) text = std::regex_replace(text, std::regex(from), to);
  return text;
}

}  // namespace

extern "C" {

// NVRTC
int nvrtcVersion(int* major, int* minor) { return *major = 99, *minor = 0, 0; }
const char* nvrtcGetErrorString(int result) { return result ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }
int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source, "", ""};
  return 0;
}
int nvrtcDestroyProgram(Program** program) { return delete *program, 0; }
int nvrtcCompileProgram(Program* program, int options, const char* const* option) {
  const std::string text = plain(program->text);
  // What is active under the host's macros alone counts: PTX between #if __CUDA_ARCH__ is not.
  std::string work = "/tmp/ridgeline-emulated-XXXXXX";
  if (!mkdtemp(work.data())) return 1;
  std::ofstream file(work + "/kernel.cpp");
  const std::string folder = folder_of_this();
  file << "#include \"" << EMULATED_SOURCE_DIR << "/shim.h\"\n#define asm NOT_EMULATED\n" << text << "\n#undef asm\n";
  const std::regex entry(R"rx(extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\))?\s*(\w+)\()rx");
  for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it) {
    const std::string name = (*it)[1];
    file << "extern \"C\" void " << name << "__call(void** p) { emulated_call(" << name << ", p); }\n"
         << "extern \"C\" size_t " << name << "__parameter(size_t i) { return emulated_parameter(" << name
         << ", i); }\n";
  }
  file.close();
  // Shared memory is static there: without -fno-gnu-unique modules would share one array of a function's name.
  std::string command =
      "g++ -std=c++20 -O1 -ffp-contract=off -fno-gnu-unique -w -shared -fPIC -o " + work + "/kernel.so";
  for (int i = 0; i < options; ++i)
    if (std::strncmp(option[i], "-D", 2) == 0) command += " '" + std::string(option[i]) + "'";
  command += " " + work + "/kernel.cpp > " + work + "/log 2>&1";
  const int result = std::system(command.c_str());
  std::stringstream log, code;
  log << std::ifstream(work + "/log").rdbuf();
  code << std::ifstream(work + "/kernel.so", std::ios::binary).rdbuf();
  program->log = log.str();
  program->code = code.str();
  if (result != 0 && program->log.find("NOT_EMULATED") != std::string::npos)
    program->log = "not emulated: it has instructions of PTX";
  if (!std::getenv("EMULATED_KEEP")) std::system(("rm -rf " + work).c_str());
  return result == 0 ? 0 : 6;
}
int nvrtcGetProgramLogSize(Program* program, size_t* bytes) { return *bytes = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program* program, char* to) { return std::strcpy(to, program->log.c_str()), 0; }
int nvrtcGetCUBINSize(Program* program, size_t* bytes) { return *bytes = program->code.size(), 0; }
int nvrtcGetCUBIN(Program* program, char* to) { return std::memcpy(to, program->code.data(), program->code.size()), 0; }
int nvrtcGetPTXSize(Program*, size_t* bytes) { return *bytes = 0, 0; }
int nvrtcGetPTX(Program*, char*) { return 0; }

// The driver
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetErrorName(int result, const char** text) {
  *text = result == kDeadlock ? "EMULATED_DEADLOCK" : result == kIllegal ? "EMULATED_ILLEGAL" : "EMULATED_ERROR";
  return 0;
}
int cuGetErrorString(int result, const char** text) {
  *text = result == kDeadlock ? "threads of a block wait for each other for ever" : "an error of the emulation";
  return 0;
}
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGet(int* device, int) { return *device = 0, 0; }
int cuDeviceGetName(char* name, int bytes, int) { return std::snprintf(name, size_t(bytes), "emulated GPU"), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const std::map<int, int> values = {{16, 4}, {38, 4 << 20},   {39, 2048},  {75, 8},
                                     {76, 0}, {81, 164 << 10}, {82, 65536}, {97, 163 << 10}};
  const auto at = values.find(attribute);
  *value = at == values.end() ? 0 : at->second;
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = size_t(4) << 30, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &g_block, 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) { return *free_bytes = *total = size_t(4) << 30, 0; }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  void* const memory = std::aligned_alloc(1024, (bytes + 1023) / 1024 * 1024);
  *address = reinterpret_cast<uint64_t>(memory);
  return memory ? 0 : 2;
}
int cuMemFree_v2(uint64_t address) { return std::free(reinterpret_cast<void*>(address)), 0; }
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) { return *memory = std::malloc(bytes), 0; }
int cuMemFreeHost(void* memory) { return std::free(memory), 0; }
static int copy(void* to, const void* from, size_t bytes, void* stream) {
  Work w{Work::kCopy};
  w.to = to, w.from = const_cast<void*>(from), w.bytes = bytes;
  return enqueue(stream, std::move(w));
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return copy(reinterpret_cast<void*>(to), from, bytes, stream);
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return copy(to, reinterpret_cast<void*>(from), bytes, stream);
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  return copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, stream);
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) {
  Work w{Work::kFill};
  w.to = reinterpret_cast<void*>(to), w.value = value, w.bytes = bytes;
  return enqueue(stream, std::move(w));
}
int cuModuleLoadData(Module** module, const void* image) {
  // The size of what is at hand: an ELF file ends behind its section headers.
  const auto* bytes = static_cast<const unsigned char*>(image);
  uint64_t sections = 0;
  uint16_t size = 0, count = 0;
  std::memcpy(&sections, bytes + 40, 8);
  std::memcpy(&size, bytes + 58, 2);
  std::memcpy(&count, bytes + 60, 2);
  std::string path = "/tmp/ridgeline-emulated-module-XXXXXX";
  const int file = mkstemp(path.data());
  const size_t length = size_t(sections) + size_t(size) * count;
  if (file < 0 || write(file, image, length) != ssize_t(length)) return kNotFound;
  close(file);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  if (!library) return kNotFound;
  *static_cast<EmulatedRuntime**>(dlsym(library, "emulated_runtime")) = &g_runtime;
  *module = new Module{library};
  return 0;
}
int cuModuleUnload(Module*) { return 0; }
int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  const std::string n = name;
  const auto symbol = [&](const std::string& s) { return dlsym(module->library, s.c_str()); };
  auto* f = new Function{module,
                         reinterpret_cast<void (*)(void**)>(symbol(n + "__call")),
                         reinterpret_cast<size_t (*)(size_t)>(symbol(n + "__parameter")),
                         static_cast<EmulatedIndex*>(symbol("threadIdx")),
                         static_cast<EmulatedIndex*>(symbol("blockIdx")),
                         static_cast<EmulatedIndex*>(symbol("blockDim")),
                         static_cast<EmulatedIndex*>(symbol("gridDim"))};
  *function = f;
  return f->call ? 0 : kNotFound;
}
int cuFuncGetAttribute(int* value, int, void*) { return *value = 0, 0; }
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) { return *blocks = 2, 0; }
int cuLaunchKernelEx(const Config* config, Function* function, void** parameters, void**) {
  Work w{Work::kLaunch};
  w.config = *config;
  w.function = function;
  size_t i = 0;
  for (size_t bytes = function->parameter(i); bytes != 0; bytes = function->parameter(++i)) {
    const char* const from = static_cast<const char*>(parameters[i]);
    w.parameters.emplace_back(from, from + bytes);
  }
  return enqueue(config->stream, std::move(w));
}
int cuTensorMapEncodeTiled() { return 801; }
int cuTensorMapEncodeIm2col() { return 801; }
int cuStreamCreate(Stream** stream, unsigned) { return *stream = new Stream, 0; }
int cuStreamDestroy_v2(Stream* stream) { return delete stream, 0; }
int cuStreamSynchronize(Stream*) { return g_failure; }
int cuStreamBeginCapture_v2(Stream* stream, int) { return stream->capturing = true, stream->captured.clear(), 0; }
int cuStreamEndCapture(Stream* stream, std::vector<Work>** graph) {
  stream->capturing = false;
  *graph = new std::vector<Work>(std::move(stream->captured));
  return 0;
}
int cuGraphGetNodes(std::vector<Work>* graph, void**, size_t* count) { return *count = graph->size(), 0; }
int cuGraphInstantiateWithFlags(std::vector<Work>** exec, std::vector<Work>* graph, unsigned long long) {
  return *exec = new std::vector<Work>(*graph), 0;
}
int cuGraphLaunch(std::vector<Work>* exec, Stream*) {
  const std::lock_guard lock(g_mutex);
  for (Work& w : *exec) perform(w);
  return g_failure;
}
int cuGraphExecDestroy(std::vector<Work>* exec) { return delete exec, 0; }
int cuGraphDestroy(std::vector<Work>* graph) { return delete graph, 0; }
int cuEventCreate(Event** event, unsigned) { return *event = new Event, 0; }
int cuEventDestroy_v2(Event* event) { return delete event, 0; }
int cuEventRecord(Event* event, Stream* stream) {
  Work w{Work::kEvent};
  w.to = event;
  return enqueue(stream, std::move(w));
}
int cuEventRecordWithFlags(Event* event, Stream* stream, unsigned) { return cuEventRecord(event, stream); }
int cuEventSynchronize(Event*) { return g_failure; }
int cuEventElapsedTime(float* ms, Event* from, Event* to) {
  *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return 0;
}

}  // extern "C"
