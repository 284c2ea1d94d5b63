// y = x W^T for few rows of x by mma.sync, on sm_90 and sm_120: W12 products on sm_120, the certified head's two on sm_90,
// whose results are not numbers of y.
//
// A block has FRAGMENTS * 128 rows of W and one of `splits` parts of K; the blocks of a cluster have the parts of the same
// rows. One warp copies, eight multiply: it fills a ring in shared memory with bulk copies (the records of the rows, their
// escapes, the columns of x), they read what is theirs, decode it in registers and multiply 16 * FRAGMENTS rows of W each.
// At the end the blocks of a cluster read each other's sums through shared memory, each a share of them, and add them in
// the order of K. No block waits for another cluster, nothing is kept between launches.
//
// Order of every sum: K ascending within a part, parts ascending. Parts depend on K and `splits` alone, so a row of y has
// the same bits whatever other rows of x there are.
#pragma once
#include <cuda_bf16.h>

#include "ptx.cuh"
#include "record_formats.cuh"
#include "record_order.cuh"
#include "record_slots.cuh"

namespace record_gemm {

constexpr int kWarps = w12::kRecordWarps, kConsumers = 32 * kWarps, kThreads = kConsumers + 32;
constexpr int kMostSplits = 8;  // blocks of a cluster, on every device

struct Arguments {
  const unsigned char* records;
  const uint8_t* bases;  // of W12 and its view, as the two below
  const uint2* slots;
  const uint32_t* escapes;  // read where a slot names a list
  w12::RecordOrder order;
  int n, m, k_tiles, row_tiles, splits;
};

inline Arguments arguments(const void* records, int n, int k, int m, int splits) {
  const int k_tiles = (k + w12::kRecordColumns - 1) / w12::kRecordColumns, row_tiles = (n + w12::kRecordRows - 1) / w12::kRecordRows;
  return {static_cast<const unsigned char*>(records), nullptr, nullptr, nullptr, w12::record_order(row_tiles, k_tiles), n, m, k_tiles, row_tiles, splits};
}

inline Arguments w12_arguments(const void* records, const void* bases, const void* slots, const void* escapes, int n, int k, int m,
                               int splits) {
  Arguments args = arguments(records, n, k, m, splits);
  args.bases = static_cast<const uint8_t*>(bases), args.slots = static_cast<const uint2*>(slots);
  args.escapes = static_cast<const uint32_t*>(escapes);
  return args;
}

template <class Format, int N, int FRAGMENTS>
struct Stage {
  static constexpr int kRecords = FRAGMENTS * Format::kBytes, kX = 2 * N * w12::kRecordColumns;
  static constexpr int kSlots = Format::kHasEscapes ? 8 * kWarps * FRAGMENTS : 0;
  static constexpr int kBytes = kRecords + kX;  // multiples of 1,024, as the swizzle of x wants
};

// An escape into 16 rows x 32 columns of weights: registers of an even step at `even`, of the odd one after it at `odd`,
// 16 bytes a lane.
__device__ __forceinline__ void put_escape(uint32_t entry, uint32_t even, uint32_t odd) {
  const uint32_t to = (entry >> 19 & 1 ? odd : even) + 16 * (entry >> 21 & 31) + 2 * (entry >> 16 & 7);
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(uint16_t(entry)) : "memory");
}

// The escapes of steps 2 HALF and 2 HALF + 1 over the registers decoded, by way of shared memory, since registers have no
// indices. `even` and `odd`: where this warp's words of planes A and E lay, which it has read.
template <int HALF>
__device__ __forceinline__ void patch(uint32_t (&a)[2][4], uint2 slot, const uint32_t* escapes, int lane, uint32_t even, uint32_t odd) {
  // An escape of these steps: bit 31, which a slot's other words have, is not set.
  const auto is_here = [](uint32_t entry) { return (entry & 0x80100000u) == uint32_t(HALF) << 20; };
  if (slot.x == w12::kNoEscape || !(w12::list_length(slot.x) || is_here(slot.x) || is_here(slot.y))) return;
  __syncwarp();
  ptx::write16(even + 16 * lane, make_uint4(a[0][0], a[0][1], a[0][2], a[0][3]));
  ptx::write16(odd + 16 * lane, make_uint4(a[1][0], a[1][1], a[1][2], a[1][3]));
  __syncwarp();
  w12::each_escape<32>(slot.x, slot.y, escapes, lane, [&](uint32_t entry) {
    if (is_here(entry)) put_escape(entry, even, odd);
  });
  __syncwarp();
  const uint4 first = ptx::read16(even + 16 * lane), second = ptx::read16(odd + 16 * lane);
  a[0][0] = first.x, a[0][1] = first.y, a[0][2] = first.z, a[0][3] = first.w;
  a[1][0] = second.x, a[1][1] = second.y, a[1][2] = second.z, a[1][3] = second.w;
}

