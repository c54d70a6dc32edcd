#include "runtime/experiment/experiment_options.h"

namespace moonshard::experiment {

const OptionSchema& experiment_schema() {
  static const OptionSchema schema("experiment", [](OptionSchema& s) {
    using T = ExperimentOptions;
    models::add_model_options<T>(s);
    privacy::add_clip_options<T>(s);
    optim::add_optimizer_options<T>(s);
    train::add_step_options<T>(s);
    sharding::add_sharding_options<T>(s);
    privacy::add_privacy_options<T>(s);
    s.integer<T>("nproc", &T::nproc, 1, 4096,
                 "ranks on this machine; parallel says what they share");
    s.integer<T>("batch_size", &T::batch_size, 0, 1e9,
                 "samples per micro-batch and rank; 0 takes the model preset's");
    s.integer<T>("seq_length", &T::seq_length, 0, 1e8,
                 "tokens per sample; 0 takes the model preset's")
        .aliases = {"seq_len"};
    s.integer<T>("iters", &T::iters, 1, 1e9, "measured steps").aliases = {"num_iter", "num_iters"};
    s.integer<T>("warmup", &T::warmup, 0, 1e9, "steps before measuring; recorded apart").aliases = {
        "warmup_iter", "warmup_iters"};
    s.choice<T>("profile", &T::profile, {"off", "phases", "layers", "trace"},
                "what is looked at after the measured steps: nothing; memory by owner and "
                "communication; norms by layer, too; a Chrome trace, too");
    s.integer<T>("watch_steps", &T::watch_steps, 1, 100,
                 "steps in a row whose memory is followed after the measured ones");
    s.choice<T>("kernels", &T::kernels, {"auto", "reference"},
                "on a GPU: fused kernels where there are, or plain operations alone");
    s.boolean<T>("whole_first", &T::whole_first,
                 "fsdp: every rank makes the whole model before it is cut into parts, as PyTorch "
                 "programs do; otherwise its own part alone");
    s.text<T>("data_folder", &T::data_folder,
              "folder with .txt, .json or .jsonl text for task lm; empty takes synthetic batches");
    s.text<T>("data_file", &T::data_file,
              ".jsonl file with text and label on every line, for task classify");
    s.text<T>("tokenizer", &T::tokenizer,
              "bytes, a tokenizer.json (BPE), or a folder that has one");
    s.choice<T>("packing", &T::packing, {"packed", "padded"},
                "documents end to end in samples of seq_length, or one document per sample");
    s.choice<T>("invalid_utf8", &T::invalid_utf8, {"error", "replace"},
                "what becomes of bytes that are no text");
    s.choice<T>("sampler", &T::sampler, {"fixed", "shuffled", "poisson"},
                "which samples a step takes: in order, in a new order each epoch, or by Poisson "
                "subsampling, which an epsilon requires; batch_size is then the most of a "
                "micro-batch");
    s.integer<T>("prefetch", &T::prefetch, 0, 64, "steps whose data is fetched ahead; 0: none");
    s.boolean<T>("pad_batches", &T::pad_batches,
                 "poisson: every micro-batch has batch_size rows, filled up with rows that count "
                 "nowhere; otherwise their sizes change from step to step");
    s.boolean<T>("memory_history", &T::memory_history,
                 "record PyTorch's GPU memory history: snapshot.pickle, also when memory runs out");
    s.boolean<T>("check_memory", &T::check_memory,
                 "refuse before the start what cannot fit into memory, with advice");
    s.integer<T>("threads", &T::threads, 0, 4096, "CPU threads; 0 takes all cores");
    s.integer<T>("memory_limit_mb", &T::memory_limit_mb, 0, 1e9,
                 "cap on host tensors, beyond it the point is out of memory; 0 takes what the "
                 "machine and its control group leave free");
  });
  return schema;
}

}  // namespace moonshard::experiment
