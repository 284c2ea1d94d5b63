// y = x W^T with W12 weights, 1 to 64 rows of x, on Hopper: which kernel runs, and how it is launched. A launch asks the
// device nothing that it has asked before.
#include <atomic>

#include "few_rows.cuh"
#include "read.cuh"
#include "ring.cuh"

namespace {
using namespace w12;

constexpr int kMostDevices = 64;
constexpr int kManyRowTiles = 200;  // from here on larger blocks are faster
enum Kernel { kFewRows, kSplitRing, kStream };  // specpilot_kernels/w12_gemm/plan.py

// What is asked once for a device, and for each kernel on it.
struct Device {
  int index, multiprocessors;
};

cudaError_t current_device(Device* device) {
  static std::atomic<int> counts[kMostDevices];
  cudaError_t error = cudaGetDevice(&device->index);
  if (error != cudaSuccess) return error;
  if (device->index >= kMostDevices) return cudaErrorInvalidDevice;
  int count = counts[device->index].load(std::memory_order_relaxed);
  if (!count) {
    error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device->index);
    if (error != cudaSuccess) return error;
    counts[device->index].store(count, std::memory_order_relaxed);
  }
  device->multiprocessors = count;
  return cudaSuccess;
}

// Shared memory above 48 KB has to be asked for; `resident` blocks must fit on a multiprocessor where blocks wait for
// each other.
template <auto KERNEL, int THREADS, int BYTES, int RESIDENT>
cudaError_t prepare(const Device& device) {
  static std::atomic<bool> is_ready[kMostDevices];
  if (is_ready[device.index].load(std::memory_order_acquire)) return cudaSuccess;
  cudaError_t error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (error != cudaSuccess) return error;
  int resident = 0;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, KERNEL, THREADS, BYTES);
  if (error != cudaSuccess) return error;
  if (resident < RESIDENT) return cudaErrorLaunchOutOfResources;
  is_ready[device.index].store(true, std::memory_order_release);
  return cudaSuccess;
}

// A tensor map of x: boxes of N rows and 64 columns. The last ones made are kept: x mostly lies where it lay before.
cudaError_t map_of(const Arguments& args, int rows, CUtensorMap* map) {
  struct Kept {
    const void* x = nullptr;
    int k = 0, m = 0, rows = 0;
    CUtensorMap map;
  };
  static thread_local Kept all[32];
  Kept& kept = all[(reinterpret_cast<uintptr_t>(args.x) >> 9 ^ args.k >> 6 ^ args.m) & 31];
  if (kept.x != args.x || kept.k != args.k || kept.m != args.m || kept.rows != rows) {
    kept.x = nullptr;
    if (!ptx::map_rows(&kept.map, args.x, args.k, args.m, rows)) return cudaErrorInvalidValue;
    kept.x = args.x, kept.k = args.k, kept.m = args.m, kept.rows = rows;
  }
  *map = kept.map;
  return cudaSuccess;
}

