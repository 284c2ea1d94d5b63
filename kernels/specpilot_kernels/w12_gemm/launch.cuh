// Which of the kernels runs, and how it is launched, for every form of records. A launch asks the device nothing that it has
// asked before.
#pragma once
#include <atomic>

#include "few_rows.cuh"
#include "ring.cuh"

namespace w12 {

constexpr int kMostDevices = 64;
constexpr int kManyRowTiles = 600;  // as in plan.py
enum Kernel { kFewRows, kSplit, kStream };  // specpilot_kernels/w12_gemm/plan.py

// What is asked once for a device, and for each kernel on it.
struct Device {
  int index, multiprocessors;
};

inline cudaError_t current_device(Device* device) {
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

// Shared memory above 48 KB has to be asked for: once, the most of all launches; `RESIDENT` blocks must fit on a
// multiprocessor where blocks wait for each other.
template <auto KERNEL, int THREADS, int RESIDENT>
cudaError_t prepare(const Device& device, int bytes) {
  static std::atomic<bool> is_ready[kMostDevices];
  if (is_ready[device.index].load(std::memory_order_acquire)) return cudaSuccess;
  cudaError_t error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  int resident = 0;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, KERNEL, THREADS, bytes);
  if (error != cudaSuccess) return error;
  if (resident < RESIDENT) return cudaErrorLaunchOutOfResources;
  is_ready[device.index].store(true, std::memory_order_release);
  return cudaSuccess;
}

// A tensor map of x: boxes of N rows and 64 columns. The last ones made are kept: x mostly lies where it lay before.
inline cudaError_t map_of(const Arguments& args, int rows, CUtensorMap* map) {
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

template <class Format, int T, int WARPS, int BLOCKS, int SPLIT = 1>
cudaError_t few_rows(const Device& device, const Arguments& args, cudaStream_t stream) {
  using F = FewRows<Format, T, WARPS, SPLIT>;
  if (args.k % kRecordColumns) return cudaErrorInvalidValue;
  constexpr auto kKernel = few_rows_product<Format, T, WARPS, BLOCKS, SPLIT>;
  if (cudaError_t error = prepare<kKernel, F::kThreads, 1>(device, F::kBytes); error != cudaSuccess) return error;
  return launch<kKernel>((args.n + 15) / 16 * SPLIT, F::kThreads, F::kBytes, SPLIT, stream, args);
}

// W12_STAGES: with records of W12, as measured; smaller ones fill the same memory.
template <class Format, int N, int W12_STAGES, int BLOCKS, bool STREAM = false>
cudaError_t ring(const Device& device, Arguments args, int split, cudaStream_t stream) {
  constexpr int kX = N * kRowBytes, kStages = W12_STAGES * (kRecordBytes + kX) / (Format::kBytes + kX);
  using R = Ring<Format, N, kStages, BLOCKS>;
  constexpr auto kKernel = ring_product<Format, N, kStages, BLOCKS, STREAM>;
  const int bytes = R::bytes(split), most_bytes = STREAM ? bytes : R::kBytesAtMost;
  if (split > args.k_tiles) return cudaErrorInvalidValue;
  if (cudaError_t error = prepare<kKernel, R::kThreads, STREAM ? BLOCKS : 1>(device, most_bytes); error != cudaSuccess) return error;
  CUtensorMap map;
  if (cudaError_t error = map_of(args, N, &map); error != cudaSuccess) return error;
  const int blocks = STREAM ? min(device.multiprocessors * BLOCKS, args.row_tiles) : args.row_tiles * split;
  args.each = args.row_tiles * args.k_tiles / blocks, args.longer = args.row_tiles * args.k_tiles % blocks;
  return launch<kKernel>(blocks, R::kThreads, bytes, split, stream, args, map);
}

// Tiles, stages and blocks of a multiprocessor as they were fastest on an H200 with W12 (NOTES.md).
template <class Format, int MOST_ROWS>
cudaError_t run(Kernel kernel, int split, int warps, const Device& d, const Arguments& args, cudaStream_t s) {
  const bool is_alone = args.row_tiles * split <= d.multiprocessors && split <= 2;  // every block has a multiprocessor of its own
  if (kernel == kFewRows) {
    if (args.m > 16) return cudaErrorInvalidValue;
    if (split == 2 && warps == 4) return args.m <= 8 ? few_rows<Format, 1, 4, 6, 2>(d, args, s) : few_rows<Format, 2, 4, 5, 2>(d, args, s);
    if (split > 1) return cudaErrorInvalidValue;
    if (warps == 6) return args.m <= 8 ? few_rows<Format, 1, 6, 4>(d, args, s) : few_rows<Format, 2, 6, 3>(d, args, s);
    if (args.m > 8) return cudaErrorInvalidValue;
    if (warps == 4) return few_rows<Format, 1, 4, 6>(d, args, s);
    return warps == 8 ? few_rows<Format, 1, 8, 3>(d, args, s) : cudaErrorInvalidValue;
  }
  if (kernel == kSplit) {
    if (args.m <= 8) return split > 2 ? ring<Format, 8, 3, 3>(d, args, split, s) : ring<Format, 8, 5, 2>(d, args, split, s);
    if (args.m <= 16) {
      if (is_alone) return split > 1 ? ring<Format, 16, 6, 1>(d, args, split, s) : ring<Format, 16, 5, 2>(d, args, 1, s);
      return ring<Format, 16, 3, 3>(d, args, split, s);
    }
    if (args.m <= 32) {
      if (is_alone) return ring<Format, 32, 6, 1>(d, args, split, s);
      return args.row_tiles < kManyRowTiles ? ring<Format, 32, 4, 2>(d, args, split, s) : ring<Format, 32, 5, 2>(d, args, 1, s);
    }
    if constexpr (MOST_ROWS > 32) {
      if (is_alone) return args.m <= 48 ? ring<Format, 48, 6, 1>(d, args, split, s) : ring<Format, 64, 6, 1>(d, args, split, s);
      return args.m <= 48 ? ring<Format, 48, 4, 2>(d, args, split, s) : ring<Format, 64, 4, 2>(d, args, split, s);
    }
  } else {
    if (args.m <= 8) return ring<Format, 8, 4, 2, true>(d, args, 1, s);
    if (args.m <= 16) return ring<Format, 16, 3, 2, true>(d, args, 1, s);
    if (args.m <= 32) return ring<Format, 32, 4, 2, true>(d, args, 1, s);
    if constexpr (MOST_ROWS > 32)
      return args.m <= 48 ? ring<Format, 48, 4, 2, true>(d, args, 1, s) : ring<Format, 64, 4, 2, true>(d, args, 1, s);
  }
  return cudaErrorInvalidValue;
}

// plan: the kernel, plus 16 times the number of blocks that share the same rows' columns, plus 256 times the warps of a block
// (of few rows).
template <class Format, int MOST_ROWS>
cudaError_t run(int plan, const Arguments& args, cudaStream_t stream) {
  const int kernel = plan % 16, split = plan / 16 % 16, warps = plan / 256;
  const bool is_aligned = reinterpret_cast<uintptr_t>(args.x) % 16 == 0;  // copies of 16 bytes
  if (!is_aligned || args.m < 1 || args.m > MOST_ROWS || args.n < 1 || args.k < 8 || args.k % 8 || kernel > kStream || split < 1 ||
      split > kMostRanks)
    return cudaErrorInvalidValue;
  Device device;
  if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  return run<Format, MOST_ROWS>(Kernel(kernel), split, warps, device, args, stream);
}

// What all forms have. A stream needs room for 2 * multiprocessors * 64 * 128 numbers and 2 * multiprocessors * 8 flags, which hold
// anything but `mark`.
inline Arguments product_arguments(const void* records, const void* x, void* y, void* partials, void* flags, uint64_t mark, int n, int k,
                                   int m) {
  Arguments args{};
  args.records = static_cast<const uint4*>(records);
  args.x = static_cast<const __nv_bfloat16*>(x);
  args.y = static_cast<__nv_bfloat16*>(y);
  args.partials = static_cast<float4*>(partials);
  args.flags = static_cast<uint64_t*>(flags), args.mark = mark;
  args.n = n, args.k = k, args.m = m;
  args.k_tiles = (k + kRecordColumns - 1) / kRecordColumns, args.row_tiles = (n + kRecordRows - 1) / kRecordRows;
  args.order = record_order(args.row_tiles, args.k_tiles);
  return args;
}

}  // namespace w12
