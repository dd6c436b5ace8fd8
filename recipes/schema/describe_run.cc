// [run].
#include <string_view>

#include "recipes/schema/describe.h"
#include "recipes/schema/limits.h"

namespace delink::schema {

std::string_view Word(RunConfig::Device device) {
  switch (device) {
    case RunConfig::Device::kAuto:
      return "auto";
    case RunConfig::Device::kCpu:
      return "cpu";
    case RunConfig::Device::kCuda:
      return "cuda";
  }
  return "";
}

std::string_view Word(MasterForm master) {
  switch (master) {
    case MasterForm::kWhole:
      return "fp32";
    case MasterForm::kSplit:
      return "split";
    case MasterForm::kNone:
      return "none";
  }
  return "";
}

std::string_view Word(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kNormActivation:
      return "norm+activation";
    case Recompute::kBlock:
      return "block";
  }
  return "";
}

static std::string_view Word(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      break;
  }
  return "";
}

static std::string_view Word(MicroBatchOrder order) {
  switch (order) {
    case MicroBatchOrder::kMicroBatchMajor:
      return "micro_batch";
    case MicroBatchOrder::kLayerMajor:
      return "layer";
  }
  return "";
}

namespace {

void DescribeStopAfter(Section& s, StopAfter& stop) {
  s.Int("validations", &stop.validations,
        {.doc = "the run ends after so many validations of its last stage in a "
                "row that found nothing better; 0: never",
         .min = 0,
         .max = kMaxSteps});
  s.Float("delta", &stop.delta,
          {.doc = "better is a loss lower by more than so many nats",
           .min = 0.0,
           .max = 1e3});
}

// Where, in what and in which order a run computes.
void DescribeComputing(Section& s, RunConfig& run) {
  s.Enum("device", &run.device, Word,
         {.doc = "where to compute; auto takes a GPU where there is one"});
  s.Int(
      "ranks_per_gpu", &run.ranks_per_gpu,
      {.doc = "ranks of a machine that may share a GPU", .min = 1, .max = 64});
  s.Enum("precision", &run.precision, Word,
         {.doc = "of the weights and activations that layers compute with; "
                 "bf16: sums stay fp32, and so do gradients of weights "
                 "(`gradients`), the weights that are updated and saved "
                 "(`master`) and optimizer state (`optimizer.moments`) unless "
                 "told otherwise"});
  s.Enum("master", &run.master, Word,
         {.doc = "what is updated where weights are bf16: fp32 weights beside "
                 "them (4 bytes each); the same in 2, as the 16 bits that "
                 "a bf16 weight lacks; or the bf16 weights alone, rounded "
                 "stochastically. split and none: adamw only"});
  s.Enum("gradients", &run.gradients, Word,
         {.doc = "of bf16 weights, added up over micro-batches, layers that "
                 "share and ranks. bf16: 2 bytes each in place of 4; each "
                 "addition is made in fp32 and rounded, so that of many "
                 "contributions what is below 1 part in 512 of the sum is "
                 "lost"});
  s.Int("micro_batch", &run.micro_batch,
        {.doc = "sequences a rank computes at once; the rest of its share of "
                "the batch is accumulated",
         .when_omitted = "the largest divisor of batch / data ranks, at most "
                         "8; with a pipeline small enough for 4 x pipeline "
                         "micro-batches a step, if the batch is large enough, "
                         "and interleaved for a multiple of pipeline",
         .min = 1,
         .max = kMaxSequences});
  s.Enum("recompute", &run.recompute, Word,
         {.doc = "what is computed again in backward in place of being kept. "
                 "norm+activation: norms and activations of the MLP, which "
                 "cost hardly any time; block: all of a block, of which only "
                 "the input is kept"});
  s.Enum("order", &run.order, Word,
         {.doc = "micro_batch: all layers of a micro-batch before the next "
                 "one; layer: all micro-batches of a layer before the next, "
                 "refused in a pipeline, where `parallel.schedule` says"});
  s.Bool("deterministic", &run.deterministic,
         {.doc = "the same bits each time; false: kernels that are faster "
                 "otherwise need not (on a GPU in bf16 cuDNN's backward pass "
                 "of attention, which then takes less memory too)"});
  s.Int("threads", &run.threads,
        {.doc = "threads a rank",
         .when_omitted = "the machine's cores over its ranks",
         .min = 1,
         .max = kMaxThreads});
}

}  // namespace

void DescribeRun(Section& s, RunConfig& run) {
  s.Int("seed", &run.seed,
        {.doc = "of initialisation, dropout and the order of the data",
         .fixed = true,
         .min = 0});
  DescribeComputing(s, run);
  s.Int("log_every", &run.log_every,
        {.doc = "steps between two lines of the log",
         .min = 1,
         .max = kMaxSteps});
  s.Int("validate_every", &run.validate_every,
        {.doc = "steps between two validations, besides the one at the end; 0: "
                "only that one",
         .min = 0,
         .max = kMaxSteps});
  s.Int("checkpoint_every", &run.checkpoint_every,
        {.doc = "steps between two checkpoints, besides those at switches and "
                "at the end; 0: only those",
         .min = 0,
         .max = kMaxSteps});
  s.Int("keep", &run.keep,
        {.doc = "newest checkpoints to keep; 0: all",
         .min = 0,
         .max = kMaxSteps});
  s.Bool("keep_best", &run.keep_best,
         {.doc = "save where a validation finds the lowest loss so far, and "
                 "keep that checkpoint besides, as `checkpoints/best`"});
  s.SubTable("stop_after", {.doc = "an early end of the run"},
             [&](Section& t) { DescribeStopAfter(t, run.stop_after); });
  if (s.complete() && run.stop_after.validations > 0 &&
      run.validate_every == 0) {
    s.Error("stop_after.validations",
            "counts validations, but run.validate_every is 0: there are none "
            "before the end");
  }
  s.Int("probe_every", &run.probe_every,
        {.doc = "steps between two measurements of how well the gradients of "
                "layers that share agree; 0: none, but ten a window in a stage "
                "that ends by until.gradient",
         .min = 0,
         .max = kMaxSteps});
  s.Int("norms_every", &run.norms_every,
        {.doc = "steps between two lines of metrics that have the norms of "
                "gradients and weights, layer by layer; 0: none",
         .min = 0,
         .max = kMaxSteps});
  s.Int("watchdog", &run.watchdog,
        {.doc = "seconds that ranks wait for one that makes no progress before "
                "they name it and end; 0: for ever",
         .min = 0,
         .max = kMaxSteps});
  s.Float("outlier", &run.outlier,
          {.doc = "warn of a step whose gradient norm is so many standard "
                  "deviations above the mean of the last 100 steps, and keep "
                  "its batch; 0: never",
           .min = 0.0,
           .max = 1e6});
}

}  // namespace delink::schema
