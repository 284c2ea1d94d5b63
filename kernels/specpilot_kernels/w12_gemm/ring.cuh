// More rows of x, and the largest matrices: one warp fills a ring in shared memory with bulk copies (the records of TILES
// row tiles and the columns of x that belong to them, by a tensor map), the others, 16 rows of W each, decode and multiply:
// with mma.sync up to 16 rows of x, above by wgmma with the weights as register operand. Who multiplies waits for the
// copies and for nothing else.
//
// Two ways to share the work out:
// - Split: the blocks of a cluster share the columns of TILES row tiles; their sums meet in shared memory.
// - Stream: all records, row tiles by row tiles, are shared out evenly among blocks that are all resident. A block first
//   does the records of the tiles that it begins and does not finish and publishes these sums; who finishes the tiles adds
//   them, columns ascending.
// The order of every sum depends on the shape and the grid alone.
#pragma once
#include "fragments.cuh"
#include "group_product.cuh"

namespace w12 {

// The copying warp makes the barriers and goes on at once; the others wait for that. Full barriers count its one arrival,
// empty ones an arrival of every warp that multiplies.
template <int STAGES>
__device__ __forceinline__ void start_barriers(uint32_t full, int num_consumers, int num_threads, bool is_copying) {
  if (is_copying) {
    const int lane = threadIdx.x & 31;
    if (lane < 2 * STAGES)
      ptx::barrier_init(full + 8 * lane, lane < STAGES ? 1 : num_consumers);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncwarp();
    asm volatile("bar.arrive 2, %0;" ::"r"(num_threads) : "memory");
  } else {
    asm volatile("bar.sync 2, %0;" ::"r"(num_threads) : "memory");
  }
}

template <int N, int TILES, int STAGES>
struct Ring {
  static_assert(2 * STAGES <= 32);
  static constexpr int kWarps = kWarpsOfRecord * TILES, kConsumers = 32 * kWarps, kThreads = kConsumers + 32;
  static constexpr int kWeights = TILES * kRecordBytes;
  static constexpr int kStage = kWeights + N * kRowBytes;  // multiples of 1,024, as the swizzle of x wants
  static constexpr int kRows = kRecordRows * TILES, kPitch = kRows + 4;
  static constexpr int kBytes = STAGES * kStage + kWarps * kPatchBytes;
  static_assert(STAGES * kStage >= 4 * N * kPitch);
};

template <int N, int TILES, int STAGES, int BLOCKS, bool STREAM>
__global__ void __launch_bounds__(Ring<N, TILES, STAGES>::kThreads, BLOCKS)
    w12_ring(const Arguments args, const __grid_constant__ CUtensorMap x_map) {
  using R = Ring<N, TILES, STAGES>;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint64_t barriers[2 * STAGES];  // full, empty
  constexpr bool kByWarps = N <= 16;
  const uint32_t ring = shared_address(shared), full = shared_address(barriers), empty = full + 8 * STAGES;
  const int lane = threadIdx.x & 31, warp = warp_index();
  // Its first use would otherwise wait for it.
  if (threadIdx.x == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&x_map) : "memory");
  const int groups = (args.row_tiles + TILES - 1) / TILES;

