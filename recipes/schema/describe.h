// The keys of a recipe, each described once. See recipes/schema/section.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/dtype.h"
#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink::schema {

// Every section but [model].
void DescribeData(Section& section, DataConfig& data);
// `blend` of a stage.
void BlendKey(Section& section, std::map<std::string, double>* blend);
void DescribeOptimizer(Section& section, OptimizerConfig& optimizer);
void DescribeSchedule(Section& section, ScheduleConfig& schedule);
void DescribeStage(Section& section, Stage& stage);
void DescribeParallel(Section& section, ParallelConfig& parallel);
void DescribeOffload(Section& section, OffloadRules& offload);
void DescribeRun(Section& section, RunConfig& run);

// A number of bytes, "20GiB". There is none if the key is omitted.
void BytesKey(Section& section, std::string_view name,
              std::optional<int64_t>* bytes, const Key& key);

// Words that other files use too; see ValuesOf.
std::string_view Word(RunConfig::Device device);
std::string_view Word(MasterForm master);
std::string_view Word(DType dtype);
std::string_view Word(StateStorage storage);
std::string_view Word(Recompute recompute);
std::string_view Word(PipelineSchedule schedule);
std::string_view Word(ExpertDispatch dispatch);
std::string_view Word(Axis axis);

// The whole document except [model], in the order of writing.
void DescribeRest(Section& document, Recipe& recipe);

// [model]. Reading creates a config of the named kind; writing and documenting
// use the existing one. If the kind is wrong, null stays null.
void DescribeModel(Section& document, std::shared_ptr<const ModelConfig>* model,
                   const std::vector<ModelKind>& kinds);

}  // namespace delink::schema
