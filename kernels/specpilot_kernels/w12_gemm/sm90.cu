// y = x W^T with W12 weights, 1 to 64 rows of x, on Hopper.
//
// Stream-K: the records of W (128 rows x 64 columns), tile of 128 rows by tile, are shared out evenly among G blocks that
// are all resident. A block first does the records of the tile that it begins and does not finish, publishes these sums,
// and then the others; who finishes a tile adds what blocks before it published, columns ascending.
//
// A block has one warp that copies and eight that multiply, 16 rows of W each. The copying warp fills a ring in shared
// memory with bulk copies: a record, its escapes, and the columns of x that belong to it (rows 16 bytes longer than their
// numbers, so that ldmatrix has no bank conflicts). The other warps read 48 bytes a lane and record, decode them in
// registers and multiply with mma.sync; they wait for the copies and for nothing else.
//
// Order of every sum: K ascending, cut at places that depend on N, K and G. So a row of y has the same bits whatever the
// timing, and whatever other rows there are.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "../include/w12_decode.cuh"

namespace {
constexpr int kWarps = 8;
constexpr int kConsumers = 32 * kWarps;
constexpr int kThreads = kConsumers + 32;
constexpr int kRowBytes = 2 * w12::kRecordColumns;
constexpr int kMostRowsByWarps = 16;
constexpr uint32_t kNone = 0xFFFFFFFFu, kSeveral = 0xFFFFFFFEu;

struct Arguments {
  const uint4* records;
  const uint8_t* bases;
  const uint32_t* slots;    // for each warp of each record its escape, kNone, or kSeveral
  const uint32_t* escapes;  // all of them, read where a warp has several
  const uint32_t* starts;
  const __nv_bfloat16* x;
  __nv_bfloat16* y;
  float* partials;  // [G][N / 2][256], sums of tiles that are not finished
  int* flags;       // [G], 1 while a block's partials wait to be read; 0 before and after the launch
  int n, k, m, k_tiles, num_records;
};

// Bytes: a multiple of 16. Counted at the barrier when they have arrived.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ __forceinline__ uint4 read16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from));
  return v;
}

