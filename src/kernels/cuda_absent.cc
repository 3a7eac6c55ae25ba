// SPDX-License-Identifier: MIT
// The CUDA rows of builds without CUDA: none. In builds with it kernels/<op>/cuda/ defines them.
#include "kernels/kernel_table.h"
#include "kernels/linear/yardstick.h"
#include "kernels/vision_activation/vision_activation.h"
#include "kernels/vision_attention/vision_attention.h"
#include "kernels/vision_cells/vision_cells.h"
#include "kernels/vision_rope/vision_rope.h"

namespace deepinfer {

extern const Launch<EmbeddingParams> kEmbeddingCuda = nullptr;
extern const Launch<EngramRowsParams> kEngramRowsCuda = nullptr;
extern const Launch<EngramGateParams> kEngramGateCuda = nullptr;
extern const Launch<StreamMixParams> kStreamMixLanesCuda = nullptr;
extern const Launch<StreamMixParams> kStreamMixTensorCuda = nullptr;
extern const Launch<StreamCollapseParams> kStreamCollapseCuda = nullptr;
extern const Launch<StreamUpdateParams> kStreamUpdateCuda = nullptr;
extern const Launch<StreamAdvanceParams> kStreamAdvanceCuda = nullptr;
extern const Launch<StreamAdvanceParams> kStreamAdvanceFastCuda = nullptr;
extern const Launch<NormParams> kNormCuda = nullptr;
extern const Launch<NormParams> kNormFastCuda = nullptr;
extern const Launch<LinearParams> kLinearCuda = nullptr;
extern const Launch<LinearParams> kLinearTensorCuda = nullptr;
extern const Launch<RopeAnglesParams> kRopeAnglesCuda = nullptr;
extern const Launch<RopeParams> kRopeCuda = nullptr;
extern const Launch<PackKeysParams> kPackKeysCuda = nullptr;
extern const Launch<PackKeysParams> kPackKeysFastCuda = nullptr;
extern const Launch<PackRowsParams> kPackRowsCuda = nullptr;
extern const Launch<UnpackRowsParams> kUnpackRowsCuda = nullptr;
extern const Launch<RoundRowsParams> kRoundRowsCuda = nullptr;
extern const Launch<ScatterRowsParams> kScatterRowsCuda = nullptr;
extern const Launch<GatherRowsParams> kGatherRowsCuda = nullptr;
extern const Launch<CompressorPoolParams> kCompressorPoolCuda = nullptr;
extern const Launch<CompressorTailParams> kCompressorTailCuda = nullptr;
extern const Launch<IndexScoresParams> kIndexScoresCuda = nullptr;
extern const Launch<IndexScoresParams> kIndexScoresTensorCuda = nullptr;
extern const Launch<TopKParams> kTopKCuda = nullptr;
extern const Launch<CandidateBlocksParams> kCandidateBlocksCuda = nullptr;
extern const Launch<SparseAttentionParams> kSparseAttentionCuda = nullptr;
extern const Launch<SparseAttentionParams> kSparseAttentionTensorCuda = nullptr;
extern const Launch<RouterParams> kRouterCuda = nullptr;
extern const Launch<ExpertPlanParams> kExpertPlanCuda = nullptr;
extern const Launch<ExpertsParams> kExpertsCuda = nullptr;
extern const Launch<ExpertsParams> kExpertsTensorCuda = nullptr;
extern const Launch<ExpertCombineParams> kExpertCombineCuda = nullptr;
extern const Launch<VisionRopeParams> kVisionRopeCuda = nullptr;
extern const Launch<VisionAttentionParams> kVisionAttentionCuda = nullptr;
extern const Launch<VisionAttentionParams> kVisionAttentionTensorCuda = nullptr;
extern const Launch<VisionCellsParams> kVisionCellsCuda = nullptr;
extern const Launch<GatedSiluParams> kGatedSiluCuda = nullptr;
extern const Launch<GeluParams> kGeluCuda = nullptr;
extern const Launch<ResidualParams> kResidualCuda = nullptr;

std::unique_ptr<LibraryProduct> open_library_product(Device&, const LibraryProductShape&) { return nullptr; }

}  // namespace deepinfer