// One after the other, in clusters of `split` blocks.
template <auto KERNEL, class... Parameters>
cudaError_t launch(int blocks, int threads, int bytes, int split, cudaStream_t stream, const Parameters&... parameters) {
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {unsigned(split), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = split > 1;
  return cudaLaunchKernelEx(&config, KERNEL, parameters...);
}

template <int T, int WARPS, int BLOCKS, int SPLIT>
cudaError_t few_rows(const Device& device, const Arguments& args, cudaStream_t stream) {
  using F = FewRows<T, 1, WARPS, 2, SPLIT>;
  if (args.k % kRecordColumns) return cudaErrorInvalidValue;
  constexpr auto kKernel = w12_few_rows<T, 1, WARPS, 2, BLOCKS, SPLIT>;
  if (cudaError_t error = prepare<kKernel, F::kThreads, F::kBytes, 1>(device); error != cudaSuccess) return error;
  return launch<kKernel>((args.n + F::kRows - 1) / F::kRows * SPLIT, F::kThreads, F::kBytes, SPLIT, stream, args);
}

template <int N, int TILES, int STAGES, int BLOCKS, bool STREAM>
cudaError_t ring(const Device& device, const Arguments& args, int split, cudaStream_t stream) {
  using R = Ring<N, TILES, STAGES>;
  constexpr auto kKernel = w12_ring<N, TILES, STAGES, BLOCKS, STREAM>;
  if (cudaError_t error = prepare<kKernel, R::kThreads, R::kBytes, STREAM ? BLOCKS : 1>(device); error != cudaSuccess) return error;
  CUtensorMap map;
  if (cudaError_t error = map_of(args, N, &map); error != cudaSuccess) return error;
  const int groups = (args.row_tiles + TILES - 1) / TILES;
  const int blocks = STREAM ? min(device.multiprocessors * BLOCKS, groups * args.k_tiles) : groups * split;
  return launch<kKernel>(blocks, R::kThreads, R::kBytes, split, stream, args, map);
}

cudaError_t run(Kernel kernel, int split, const Device& d, const Arguments& args, cudaStream_t s) {
  if (kernel == kFewRows) {
    if (args.m > 16) return cudaErrorInvalidValue;
    if (args.m > 8) return split == 2 ? few_rows<2, 4, 5, 2>(d, args, s) : cudaErrorInvalidValue;
    if (split == 2) return few_rows<1, 4, 6, 2>(d, args, s);
    return args.row_tiles > kManyRowTiles ? few_rows<1, 8, 3, 1>(d, args, s) : few_rows<1, 6, 4, 1>(d, args, s);
  }
  if (kernel == kSplitRing) {
    if (args.m <= 16) return ring<16, 1, 4, 3, false>(d, args, split, s);
    if (args.m <= 32) return ring<32, 2, 5, 1, false>(d, args, split, s);
    if (args.m <= 48) return ring<48, 2, 5, 1, false>(d, args, split, s);
    return ring<64, 2, 5, 1, false>(d, args, split, s);
  }
  if (args.m <= 8) return ring<8, 1, 4, 3, true>(d, args, 1, s);
  if (args.m <= 16) return ring<16, 1, 4, 3, true>(d, args, 1, s);
  if (args.m <= 32) return ring<32, 1, 5, 2, true>(d, args, 1, s);
  if (args.m <= 48) return ring<48, 1, 5, 2, true>(d, args, 1, s);
  return ring<64, 1, 4, 2, true>(d, args, 1, s);
}

}  // namespace

// plan: the kernel, and times 16 the number of blocks that share the same rows' columns. partials has room for
// 3 * multiprocessors * 32 * 256 numbers, flags for 3 * multiprocessors, all zero. Returns a cudaError_t.
extern "C" int specpilot_w12_gemm_sm90(const void* records, const void* bases, const void* slots, const void* escapes,
                                       const void* starts, const void* x, void* y, void* partials, void* flags, int n,
                                       int k, int m, int plan, void* stream) {
  const int kernel = plan % 16, split = plan / 16;
  const Arguments args{static_cast<const uint4*>(records),
                       static_cast<const uint8_t*>(bases),
                       static_cast<const uint32_t*>(slots),
                       static_cast<const uint32_t*>(escapes),
                       static_cast<const uint32_t*>(starts),
                       static_cast<const __nv_bfloat16*>(x),
                       static_cast<__nv_bfloat16*>(y),
                       static_cast<float*>(partials),
                       static_cast<int*>(flags),
                       n,
                       k,
                       m,
                       (k + kRecordColumns - 1) / kRecordColumns,
                       (n + kRecordRows - 1) / kRecordRows};
  const bool is_aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;  // copies of 16 bytes
  if (!is_aligned || m < 1 || m > 64 || n < 1 || k < 8 || k % 8 || kernel > kStream || split < 1 || split > 8)
    return cudaErrorInvalidValue;
  Device device;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  return run(Kernel(kernel), split, device, args, static_cast<cudaStream_t>(stream));
}

// The bare read of the same records, for benches: `blocks` blocks by plain loads, 1, 2 or 4 records ahead, or by a ring of
// bulk copies (ahead 0).
extern "C" int specpilot_w12_read_sm90(const void* records, int64_t num_records, void* sink, int blocks, int ahead,
                                       void* stream) {
  auto* s = static_cast<cudaStream_t>(stream);
  auto* r = static_cast<const uint4*>(records);
  auto* o = static_cast<uint32_t*>(sink);
  constexpr int kStages = 6, kBytes = kStages * kRecordBytes;
  if (ahead == 1) {
    w12_read<1><<<blocks, 256, 0, s>>>(r, num_records, o);
  } else if (ahead == 2) {
    w12_read<2><<<blocks, 256, 0, s>>>(r, num_records, o);
  } else if (ahead == 4) {
    w12_read<4><<<blocks, 256, 0, s>>>(r, num_records, o);
  } else {
    Device device;
    if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
    if (cudaError_t error = prepare<w12_read_ring<kStages>, 288, kBytes, 1>(device); error != cudaSuccess) return error;
    w12_read_ring<kStages><<<blocks, 288, kBytes, s>>>(r, num_records, o);
  }
  return cudaGetLastError();
}