// Two steps of one stage: fragments of x are read once for all rows of W.
template <int HALF, class Format, int N, int FRAGMENTS>
__device__ __forceinline__ void half_stage(float (&sums)[FRAGMENTS][N / 8][4], const typename Format::Words (&words)[FRAGMENTS],
                                           const typename Format::Row (&rows)[FRAGMENTS], const uint2 (&slots)[FRAGMENTS],
                                           uint32_t x_at, uint32_t words_at, const Arguments& args, int lane) {
  uint32_t a[FRAGMENTS][2][4];
#pragma unroll
  for (int f = 0; f < FRAGMENTS; ++f) {
    Format::fragment(words[f], 2 * HALF, rows[f], a[f][0]);
    Format::fragment(words[f], 2 * HALF + 1, rows[f], a[f][1]);
    if constexpr (Format::kHasEscapes)
      patch<HALF>(a[f], slots[f], args.escapes, lane, words_at + Format::kWarpBytes * f, words_at + Format::kWarpBytes * f + formats::kWarpPlane);
  }
#pragma unroll
  for (int t = 0; t < N / 8; ++t) {
    uint32_t x[4];
    ptx::read_fragments(x, x_at + 1024 * t + 128 * (lane & 7) + (((4 * HALF + (lane >> 3)) ^ (lane & 7)) << 4));
#pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f) ptx::warp_product(sums[f][t], a[f][0], x[0], x[1]);
#pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f) ptx::warp_product(sums[f][t], a[f][1], x[2], x[3]);
  }
}

// What a thread holds at the end: register i of N / 2 of fragment f is row n, column m of y.
template <int FRAGMENTS>
__device__ __forceinline__ int row_of(int tile, int warp, int lane, int f, int i) {
  return (tile * kWarps * FRAGMENTS + warp * FRAGMENTS + f) * 16 + lane / 4 + 8 * (i >> 1 & 1);
}
__device__ __forceinline__ int column_of(int lane, int i) { return 8 * (i >> 2) + 2 * (lane & 3) + (i & 1); }

