#include "kernels/cuda/device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "kernels/cuda/capabilities.h"
#include "ridgeline/error.h"

namespace ridgeline::cuda {
namespace {

// Everything below changes only while the process has no device yet.
struct State {
  std::mutex mutex;
  bool open = false;
  DeviceInfo info;
  Context context = nullptr;
  std::map<std::string, std::shared_ptr<const LoadedKernel>> kernels;
};
State& state() {
  static State instance;
  return instance;
}

// An H200 SXM by its data sheet: for choosing where no card is. Measured figures never come from here.
DeviceInfo described() {
  DeviceInfo info;
  info.ordinal = -1;
  info.name = "NVIDIA H200 (described)";
  info.sm = 90;
  info.multiprocessors = 132;
  info.memory_bytes = int64_t(141) * 1'000'000'000;
  info.l2_bytes = int64_t(50) << 20;
  info.shared_bytes_per_block = 227 << 10;
  info.shared_bytes_per_sm = 228 << 10;
  info.registers_per_sm = 65536;
  info.threads_per_sm = 2048;
  return info;
}

int forced_sm() {
  const char* text = std::getenv("RIDGELINE_SM");
  if (!text || !*text) return 0;
  const int sm = std::atoi(text);
  if (sm != 80 && sm != 86 && sm != 89 && sm != 90)
    fail(ErrorCode::kUsage, "RIDGELINE_SM={}: there are 80, 86, 89 and 90", text);
  return sm;
}

DeviceInfo limited(DeviceInfo info) {
  const int sm = forced_sm();
  if (sm == 0 || sm >= info.sm) return info;
  // Kernels that pass here are then those that a card of this level could hold.
  const Capabilities level = capabilities_of(sm);
  info.sm = sm;
  info.shared_bytes_per_block = std::min(info.shared_bytes_per_block, level.shared_bytes_per_block);
  info.shared_bytes_per_sm = std::min(info.shared_bytes_per_sm, level.shared_bytes_per_sm);
  return info;
}

void open_locked(State& s, int ordinal) {
  const DeviceInfo info = device(ordinal);
  const Driver& d = driver();
  int handle = 0;
  check(d.device_get(&handle, ordinal), "opening the device");
  check(d.primary_context_retain(&s.context, handle), fmt::format("making a context on cuda:{}", ordinal));
  s.info = limited(info);
  s.open = true;
}

std::string identity(const Source& source) {
  std::string text = source.file + '\n' + source.entry + '\n' + source.program;
  for (const std::string& define : source.defines) text += '\n' + define;
  for (const std::string& entry : source.more_entries) text += '\n' + entry;
  return text + fmt::format("\n{} bytes shared", source.shared_bytes);  // a launch has what its kernel was loaded with
}

}  // namespace

void use_device(int ordinal) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.open && s.info.ordinal != ordinal)
    fail(ErrorCode::kUsage, "cuda:{} is in use: a process works on one device", s.info.ordinal);
  if (!s.open) open_locked(s, ordinal);
  check(driver().context_set_current(s.context), "entering the device's context");
}

void enter_device() {
  thread_local bool entered = false;
  if (entered) return;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.open) open_locked(s, 0);
  check(driver().context_set_current(s.context), "entering the device's context");
  entered = true;
}

const DeviceInfo& target() {
  State& s = state();
  if (s.open) return s.info;
  static const DeviceInfo none = limited(described());
  return none;
}

std::string architecture() {
  const int forced = forced_sm();
  if (forced && forced < 90) return fmt::format("compute_{}", forced);
  return target().sm == 90 ? "sm_90a" : fmt::format("sm_{}", target().sm);
}

std::shared_ptr<const LoadedKernel> load(const Source& source) {
  enter_device();
  State& s = state();
  const std::string key = identity(source);
  {
    const std::lock_guard lock(s.mutex);
    const auto found = s.kernels.find(key);
    if (found != s.kernels.end()) return found->second;
  }
  // Outside the lock: plans load from several threads, and a compilation takes a third of a second.
  const Compiled compiled = compile(source, architecture());
  const Driver& d = driver();
  auto loaded = std::make_shared<LoadedKernel>();
  Module module = nullptr;
  check(d.module_load(&module, compiled.code.c_str()), fmt::format("loading {}", source.file));
  check(d.module_function(&loaded->function, module, source.entry.c_str()),
        fmt::format("finding {} in {}", source.entry, source.file));
  loaded->entry = source.entry;
  loaded->shared_bytes = source.shared_bytes;
  for (const KernelResources& r : compiled.kernels)
    if (r.kernel == source.entry) loaded->resources = r;
  for (const std::string& entry : source.more_entries) {
    LoadedKernel& more = loaded->more.emplace_back();
    more.entry = entry;
    check(d.module_function(&more.function, module, entry.c_str()),
          fmt::format("finding {} in {}", entry, source.file));
  }
  constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  if (source.shared_bytes > 48 << 10)
    check(d.function_set_attribute(loaded->function, kMaxDynamicSharedBytes, int(source.shared_bytes)),
          fmt::format("{}: {} bytes of shared memory", source.file, source.shared_bytes));
  const std::lock_guard lock(s.mutex);
  return s.kernels.emplace(key, std::move(loaded)).first->second;
}