  // Units: a group of row tiles times a record's columns.
  int begin, end, rank = 0, ranks = 1;
  if constexpr (STREAM) {
    const Shares shares(groups * args.k_tiles);
    begin = shares.start(blockIdx.x);
    end = shares.start(blockIdx.x + 1);
  } else {
    rank = ptx::cluster_rank();
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(ranks));
    int group;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(group));
    begin = group * args.k_tiles + args.k_tiles * rank / ranks;
    end = group * args.k_tiles + args.k_tiles * (rank + 1) / ranks;
  }
  const int count = end - begin;
  // A stream goes from its last group to its first: what others wait for comes first, what waits for others last.
  const int first = begin / args.k_tiles, first_from = begin - first * args.k_tiles;
  const int last = (end - 1) / args.k_tiles, last_from = last == first ? first_from : 0, last_to = end - last * args.k_tiles;
  auto row_tile = [&](int group, int j) { return min(group * TILES + j, args.row_tiles - 1); };

  start_barriers<STAGES>(full, R::kWarps, R::kThreads, warp == R::kWarps);

  if (warp == R::kWarps) {
    if (lane) return;
    int group = begin / args.k_tiles, column = begin - group * args.k_tiles;
    if (STREAM) group = last, column = last_from;
    for (int i = 0, stage = 0, parity = 1; i < count; ++i) {
      ptx::barrier_wait(empty + 8 * stage, parity);
      const uint32_t at = ring + stage * R::kStage, barrier = full + 8 * stage;
      ptx::barrier_expect(barrier, R::kStage);
#pragma unroll
      for (int j = 0; j < TILES; ++j)
        ptx::bulk_copy(at + j * kRecordBytes, args.records + (int64_t(row_tile(group, j)) * args.k_tiles + column) * (kRecordWords / 4),
                  kRecordBytes, barrier);
      // Rows and columns outside x arrive as zeros.
      ptx::tile_copy(at + R::kWeights, &x_map, column * kRecordColumns, 0, barrier);
      if (++stage == STAGES) stage = 0, parity ^= 1;
      ++column;
      if (STREAM && column == (group == last ? last_to : args.k_tiles)) column = --group == first ? first_from : 0;
    }
    return;
  }

  const int in_group = warp / kWarpsOfRecord, slice = warp % kWarpsOfRecord;
  const uint32_t room = ring + STAGES * R::kStage + warp * kPatchBytes;
  const uint32_t my_weights = in_group * kRecordBytes + 512 * slice + 16 * lane;
  float acc[N / 8][4];
  uint32_t stage = 0, parity = 0, at = ring;

  // `length` units of one group.
  auto run = [&](int group, int column, int length) {
    const int tile = row_tile(group, in_group);
    const int64_t record = int64_t(tile) * args.k_tiles + column;
    const uint8_t* const b = args.bases + tile * kRecordRows + 16 * slice + lane / 4;
    const uint32_t low = base_pair(b[0]), high = base_pair(b[8]);
    Slots slots(args, record, slice, length, lane);
    constexpr int kSets = kByWarps ? 2 : 1;  // even and odd steps apart, so that few products wait less for each other
    float sums[kSets][N / 8][4] = {};
    uint32_t behind = 0;  // barrier of the stage whose products may still run

    auto one = [&](int i, uint32_t (&a)[4][4]) {
      slots.advance(i);
      ptx::barrier_wait(full + 8 * stage, parity);
      uint4 planes[3];
#pragma unroll
      for (int p = 0; p < 3; ++p) planes[p] = ptx::read16(at + my_weights + kPlaneBytes * p);
      decode_record(a, planes, low, high);
      if (slots.has_escapes(i)) patch(a, slots.word(i), args, record + i, slice, lane, room);
      const uint32_t x = at + R::kWeights;
      if constexpr (kByWarps) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int t = 0; t < N / 8; ++t) {
            uint32_t numbers[4];
            read_x(numbers, x + 1024 * t, lane, half);
            ptx::warp_product(sums[0][t], a[2 * half], numbers[0], numbers[1]);
            ptx::warp_product(sums[kSets - 1][t], a[2 * half + 1], numbers[2], numbers[3]);
          }
        __syncwarp();
        if (lane == 0) ptx::barrier_arrive(empty + 8 * stage);
      } else {
        product_fence();
        const uint64_t numbers = describe(x);
#pragma unroll
        for (int s = 0; s < 4; ++s) GroupProduct<N>::run(sums[0], a[s], numbers + 2 * s);
        product_commit();
        product_wait<1>();  // the record before is done: its stage is free, and so are its registers
        if (i && lane == 0) ptx::barrier_arrive(behind);
        behind = empty + 8 * stage;
      }
      at += R::kStage;
      if (++stage == STAGES) stage = 0, parity ^= 1, at = ring;
    };
    if constexpr (kByWarps) {
      uint32_t a[4][4];
#pragma unroll 1
      for (int i = 0; i < length; ++i) one(i, a);
    } else {
      uint32_t even[4][4], odd[4][4];  // one is written while the tensor cores read the other
#pragma unroll 1
      for (int i = 0; i < length; i += 2) {
        one(i, even);
        if (i + 1 == length) break;
        one(i + 1, odd);
      }
      product_wait<0>();
      if (length && lane == 0) ptx::barrier_arrive(behind);
    }