__device__ __forceinline__ void wait_for(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ uint4 load_weights(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// D += A B: A 16 x 16 weights, B 16 x 8 numbers of x.
__device__ __forceinline__ void warp_product(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void read_fragments(uint32_t* b, uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(address));
}

// The same by a warpgroup for more rows of x: A 64 x 16 weights, B 16 x N from shared memory.
template <int N>
struct Product;
template <>
struct Product<32> {
  static __device__ __forceinline__ void run(float (&d)[4][4], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <>
struct Product<48> {
  static __device__ __forceinline__ void run(float (&d)[6][4], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
        "{%24, %25, %26, %27}, %28, 1, 1, 1, 0;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <>
struct Product<64> {
  static __device__ __forceinline__ void run(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};

__device__ __forceinline__ void product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void product_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }

// K-major, 128-byte swizzle: groups of 8 rows are 1,024 bytes apart.
__device__ __forceinline__ uint64_t describe(uint32_t address) {
  return uint64_t((address & 0x3FFFF) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int s) { return s == 0 ? v.x : s == 1 ? v.y : s == 2 ? v.z : v.w; }

// Put an escape of this warp into the lane and register it belongs to; a holds steps 2 half and 2 half + 1.
__device__ __forceinline__ void patch(uint32_t (&a)[2][4], uint32_t entry, int lane, int half) {
  if (int(entry >> 21 & 31) != lane) return;
  const uint32_t place = entry >> 17 & 15;  // step, register
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (place == 8 * half + i) a[i / 4][i % 4] = w12::put_half(a[i / 4][i % 4], entry >> 16 & 1, entry & 0xFFFFu);
}

constexpr int kRecordBytes = 4 * w12::kRecordWords, kSlotBytes = 4 * kWarps;

template <int N>
constexpr int kStageBytes = kRecordBytes + N * kRowBytes;  // multiples of 1,024, as the swizzle of x wants

template <int N, int STAGES, int BLOCKS>
__global__ void __launch_bounds__(kThreads, BLOCKS) w12_gemm(const Arguments args, const __grid_constant__ CUtensorMap x_map) {
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint64_t barriers[2 * STAGES];  // full, empty
  __shared__ __align__(16) uint32_t slots[STAGES][kWarps];
  constexpr bool kByWarps = N <= kMostRowsByWarps;
  constexpr int kStage = kStageBytes<N>, kXAt = kRecordBytes;
  const uint32_t ring = uint32_t(__cvta_generic_to_shared(shared));
  const uint32_t full = uint32_t(__cvta_generic_to_shared(barriers)), empty = full + 8 * STAGES;

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int begin = int(int64_t(args.num_records) * blockIdx.x / gridDim.x);
  const int end = int(int64_t(args.num_records) * (blockIdx.x + 1) / gridDim.x);
  const int count = end - begin;
  const int tail = min(count, end % args.k_tiles);  // records of the tile that is not finished here; they come first

  if (threadIdx.x < 2 * STAGES)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(full + 8 * threadIdx.x),
                 "r"(threadIdx.x < STAGES ? 1 : kWarps));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();

  if (warp == kWarps) {
    int record = tail ? end - tail : begin, column = record % args.k_tiles;
    if (lane) return;
    for (int i = 0, stage = 0, parity = 1; i < count; ++i) {
      if (i == tail && tail) record = begin, column = record % args.k_tiles;
      wait_for(empty + 8 * stage, parity);
      const uint32_t at = ring + stage * kStage, barrier = full + 8 * stage;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kStage + kSlotBytes) : "memory");
      bulk_copy(at, args.records + int64_t(record) * (w12::kRecordWords / 4), kRecordBytes, barrier);
      bulk_copy(uint32_t(__cvta_generic_to_shared(slots[stage])), args.slots + int64_t(record) * kWarps, kSlotBytes, barrier);
      // Rows and columns outside x arrive as zeros.
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(at + kXAt),
                   "l"(&x_map), "r"(column * w12::kRecordColumns), "r"(0), "r"(barrier) : "memory");
      if (++stage == STAGES) stage = 0, parity ^= 1;
      ++record;
      if (++column == args.k_tiles) column = 0;
    }
    return;
  }

  float acc[N / 8][4] = {};
  uint32_t low = 0, high = 0;
  int stage = 0, parity = 0;

  // `length` records of one tile, the first of them `record`.
  auto run = [&](int length, int record) {
    const uint8_t* const b = args.bases + record / args.k_tiles * w12::kRecordRows + 16 * warp + lane / 4;
    low = w12::base_pair(b[0]);
    high = w12::base_pair(b[8]);
    constexpr int kSets = kByWarps ? 2 : 1;  // even and odd steps apart, so that few products wait less for each other
    float sums[kSets][N / 8][4] = {};
    uint32_t a[2][2][4];  // half a record each; one is written while the tensor cores read the other
#pragma unroll 1
    for (int i = 0; i < length; ++i) {
      wait_for(full + 8 * stage, parity);
      const uint32_t at = ring + stage * kStage;
      uint4 weights[3];
#pragma unroll
      for (int plane = 0; plane < 3; ++plane) weights[plane] = read16(at + 4096 * plane + 16 * threadIdx.x);
      const uint32_t found = slots[stage][warp];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        auto& now = a[half];
#pragma unroll
        for (int s = 0; s < 2; ++s)
          w12::decode_fragment(word_of(weights[0], 2 * half + s), word_of(weights[1], 2 * half + s),
                               word_of(weights[2], 2 * half + s), low, high, now[s]);
        if (found != kNone) {
          if (found != kSeveral) {
            patch(now, found, lane, half);
          } else {
            const uint32_t last = args.starts[record + i + 1];
            for (uint32_t e = args.starts[record + i]; e < last; e += 32) {
              const uint32_t mine = e + lane < last ? args.escapes[e + lane] : kNone;
              uint32_t owned = __ballot_sync(0xFFFFFFFFu, e + lane < last && mine >> 26 == warp);
              for (; owned; owned &= owned - 1) patch(now, __shfl_sync(0xFFFFFFFFu, mine, __ffs(owned) - 1), lane, half);
            }
          }
        }
        if constexpr (kByWarps) {
#pragma unroll
          for (int t = 0; t < N / 8; ++t) {
            uint32_t x[4];
            read_fragments(x, at + kXAt + 1024 * t + 128 * (lane & 7) + (((4 * half + (lane >> 3)) ^ (lane & 7)) << 4));
            warp_product(sums[0][t], now[0], x[0], x[1]);
            warp_product(sums[kSets - 1][t], now[1], x[2], x[3]);
          }
        } else {
          product_fence();
#pragma unroll
          for (int s = 0; s < 2; ++s) Product<N>::run(sums[0], now[s], describe(at + kXAt + 32 * (2 * half + s)));
          product_commit();
          product_wait<1>();  // of the half before, whose registers are written next
        }
      }
      if constexpr (kByWarps) {
        __syncwarp();
        if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + 8 * stage) : "memory");
      } else if (i > 0 && lane == 0) {
        // The products of the record before are done, those of this one are not.
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + 8 * (stage ? stage - 1 : STAGES - 1)) : "memory");
      }
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    if constexpr (!kByWarps) {
      product_wait<0>();
      if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + 8 * (stage ? stage - 1 : STAGES - 1)) : "memory");
    }
