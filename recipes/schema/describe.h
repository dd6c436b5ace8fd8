// The keys of a recipe, each described once. See recipes/schema/section.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

// Words that are said elsewhere too; see ValuesOf.
std::string_view Word(RunConfig::Device device);
std::string_view Word(MasterForm master);
std::string_view Word(Recompute recompute);
std::string_view Word(PipelineSchedule schedule);
std::string_view Word(Axis axis);

// The whole document but [model], in the order in which it is written.
void DescribeRest(Section& document, Recipe& recipe);

// [model]. Reading makes the model of the kind that is named; writing and
// documenting take the one that is there. Null stays null when the kind is
// wrong.
void DescribeModel(Section& document, std::shared_ptr<const ModelConfig>* model,
                   const std::vector<ModelKind>& kinds);

}  // namespace delink::schema