#pragma unroll
    for (int t = 0; t < N / 8; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[t][i] = kSets == 2 ? sums[0][t][i] + sums[kSets - 1][t][i] : sums[0][t][i];
  };
  auto consumers_meet = [] { asm volatile("bar.sync 1, %0;" ::"n"(R::kConsumers) : "memory"); };

  if constexpr (!STREAM) {
    const int group = begin / args.k_tiles;
    run(group, begin - group * args.k_tiles, count);
    consumers_meet();  // all stages have been read
    // [row of x][row of W]; a warp's writes meet no bank twice.
    float* const out = reinterpret_cast<float*>(shared);
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      out[(8 * (i >> 2) + 2 * (lane & 3) + (i & 1)) * R::kPitch + 16 * warp + lane / 4 + 8 * (i >> 1 & 1)] = acc[i / 4][i % 4];
    auto cluster_meets = [&] {
      if (ranks == 1) consumers_meet();
      else ptx::cluster_meet();
    };
    cluster_meets();
    constexpr int kFours = R::kRows / 4;
    const int all = args.m * kFours;
    for (int at = all * rank / ranks + int(threadIdx.x), last = all * (rank + 1) / ranks; at < last; at += R::kConsumers) {
      const int m = at / kFours, row = 4 * (at % kFours), n = group * R::kRows + row;
      const uint32_t from = ring + 4 * (m * R::kPitch + row);
      float4 sum = {};
      for (int r = 0; r < ranks; ++r) {  // columns ascending
        uint32_t there;
        float4 v;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(from), "r"(r));
        asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(there) : "memory");
        sum = r ? make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w) : v;
      }
      __nv_bfloat16* const y = args.y + int64_t(m) * args.n + n;
      const __nv_bfloat162 first = __floats2bfloat162_rn(sum.x, sum.y), second = __floats2bfloat162_rn(sum.z, sum.w);
      if (n + 3 < args.n && args.n % 4 == 0) {
        const uint2 four{reinterpret_cast<const uint32_t&>(first), reinterpret_cast<const uint32_t&>(second)};
        *reinterpret_cast<uint2*>(y) = four;
      } else {
        if (n < args.n) y[0] = first.x;
        if (n + 1 < args.n) y[1] = first.y;
        if (n + 2 < args.n) y[2] = second.x;
        if (n + 3 < args.n) y[3] = second.y;
      }
    }
    if (ranks > 1) cluster_meets();  // nobody leaves while others read its sums
  } else {
    const Shares shares(groups * args.k_tiles);
#pragma unroll 1
    for (int group = last; group >= first; --group) {
      const int column = group == first ? first_from : 0, to = group == last ? last_to : args.k_tiles;
      run(group, column, to - column);
      if (to < args.k_tiles) {  // for others
        float* const out = args.partials + int64_t(blockIdx.x) * (N / 2) * R::kConsumers + threadIdx.x;
#pragma unroll
        for (int i = 0; i < N / 2; ++i) __stcg(out + i * R::kConsumers, acc[i / 4][i % 4]);
        __threadfence();
        consumers_meet();
        if (threadIdx.x == 0) asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(args.flags + blockIdx.x) : "memory");
        continue;
      }
      if (column) {
        // Blocks that did the group's columns before ours, in their order.
        int other = blockIdx.x;
        while (shares.start(other) > group * args.k_tiles) --other;
        const int num_others = int(blockIdx.x) - other;
        if (int(threadIdx.x) < num_others) {
          int flag;
          do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(flag) : "l"(args.flags + other + threadIdx.x) : "memory");
          while (!flag);
        }
        consumers_meet();
        const float* from = args.partials + int64_t(other) * (N / 2) * R::kConsumers + threadIdx.x;
        float before[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; ++i) before[i] = __ldcg(from + i * R::kConsumers);
#pragma unroll 4
        for (int p = 1; p < num_others; ++p) {
          from += (N / 2) * R::kConsumers;
#pragma unroll
          for (int i = 0; i < N / 2; ++i) before[i] += __ldcg(from + i * R::kConsumers);
        }
#pragma unroll
        for (int i = 0; i < N / 2; ++i) acc[i / 4][i % 4] = before[i] + acc[i / 4][i % 4];
        consumers_meet();
        if (int(threadIdx.x) < num_others) args.flags[other + threadIdx.x] = 0;
      }
      if (group * TILES + in_group < args.row_tiles) {
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
          const int n = group * R::kRows + 16 * warp + lane / 4 + 8 * (i >> 1 & 1), m = 8 * (i >> 2) + 2 * (lane & 3) + (i & 1);
          if (n < args.n && m < args.m) args.y[int64_t(m) * args.n + n] = __float2bfloat16_rn(acc[i / 4][i % 4]);
        }
      }
    }
  }
}

}  // namespace w12