#pragma unroll
    for (int t = 0; t < N / 8; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[t][i] = kSets == 2 ? sums[0][t][i] + sums[kSets - 1][t][i] : sums[0][t][i];
  };
  auto consumers_meet = [] { asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory"); };

  if (tail) {
    run(tail, end - tail);
    float* const to = args.partials + int64_t(blockIdx.x) * (N / 2) * kConsumers + threadIdx.x;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) __stcg(to + i * kConsumers, acc[i / 4][i % 4]);
    __threadfence();
    consumers_meet();
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(args.flags + blockIdx.x) : "memory");
  }
  for (int done = tail, record = begin; done < count;) {
    const int tile = record / args.k_tiles, length = (tile + 1) * args.k_tiles - record;
    run(length, record);
    if (record % args.k_tiles) {
      // Blocks that did the tile's columns before ours, in their order.
      const int64_t start = int64_t(tile) * args.k_tiles;
      int other = int(start * gridDim.x / args.num_records);
      while (int64_t(args.num_records) * (other + 1) / gridDim.x <= start) ++other;
      const int num_others = int(blockIdx.x) - other;
      if (int(threadIdx.x) < num_others) {
        int flag;
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(flag) : "l"(args.flags + other + threadIdx.x) : "memory");
        while (!flag);
      }
      consumers_meet();
      const float* from = args.partials + int64_t(other) * (N / 2) * kConsumers + threadIdx.x;
      float before[N / 2];
#pragma unroll
      for (int i = 0; i < N / 2; ++i) before[i] = __ldcg(from + i * kConsumers);
#pragma unroll 4
      for (int p = 1; p < num_others; ++p) {
        from += (N / 2) * kConsumers;
#pragma unroll
        for (int i = 0; i < N / 2; ++i) before[i] += __ldcg(from + i * kConsumers);
      }
#pragma unroll
      for (int i = 0; i < N / 2; ++i) acc[i / 4][i % 4] = before[i] + acc[i / 4][i % 4];
      consumers_meet();
      if (int(threadIdx.x) < num_others) args.flags[other + threadIdx.x] = 0;
    }
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const int n = tile * w12::kRecordRows + 16 * warp + lane / 4 + 8 * (i >> 1 & 1), m = 8 * (i >> 2) + 2 * (lane & 3) + (i & 1);
      if (n < args.n && m < args.m) args.y[int64_t(m) * args.n + n] = __float2bfloat16_rn(acc[i / 4][i % 4]);
    }
    done += length;
    record += length;
  }
}

// The bare read: what the multiplication cannot be faster than. Same loads, same split among warps, no decoding.
template <int PREFETCH>
__global__ void __launch_bounds__(kConsumers) w12_read(const uint4* records, int64_t num_records, uint32_t* sink) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t step = gridDim.x;
  uint32_t seen = 0;
  for (int64_t record = blockIdx.x; record < num_records; record += step * PREFETCH) {
    uint4 v[PREFETCH][3];
#pragma unroll
    for (int i = 0; i < PREFETCH; ++i)
#pragma unroll
      for (int plane = 0; plane < 3; ++plane)
        if (record + i * step < num_records)
          v[i][plane] = load_weights(records + (record + i * step) * (w12::kRecordWords / 4) + plane * (w12::kPlaneWords / 4) + 32 * warp + lane);
#pragma unroll
    for (int i = 0; i < PREFETCH; ++i)
#pragma unroll
      for (int plane = 0; plane < 3; ++plane)
        if (record + i * step < num_records) seen ^= v[i][plane].x ^ v[i][plane].y ^ v[i][plane].z ^ v[i][plane].w;
  }
  if (seen == 0x12345678u) sink[0] = seen;
}