Memory::Memory(int64_t bytes) : bytes_(bytes) {
  enter_device();
  check(driver().memory_allocate(&address_, size_t(std::max<int64_t>(bytes, 256))),
        fmt::format("allocating {} bytes on the device", bytes));
}

Memory::~Memory() {
  if (address_) driver().memory_free(address_);
}

Queue::Queue() {
  enter_device();
  constexpr unsigned kNonBlocking = 1;
  check(driver().stream_create(&stream_, kNonBlocking), "making a stream");
}

Queue::~Queue() { driver().stream_destroy(stream_); }

void Queue::upload(void* to, const void* from, int64_t bytes) const {
  if (bytes <= 0) return;
  check(driver().copy_to_device(DevicePointer(to), from, size_t(bytes), stream_), "copying to the device");
}

void Queue::download(void* to, const void* from, int64_t bytes) const {
  if (bytes <= 0) return;
  check(driver().copy_to_host(to, DevicePointer(from), size_t(bytes), stream_), "copying from the device");
}

void Queue::copy(void* to, const void* from, int64_t bytes) const {
  if (bytes <= 0) return;
  check(driver().copy_on_device(DevicePointer(to), DevicePointer(from), size_t(bytes), stream_),
        "copying on the device");
}

void Queue::fill(void* to, uint8_t value, int64_t bytes) const {
  if (bytes <= 0) return;
  check(driver().fill_bytes(DevicePointer(to), value, size_t(bytes), stream_), "filling memory of the device");
}

void Queue::wait(const std::string& what) const { check(driver().stream_synchronize(stream_), what); }

void launch(const LoadedKernel& kernel, const Grid& grid, int threads, Stream stream, void** parameters,
            const LaunchOptions& options) {
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return;  // nothing to do
  LaunchConfig config{};
  config.grid_x = unsigned(grid.x), config.grid_y = unsigned(grid.y), config.grid_z = unsigned(grid.z);
  config.block_x = unsigned(threads), config.block_y = config.block_z = 1;
  config.shared_bytes = unsigned(kernel.shared_bytes);
  config.stream = stream;
  LaunchAttribute attribute{};
  constexpr int kProgrammaticStreamSerialization = 6;
  attribute.id = kProgrammaticStreamSerialization;
  attribute.value[0] = 1;
  config.attributes = &attribute;
  config.attribute_count = options.dependent && capabilities().dependent ? 1 : 0;
  check(driver().launch(&config, kernel.function, parameters, nullptr),
        fmt::format("launching {} (grid {}x{}x{}, {} threads, {} bytes shared)", kernel.entry, grid.x, grid.y, grid.z,
                    threads, kernel.shared_bytes));
}

TensorMap tensor_map(MapType type, int rank, const void* address, const int64_t* extents, const int64_t* strides,
                     const int* box, int swizzle) {
  std::array<uint64_t, 5> dims{}, steps{};
  std::array<uint32_t, 5> boxes{}, ones{};
  for (int i = 0; i < rank; ++i) {
    dims[size_t(i)] = uint64_t(extents[i]);
    boxes[size_t(i)] = uint32_t(box[i]);
    ones[size_t(i)] = 1;
    if (i + 1 < rank) steps[size_t(i)] = uint64_t(strides[i]);
  }
  constexpr int kPromoteL2 = 2;  // to 128 bytes
  const int pattern = swizzle == 128 ? 3 : swizzle == 64 ? 2 : swizzle == 32 ? 1 : 0;
  TensorMap map;
  check(driver().tensor_map_encode(&map, int(type), unsigned(rank), DevicePointer(address), dims.data(), steps.data(),
                                   boxes.data(), ones.data(), 0, pattern, kPromoteL2, 0),
        fmt::format("describing a tensor of {} extents for bulk copies (innermost {} by {}, box {} by {})", rank,
                    extents[0], rank > 1 ? extents[1] : 1, box[0], rank > 1 ? box[1] : 1));
  return map;
}

TensorMap image_map(MapType type, const void* address, const ImageWindow& w, int channels, int pixels, int swizzle) {
  const int64_t bytes = type == MapType::kU8 ? 1 : type == MapType::kF32 || type == MapType::kU32 ? 4 : 2;
  const std::array<uint64_t, 4> extents{uint64_t(w.channels), uint64_t(w.width), uint64_t(w.height),
                                        uint64_t(w.images)};
  const std::array<uint64_t, 3> strides{uint64_t(w.channels * bytes), uint64_t(w.width * w.channels * bytes),
                                        uint64_t(w.height * w.width * w.channels * bytes)};
  const std::array<int, 2> lower{w.lower_w, w.lower_h}, upper{w.upper_w, w.upper_h};
  const std::array<uint32_t, 4> steps{1, uint32_t(w.stride_w), uint32_t(w.stride_h), 1};
  constexpr int kPromoteL2 = 2;  // to 128 bytes
  const int pattern = swizzle == 128 ? 3 : swizzle == 64 ? 2 : swizzle == 32 ? 1 : 0;
  TensorMap map;
  check(
      driver().tensor_map_encode_im2col(&map, int(type), 4, DevicePointer(address), extents.data(), strides.data(),
                                        lower.data(), upper.data(), unsigned(channels), unsigned(pixels), steps.data(),
                                        0, pattern, kPromoteL2, 0),
      fmt::format("describing an image of {} x {} x {} x {} for bulk copies", w.images, w.height, w.width, w.channels));
  return map;
}

}  // namespace ridgeline::cuda