template <class Format, int N, int FRAGMENTS, int STAGES, int BLOCKS, class Output>
__global__ void __launch_bounds__(kThreads, BLOCKS)
    kernel(const Arguments args, const Output output, const __grid_constant__ CUtensorMap x_map) {
  using S = Stage<Format, N, FRAGMENTS>;
  static_assert(Format::kPieces == 1, "records are read whole");
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint64_t barriers[2 * STAGES];  // full, empty
  __shared__ __align__(16) uint2 slots[Format::kHasEscapes ? STAGES : 1][FRAGMENTS * kWarps];
  if (output.is_off()) return;
  const uint32_t ring = ptx::shared_address(shared), full = ptx::shared_address(barriers), empty = full + 8 * STAGES;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int tile = blockIdx.x / args.splits, part = blockIdx.x % args.splits;
  const int begin = args.k_tiles * part / args.splits, end = args.k_tiles * (part + 1) / args.splits;

  // The copying thread makes the barriers, and fills the ring before the others have seen them.
  const auto copy = [&](int column, int stage) {
    const int present = min(FRAGMENTS, args.row_tiles - tile * FRAGMENTS);  // the last tile may lack a record
    const uint32_t at = ring + stage * S::kBytes, barrier = full + 8 * stage;
    ptx::barrier_expect(barrier, present * (Format::kBytes + S::kSlots / FRAGMENTS) + S::kX);
    ptx::tile_copy(at + S::kRecords, &x_map, column * w12::kRecordColumns, 0, barrier);
    for (int f = 0; f < present; ++f) {
      const int64_t record = args.order.record(tile * FRAGMENTS + f, column);
      ptx::bulk_copy(at + f * Format::kBytes, args.records + record * Format::kBytes, Format::kBytes, barrier);
      if constexpr (Format::kHasEscapes)
        ptx::bulk_copy(ptx::shared_address(&slots[stage][f * kWarps]), args.slots + record * kWarps, 8 * kWarps, barrier);
    }
  };
  if (threadIdx.x == kConsumers) {
    for (int i = 0; i < 2 * STAGES; ++i) ptx::barrier_init(full + 8 * i, i < STAGES ? 1 : kConsumers);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int stage = 0; stage < min(STAGES, end - begin); ++stage) copy(begin + stage, stage);
  }
  __syncthreads();

  float sums[FRAGMENTS][N / 8][4] = {};
  if (warp == kWarps) {
    if (lane == 0) {
      for (int column = begin + STAGES, stage = 0, parity = 0; column < end; ++column) {
        ptx::barrier_wait(empty + 8 * stage, parity);
        copy(column, stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    __syncwarp();
  } else {
    // All rows of a warp lie in one record.
    const int which = warp * FRAGMENTS / kWarps, first = warp * FRAGMENTS % kWarps, row_tile = tile * FRAGMENTS + which;
    const bool is_present = row_tile < args.row_tiles;
    const uint32_t offset = which * Format::kBytes;
    typename Format::Row rows[FRAGMENTS];
#pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f)
      if constexpr (Format::kHasEscapes)
        rows[f].load(args.bases + (is_present ? row_tile : 0) * w12::kRecordRows + 16 * (first + f) + lane / 4);
    int stage = 0, parity = 0;
#pragma unroll 1
    for (int column = begin; column < end; ++column) {
      ptx::barrier_wait(full + 8 * stage, parity);
      const uint32_t at = ring + stage * S::kBytes;
      typename Format::Words words[FRAGMENTS];
      uint2 found[FRAGMENTS];
#pragma unroll
      for (int f = 0; f < FRAGMENTS; ++f) {
        Format::load(words[f], ptx::SharedWords{at + offset + Format::kWarpBytes * (first + f) + 16 * lane}, lane);
        found[f] = Format::kHasEscapes && is_present ? slots[Format::kHasEscapes ? stage : 0][warp * FRAGMENTS + f]
                                                     : make_uint2(w12::kNoEscape, w12::kNoEscape);
      }
      const uint32_t words_at = at + offset + Format::kWarpBytes * first;
      half_stage<0, Format, N>(sums, words, rows, found, at + S::kRecords, words_at, args, lane);
      half_stage<1, Format, N>(sums, words, rows, found, at + S::kRecords, words_at, args, lane);
      ptx::barrier_arrive_for_copy(empty + 8 * stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }

  constexpr int kPerFragment = N / 2, kNumbers = FRAGMENTS * kPerFragment;
  if (args.splits > 1) {
    // Every copy has arrived and has been read: the ring's memory is free.
    if (warp < kWarps) {
      asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
      float* const mine = reinterpret_cast<float*>(shared) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) mine[i * kConsumers] = sums[i / kPerFragment][i % kPerFragment / 4][i % 4];
    }
    ptx::cluster_meet();
    if (warp < kWarps) {
#pragma unroll 1
      for (int i = kNumbers * part / args.splits; i < kNumbers * (part + 1) / args.splits; ++i) {
        const uint32_t from = ring + 4 * (i * kConsumers + threadIdx.x);
        float parts[kMostSplits];
#pragma unroll
        for (int p = 0; p < kMostSplits; ++p) parts[p] = p < args.splits ? ptx::read_remote(from, p) : 0.0f;
        float sum = parts[0];
#pragma unroll
        for (int p = 1; p < kMostSplits; ++p) sum = p < args.splits ? sum + parts[p] : sum;
        const int f = i / kPerFragment, r = i % kPerFragment;
        output.put(row_of<FRAGMENTS>(tile, warp, lane, f, r), column_of(lane, r), sum, args);
      }
    }
    ptx::cluster_meet();  // the others have read this block's memory
    return;
  }
  if (warp < kWarps) output.template put_all<N, FRAGMENTS>(tile, warp, lane, sums, args, shared);
}

// y, BF16, (M, N).
struct Plain {
  __nv_bfloat16* y;
  const __nv_bfloat16* bias = nullptr;  // of every column of y

  __device__ __forceinline__ float bias_of(int n, const Arguments& args) const {
    return bias && n < args.n ? __bfloat162float(bias[n]) : 0.0f;
  }
  __device__ __forceinline__ void write(int n, int m, float number, const Arguments& args) const {
    if (n < args.n && m < args.m) y[int64_t(m) * args.n + n] = __float2bfloat16_rn(number);
  }
  __device__ __forceinline__ void put(int n, int m, float sum, const Arguments& args) const { write(n, m, sum + bias_of(n, args), args); }

  template <int N, int FRAGMENTS>
  __device__ __forceinline__ void put_all(int tile, int warp, int lane, const float (&sums)[FRAGMENTS][N / 8][4], const Arguments& args,
                                          unsigned char*) const {
#pragma unroll
    for (int f = 0; f < FRAGMENTS; ++f) {
      // A thread's numbers of a fragment are of two rows of W: registers 0, 1 and 2, 3 of every four.
      const float biases[2] = {bias_of(row_of<FRAGMENTS>(tile, warp, lane, f, 0), args), bias_of(row_of<FRAGMENTS>(tile, warp, lane, f, 2), args)};
#pragma unroll
      for (int i = 0; i < N / 2; ++i)
        write(row_of<FRAGMENTS>(tile, warp, lane, f, i), column_of(lane, i), sums[f][i / 4][i % 4] + biases[i >> 1 & 1], args);
    }
  }
  __device__ __forceinline__ bool is_off() const { return false; }
};

template <class Format, int N, int FRAGMENTS, int STAGES, int BLOCKS, class Output>
cudaError_t launch(const Arguments& args, const Output& output, const void* x, int k, cudaStream_t stream) {
  auto* run = kernel<Format, N, FRAGMENTS, STAGES, BLOCKS, Output>;
  constexpr int kRing = STAGES * Stage<Format, N, FRAGMENTS>::kBytes, kSums = 2 * N * FRAGMENTS * kConsumers;
  constexpr int kBytes = kRing > kSums ? kRing : kSums;
  if (args.splits < 1 || args.splits > kMostSplits || args.splits > args.k_tiles) return cudaErrorInvalidConfiguration;
  cudaError_t error = cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  CUtensorMap map;
  if (!ptx::map_rows(&map, x, k, args.m, N)) return cudaErrorInvalidValue;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = unsigned(args.splits), cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned((args.row_tiles + FRAGMENTS - 1) / FRAGMENTS * args.splits));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, run, args, output, map);
}

}  // namespace record_gemm