template <int N, int STAGES, int BLOCKS>
cudaError_t launch(const Arguments& args, cudaStream_t stream) {
  auto* kernel = w12_gemm<N, STAGES, BLOCKS>;
  constexpr int kBytes = STAGES * kStageBytes<N>;
  if (kBytes * BLOCKS > 227 * 1024 - BLOCKS * 1024 - 2048) return cudaErrorInvalidConfiguration;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  int device = 0, multiprocessors = 0, resident = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, kBytes);
  // Blocks wait for each other: all of them must be resident.
  if (resident < BLOCKS) return cudaErrorLaunchOutOfResources;
  // A tensor map of x: boxes of N rows and 64 columns.
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  CUtensorMap map;
  const cuuint64_t sizes[2] = {cuuint64_t(args.k), cuuint64_t(args.m)}, strides[1] = {cuuint64_t(args.k) * 2};
  const cuuint32_t box[2] = {w12::kRecordColumns, N}, steps[2] = {1, 1};
  if (!encode || encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(args.x), sizes, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    return cudaErrorInvalidValue;
  kernel<<<min(multiprocessors * BLOCKS, args.num_records), kThreads, kBytes, stream>>>(args, map);
  return cudaGetLastError();
}

template <int N>
cudaError_t choose(const Arguments& args, int blocks, cudaStream_t stream) {
  if constexpr (N <= 48)
    if (blocks == 3) return launch<N, 4, 3>(args, stream);
  return blocks == 2 ? launch<N, 4, 2>(args, stream) : cudaErrorInvalidValue;
}

}  // namespace

// blocks: on a multiprocessor, 2 or 3 (3 for up to 48 rows). partials has room for blocks * multiprocessors * 32 * 256
// numbers, flags for blocks * multiprocessors, all zero. Returns a cudaError_t.
extern "C" int specpilot_w12_gemm_sm90(const void* records, const void* bases, const void* slots, const void* escapes,
                                       const void* starts, const void* x, void* y, void* partials, void* flags, int n,
                                       int k, int m, int blocks, void* stream) {
  const int k_tiles = (k + w12::kRecordColumns - 1) / w12::kRecordColumns;
  const int tiles = (n + w12::kRecordRows - 1) / w12::kRecordRows;
  const Arguments args{static_cast<const uint4*>(records), static_cast<const uint8_t*>(bases),
                       static_cast<const uint32_t*>(slots), static_cast<const uint32_t*>(escapes),
                       static_cast<const uint32_t*>(starts), static_cast<const __nv_bfloat16*>(x),
                       static_cast<__nv_bfloat16*>(y), static_cast<float*>(partials), static_cast<int*>(flags),
                       n, k, m, k_tiles, tiles * k_tiles};
  auto* s = static_cast<cudaStream_t>(stream);
  if (m < 1 || m > 64 || n < 1 || k < 8 || k % 8) return cudaErrorInvalidValue;
  if (m <= 8) return choose<8>(args, blocks, s);
  if (m <= 16) return choose<16>(args, blocks, s);
  if (m <= 32) return choose<32>(args, blocks, s);
  if (m <= 48) return choose<48>(args, blocks, s);
  return choose<64>(args, blocks, s);
}

// The bare read of the same records, for benches.
extern "C" int specpilot_w12_read_sm90(const void* records, int64_t num_records, void* sink, int blocks, int prefetch,
                                       void* stream) {
  auto* s = static_cast<cudaStream_t>(stream);
  auto* r = static_cast<const uint4*>(records);
  auto* o = static_cast<uint32_t*>(sink);
  if (prefetch == 1) w12_read<1><<<blocks, kConsumers, 0, s>>>(r, num_records, o);
  else if (prefetch == 2) w12_read<2><<<blocks, kConsumers, 0, s>>>(r, num_records, o);
  else w12_read<4><<<blocks, kConsumers, 0, s>>>(r, num_records, o);
  return cudaGetLastError();
}
