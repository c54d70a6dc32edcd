---@meta moonshard
-- Made by `moonshard run scripts/docs/meta.lua`; a test compares it with the module.
-- luacheck: ignore

---@class moonshard.run_options
---@field model? string model preset; 'moonshard models' lists them (llama3-tiny)
---@field task? "auto"|"classify"|"lm"|"denoise"|"regress" what is learned: a sequence's class, the next token, an image's noise, a vector (auto)
---@field weights? string safetensors file or Hugging Face folder to start from; empty starts at random
---@field device? "auto"|"cpu"|"cuda" where it runs; auto takes a GPU when there is one (auto)
---@field dtype? "float32"|"float64"|"bfloat16" dtype that weights are kept in (float32)
---@field param_dtype? "auto"|"float32"|"float64"|"bfloat16" compute dtype; auto is dtype, bfloat16 gives mixed precision (auto)
---@field attention? "flash"|"standard" fused attention, or scores as a matrix (flash)
---@field checkpointing? "none"|"block"|"keep_attention" block keeps a block's input only and runs it again in backward; keep_attention keeps the output of its attention, too: faster in long contexts (none)
---@field checkpoint_every? integer with checkpointing: every n-th block (1)
---@field frozen? string globs of parameters that are not trained, separated by commas
---@field trained? string globs of the only parameters that are trained, separated by commas; empty: all but frozen ones, and with lora_rank the adapters and a classifier's head
---@field lora_rank? integer rank of LoRA adapters; 0 means none. The other weights are frozen (0)
---@field lora_alpha? number adapters count alpha / rank times; 0 takes twice the rank (0)
---@field lora_targets? string names, last parts of names or globs of the linear layers with an adapter, separated by commas; empty: all in blocks
---@field lora_dropout? number probability that a number of an adapter's input is dropped in a training step; -1 takes that of the adapter's folder, else 0 (-1)
---@field adapter? string folder of an adapter as PEFT saves it, to start from; it gives the lora options
---@field hidden_dim? integer model width; 0 takes the preset's (0)
---@field intermediate_dim? integer width inside the MLP; 0 takes the preset's (0)
---@field num_layers? integer blocks or layers; 0 takes the preset's (0)
---@field num_heads? integer attention heads; 0 takes the preset's (0)
---@field head_dim? integer width of an attention head; 0 takes the preset's (0)
---@field norm_eps? number added under a norm's root; 0 takes the preset's (0)
---@field num_labels? integer classes of task classify; 0 takes the preset's 3 (0)
---@field vocab_size? integer rows of the embedding; 0 takes the preset's (0)
---@field pad_token_id? integer id whose embedding is never trained; -1 means none (-1)
---@field num_kv_heads? integer key and value heads (grouped-query attention); 0 takes the preset's (0)
---@field tie_embeddings? "auto"|"yes"|"no"|boolean input and output embedding are one parameter (auto)
---@field qkv_bias? "auto"|"yes"|"no"|boolean query, key and value projections have a bias (auto)
---@field head_chunk? integer lm: positions of a sample whose scores exist at a time, made again in backward: less memory in long contexts; 0 means all, kept (0)
---@field last_block? "auto"|"scored"|"all" classify: tokens that the last block computes beside keys and values: the one that is scored, or all, for the same numbers; auto: scored (auto)
---@field rope_base? number base of rotary positions; 0 takes the preset's (0)
---@field rope_scaling? "auto"|"none"|"llama3"|"linear" stretching of rotary frequencies for long contexts (auto)
---@field rope_factor? number llama3 scaling: stretch of low frequencies; linear scaling: of all (0)
---@field rope_low_freq_factor? number llama3 scaling: wavelengths above original/this are stretched (0)
---@field rope_high_freq_factor? number llama3 scaling: wavelengths below original/this stay (0)
---@field rope_original_length? integer llama3 scaling: context of the pre-training (0)
---@field block_style? "auto"|"llama"|"gemma2"|"gemma3"|"vaultgemma" norms, activation and scaling of the embedding, as these models have them (auto)
---@field attention_scalar? number attention scores are divided by its root; 0 takes the preset's or head_dim (0)
---@field attention_softcap? number attention scores s become c tanh(s / c); 0 takes the preset's, -1 means none (0)
---@field logit_softcap? number the same for the scores of tokens; 0 takes the preset's, -1 means none (0)
---@field attention_window? integer tokens that a local layer sees, its own included; 0 takes the preset's, -1 means all (0)
---@field attention_pattern? string which layers are local (l) or global (g), repeated: gemma2 has lg, gemma3 lllllg; empty takes the preset's or g
---@field rope_local_base? number base of rotary positions in local layers; 0 takes the preset's or rope_base (0)
---@field image_size? integer pixels, or latent cells, along an image's side; 0 takes the preset's (0)
---@field patch_size? integer side of a patch; tokens = (image_size / patch_size)^2 (0)
---@field in_channels? integer 3 for pixels, 4 for latents (0)
---@field num_classes? integer image classes; 0 takes the preset's (0)
---@field positions? "auto"|"learned"|"sincos" positions of patches: a trained table, or fixed sines and cosines (auto)
---@field norm_affine? "auto"|"yes"|"no"|boolean layer norms of a DiT have weight and bias (auto)
---@field label_dropout? number share of labels replaced by the null class; -1 takes the preset's (-1)
---@field seed? integer start of every random number of the run that is not secret; -1 draws one from the operating system, the same for everything in a job (-1)
---@field mode? "none"|"materialize"|"ghost"|"flash"|"bookkeeping"|"flash_bookkeeping"|"auto" clipping engine; none trains without privacy (none)
---@field clipping? "flat"|"per_layer"|"automatic"|"adaptive"|"groups" how norms become factors: one bound, one per layer, normalising, a quantile, or bounds of clip_groups (flat)
---@field clip_groups? string clipping = groups: globs of parameters and the bound of each group, '*lora_A* = 0.5; *.bias, score.* = 1'; max_grad_norm bounds what none of them matches
---@field max_grad_norm? number clipping bound C of each sample's gradient norm; adaptive clipping starts there (1)
---@field noise_multiplier? number noise std over C, added once to the summed gradient (1)
---@field stability? number automatic clipping: gamma in C / (norm + gamma) (0.01)
---@field target_quantile? number adaptive clipping: share of samples that should stay unclipped (0.5)
---@field quantile_lr? number adaptive clipping: how fast C moves (0.2)
---@field quantile_noise? number adaptive clipping: noise std of the count; 0 takes batch / 20 (0)
---@field tile_size? integer flash norms: positions or rows at a time; 0 chooses (0)
---@field flash_algorithm? "auto"|"input_length"|"width" flash norms: by tiles of positions, by tiles of width, or the cheaper (auto)
---@field memory_budget_mb? integer engine auto: what it may keep across layers; 0: half of what a GPU has beside the weights and a copy of them, elsewhere no limit (0)
---@field optimizer? "sgd"|"adam"|"adamw" update rule (sgd)
---@field lr? number learning rate (1e-05)
---@field lr_schedule? "constant"|"linear"|"cosine"|"inverse_sqrt" how the learning rate falls after its warm-up; inverse_sqrt has no end (constant)
---@field lr_warmup_steps? integer steps over which the learning rate rises from 0 (0)
---@field lr_total_steps? integer steps until the schedule's end; 0 takes the experiment's own, or a trainer's plan (privacy = { epochs or budget_steps }) (0)
---@field lr_min_ratio? number share of the learning rate that is left at the schedule's end (0)
---@field momentum? number sgd: decay of the running sum (0)
---@field weight_decay? number adamw: decoupled decay; adam: added to the gradient; -1 takes 0.1 and 0 (-1)
---@field beta1? number adam, adamw: decay of the mean (0.9)
---@field beta2? number adam, adamw: decay of the mean square (0.95)
---@field eps? number adam, adamw: added to the root of the mean square (1e-08)
---@field state_dtype? "auto"|"bfloat16" dtype that moments and sums are kept in: the weights', or 16 bits, rounded by a coin so that small changes add up (auto)
---@field no_decay? string parameters without weight decay: norms, biases, embeddings and globs of names, separated by commas
---@field noise_correction? boolean adam, adamw in private training: takes the noise's variance out of the mean square (DP-AdamBC, Tang et al. 2024) (false)
---@field noise_floor? number noise_correction: least mean square that is left; 0 takes a hundredth of the noise's variance (0)
---@field grad_accum? integer micro-batches per step, each of batch_size samples (1)
---@field expected_batch_size? integer what the sum is divided by; 0 takes the samples of the step (0)
---@field clip_global_norm? number plain training: the mean gradient of a step is scaled down to this norm, over all parameters and ranks; 0: not (0)
---@field deterministic? boolean only operations that give the same digits every time (false)
---@field compile? "auto"|"yes"|"no"|boolean on a GPU: replay steps of equal shapes as CUDA graphs, noise and optimizer apart; auto does so where launching kernels takes 70 % of a step, or 40 % of it and replays are faster (auto)
---@field parallel? "none"|"ddp"|"fsdp" how ranks share the work: not at all, whole copies, or parts of parameters and state (none)
---@field sharding? "zero3"|"zero2"|"zero2_replicated" fsdp: parameters whole only where they are used; from forward to backward; always (zero3)
---@field wrap? "module"|"size"|"none" fsdp: a unit per block, per min_num_params parameters, or one for all (module)
---@field min_num_params? number fsdp, wrap = size: parameters that make a unit (100000000)
---@field backward_prefetch? "pre"|"post"|"none" fsdp: gather the next unit before this one's backward, after it, or when it is used (pre)
---@field forward_prefetch? boolean fsdp: gather the next unit while this one's forward runs (true)
---@field limit_all_gathers? boolean fsdp: at most one unit is gathered ahead; without it two (true)
---@field cpu_offload? boolean fsdp: parameters, gradients and optimizer state live in host memory (false)
---@field keep_frozen? boolean fsdp: frozen parameters are gathered once and stay whole (false)
---@field reshard_root? boolean fsdp: the root unit (embedding, final norm, head) is whole only where its layers run, as blocks are under zero3; without it from forward to backward (false)
---@field unit_policies? string globs of units and what holds for them, 'model.layers.*: reshard = no; root: dtype = float32, offload = yes': dtype (of the computation), reduce_dtype, reshard, offload; the first match counts. ddp takes reduce_dtype alone
---@field replicate? integer fsdp: groups of ranks that each hold a whole model in parts; gradients are summed inside a group, then across groups (HSDP) (1)
---@field reduce_dtype? "auto"|"float32"|"float64"|"bfloat16" dtype in which gradients travel; auto is that of the sums (auto)
---@field no_sync? boolean reduce gradients after the last micro-batch of a step only (false)
---@field bucket_mb? number ddp: MiB of gradients per all-reduce (25)
---@field norm_reduce? "local"|"sum" norms of a rank's own samples, or summed over ranks: for timing, not private (local)
---@field world? string auto: the ranks that were launched; fake:N: one rank of N on this device (auto)
---@field link? "nvlink"|"nvlink3"|"pcie5"|"infiniband"|"ethernet100"|"ethernet10"|"instant" world = fake:N: the link whose speed communication is modelled from (nvlink)
---@field target_epsilon? number budget: noise_multiplier is chosen so that the run's steps stay within it; 0 leaves noise_multiplier as it is (0)
---@field delta? number delta of the claimed epsilon (1e-05)
---@field epochs? number length of the run in passes over the data; 0 counts in steps (0)
---@field budget_steps? integer steps that the budget must last for; 0 takes the epochs (0)
---@field accountant? "rdp"|"prv"|"pld" how epsilon is computed: all three are guarantees, pld the tightest (pld)
---@field secure? boolean noise and sampling from a secret of the operating system, on a grid that resists floating-point attacks; false: reproducible noise from the seed, for verification and debugging: not private, no epsilon is claimed (true)
---@field nproc? integer ranks on this machine; parallel says what they share (1)
---@field batch_size? integer samples per micro-batch and rank; 0 takes the model preset's (0)
---@field seq_length? integer tokens per sample; 0 takes the model preset's (0)
---@field iters? integer measured steps (3)
---@field warmup? integer steps before measuring; recorded apart (1)
---@field profile? "off"|"phases"|"layers"|"trace" what is looked at after the measured steps: nothing; memory by owner and communication; norms by layer, too; a Chrome trace, too (phases)
---@field watch_steps? integer steps in a row whose memory is followed after the measured ones (1)
---@field kernels? "auto"|"reference" on a GPU: fused kernels where there are, or plain operations alone (auto)
---@field whole_first? boolean fsdp: every rank makes the whole model before it is cut into parts, as PyTorch programs do; otherwise its own part alone (false)
---@field data_folder? string folder with .txt, .json or .jsonl text for task lm; empty takes synthetic batches
---@field data_file? string .jsonl file with text and label on every line, for task classify
---@field tokenizer? string bytes, a tokenizer.json (BPE), or a folder that has one (bytes)
---@field packing? "packed"|"padded" documents end to end in samples of seq_length, or one document per sample (packed)
---@field invalid_utf8? "error"|"replace" what becomes of bytes that are no text (error)
---@field sampler? "fixed"|"shuffled"|"poisson" which samples a step takes: in order, in a new order each epoch, or by Poisson subsampling, which an epsilon requires; batch_size is then the most of a micro-batch (fixed)
---@field prefetch? integer steps whose data is fetched ahead; 0: none (2)
---@field pad_batches? boolean poisson: every micro-batch has batch_size rows, filled up with rows that count nowhere; otherwise their sizes change from step to step (false)
---@field memory_history? boolean record PyTorch's GPU memory history: snapshot.pickle, also when memory runs out (false)
---@field check_memory? boolean refuse before the start what cannot fit into memory, with advice (true)
---@field threads? integer CPU threads; 0 takes all cores (0)
---@field memory_limit_mb? integer cap on host tensors, beyond it the point is out of memory; 0 takes what the machine and its control group leave free (0)

---@class moonshard.trainer_privacy_options
---@field target_epsilon? number budget: noise_multiplier is chosen so that the run's steps stay within it; 0 leaves noise_multiplier as it is (0)
---@field delta? number delta of the claimed epsilon (1e-05)
---@field epochs? number length of the run in passes over the data; 0 counts in steps (0)
---@field budget_steps? integer steps that the budget must last for; 0 takes the epochs (0)
---@field accountant? "rdp"|"prv"|"pld" how epsilon is computed: all three are guarantees, pld the tightest (pld)
---@field secure? boolean noise and sampling from a secret of the operating system, on a grid that resists floating-point attacks; false: reproducible noise from the seed, for verification and debugging: not private, no epsilon is claimed (true)
---@field releases? integer noised evaluations (ms.evaluate) that the target leaves room for (0)
---@field release_noise? number noise multiplier of each of them (0)

---@class moonshard.Model_generate_options
---@field prompt? any a text, a list of token ids, or a list of either; needed
---@field tokenizer? Tokenizer of texts: a Tokenizer, a path or "bytes"; that of the model's folder
---@field stop? any ids, or texts of one token each, that end a text; those of the model's folder, else the tokenizer's end of text; false: none
---@field on_token? function called with (number of the prompt, id, piece of text) for each token as it comes
---@field stream? boolean of a single prompt: show the text as it comes; by itself at the REPL's prompt
---@field max_new_tokens? integer most tokens that are added to a prompt (128)
---@field temperature? number scores are divided by it before a token is drawn; 0 takes the most probable one (1)
---@field top_p? number draws among the fewest most probable tokens whose probabilities add up to this (1)
---@field top_k? integer draws among so many most probable tokens; 0: among all (0)
---@field seed? integer start of the random numbers; prompt i of the list has a stream of its own, whatever the other prompts are (0)
---@field batch_size? integer prompts that are continued together, on each rank (64)
---@field graph? "auto"|"yes"|"no"|boolean on a GPU: replay the step of a token as a CUDA graph; auto does so where it can (auto)

---@class moonshard.Runs_best_options
---@field most? boolean the most is the best, whatever the metric's name says
---@field least? boolean the least is the best

---@class moonshard.Runs_overhead_options
---@field baseline? any value of the axis that the others are compared with; the sweep's own, else "none"
---@field axis? string the option that the baseline is a value of (mode)

---@class moonshard.Runs_plot_options
---@field out? string another folder than visualizations in the run folder
---@field size? string WIDTHxHEIGHT in pixels, e.g. 1200x600
---@field scale? number pixels per point, 1 to 4
---@field theme? "light"|"dark" colours
---@field format? any png, svg or pdf, or a list of them (png)

---@class moonshard.Sweep_run_options
---@field resume? string run folder to go on with
---@field dry_run? boolean list the points only (false)
---@field retry? integer more attempts of a point that failed (0)
---@field timeout? number seconds per point; 0: no limit (0)
---@field budget? number seconds for this call: no point begins that is not expected to end within
---@field fail_fast? boolean stop at the first failure (false)
---@field all? boolean skip no point for lack of memory (false)
---@field only? table option = glob: points that are run
---@field shuffle? any true or a seed: in another order (false)
---@field launcher? "local"|"slurm" where points run (local)
---@field slurm_args? string words for sbatch
---@field lock? boolean wait for the lock of each GPU; false does not (true)
---@field retry_oom? boolean with resume: run points again that were out of memory (false)
---@field parallel? integer points side by side; their times disturb each other (1)
---@field drain_timeout? number seconds a stopped point has to end (30)

---@class moonshard.Tokenizer_decode_options
---@field skip_special? boolean leave special tokens out (false)

---@class moonshard.Tokenizer_encode_options
---@field special_tokens? boolean put the tokens around a whole text (true)

---@class moonshard.Trainer_durable_options
---@field every? integer steps from one save to the next (100)
---@field wait? boolean until it is on the disk; else the next steps go on while it is written (false)
---@field keep? integer how many of the newest stay; 0: all (2)
---@field keep_every? integer those of steps that it divides stay as well; 0: none (0)
---@field whole? boolean with the frozen weights of a LoRA run, too; else their folder and its fingerprint are noted, where they came from one (false)

---@class moonshard.Trainer_fit_options
---@field epochs? number passes over the data; the plan of the trainer's budget where neither this nor steps is given
---@field steps? integer number of the last step, those before a resume included
---@field evaluate? Dataset what is evaluated on, after the last step and every evaluate_every: a dataset or a list of batches
---@field evaluate_every? integer steps from one evaluation to the next
---@field evaluate_options? table options of ms.evaluate
---@field metric? "loss"|"perplexity"|"accuracy"|"macro_f1" the figure that says which evaluation is best (loss)
---@field patience? integer stops after so many evaluations that are no better than the best
---@field best? string folder of the checkpoint with the best evaluation
---@field on_step? function called with each step's report; false ends the run, on all ranks alike
---@field on_evaluate? function called with (evaluation, step); false ends the run
---@field name? string part of the run folder's name (fit)
---@field out? string where the run folder is made; of a durable run beside its checkpoints (results)
---@field options? table what tells this run from others, in tables and figures
---@field record_norms? boolean quantiles of the samples' gradient norms in the curve; by itself only where no epsilon is claimed
---@field log? boolean write a run folder (true)
---@field progress? boolean a moving line on a terminal, a line now and then elsewhere; on the first rank (true)

---@class moonshard.Trainer_generate_options
---@field prompt? any a text, a list of token ids, or a list of either; needed
---@field tokenizer? Tokenizer of texts: a Tokenizer, a path or "bytes"; that of the model's folder
---@field stop? any ids, or texts of one token each, that end a text; those of the model's folder, else the tokenizer's end of text; false: none
---@field on_token? function called with (number of the prompt, id, piece of text) for each token as it comes
---@field stream? boolean of a single prompt: show the text as it comes; by itself at the REPL's prompt
---@field max_new_tokens? integer most tokens that are added to a prompt (128)
---@field temperature? number scores are divided by it before a token is drawn; 0 takes the most probable one (1)
---@field top_p? number draws among the fewest most probable tokens whose probabilities add up to this (1)
---@field top_k? integer draws among so many most probable tokens; 0: among all (0)
---@field seed? integer start of the random numbers; prompt i of the list has a stream of its own, whatever the other prompts are (0)
---@field batch_size? integer prompts that are continued together, on each rank (64)
---@field graph? "auto"|"yes"|"no"|boolean on a GPU: replay the step of a token as a CUDA graph; auto does so where it can (auto)

---@class moonshard.Trainer_resume_options
---@field if_any? boolean return nil when there is no checkpoint (false)
---@field other_seed? boolean go on with this model's seed: other noise, other data (false)

---@class moonshard.Trainer_save_options
---@field wait? boolean until it is on the disk; else the next steps go on while it is written (true)
---@field keep? integer how many of the newest stay; 0: all (0)
---@field keep_every? integer those of steps that it divides stay as well; 0: none (0)
---@field whole? boolean with the frozen weights of a LoRA run, too; else their folder and its fingerprint are noted, where they came from one (false)

---@class moonshard.analyze_bottleneck_options
---@field thresholds? table where a share counts as high, by name

---@class moonshard.analyze_overhead_options
---@field baseline? any value of the axis that the others are compared with; the sweep's own, else "none"
---@field axis? string the option that the baseline is a value of (mode)

---@class moonshard.analyze_scaling_options
---@field axis? string the option that grows (seq_length)

---@class moonshard.arange_options
---@field dtype? "float32"|"float64"|"bfloat16"|"float16"|"int64"|"int32"|"uint8"|"int8"|"bool" number format (float32)
---@field device? "cpu"|"cuda"|"auto" where it lies (cpu)

---@class moonshard.audit_options
---@field engine? string one private engine, or all (all)
---@field clipping? "flat"|"per_layer"|"automatic"|"adaptive" style of clipping that is audited (flat)
---@field seeds? integer audits of each engine, with other coins and noise (1)
---@field canaries? integer samples that are put in by a coin each (4000)
---@field trials? integer steps of tiny batches: do they tell their size? (120)
---@field sigma? number noise multiplier that is audited (1)
---@field delta? number of the claim and of the bounds (1e-05)
---@field significance? number chance that a correct engine is accused, over all bounds of an audit (0.05)
---@field secure? boolean noise from the operating system, as experiments have it with secure (false)
---@field device? "auto"|"cpu"|"cuda" where it runs (auto)
---@field seed? integer of weights, noise and coins (1)

---@class moonshard.clip_options
---@field groups? table list of { match = globs, max_grad_norm = bound }: clip_groups as a table (docs/engines.md)
---@field clipping? "flat"|"per_layer"|"automatic"|"adaptive"|"groups" how norms become factors: one bound, one per layer, normalising, a quantile, or bounds of clip_groups (flat)
---@field clip_groups? string clipping = groups: globs of parameters and the bound of each group, '*lora_A* = 0.5; *.bias, score.* = 1'; max_grad_norm bounds what none of them matches
---@field max_grad_norm? number clipping bound C of each sample's gradient norm; adaptive clipping starts there (1)
---@field noise_multiplier? number noise std over C, added once to the summed gradient (1)
---@field stability? number automatic clipping: gamma in C / (norm + gamma) (0.01)
---@field target_quantile? number adaptive clipping: share of samples that should stay unclipped (0.5)
---@field quantile_lr? number adaptive clipping: how fast C moves (0.2)
---@field quantile_noise? number adaptive clipping: noise std of the count; 0 takes batch / 20 (0)
---@field tile_size? integer flash norms: positions or rows at a time; 0 chooses (0)
---@field flash_algorithm? "auto"|"input_length"|"width" flash norms: by tiles of positions, by tiles of width, or the cheaper (auto)
---@field memory_budget_mb? integer engine auto: what it may keep across layers; 0: half of what a GPU has beside the weights and a copy of them, elsewhere no limit (0)

---@class moonshard.compare_options
---@field all? boolean also what agrees (false)
---@field metrics? string[] figures to show
---@field only? table option = glob: points that count

---@class moonshard.data_classification_options
---@field labels? string[] names of the classes in order; those of the file, sorted
---@field model? Model checks that its vocabulary and number of labels fit
---@field file? string .jsonl file with "text" and "label" on every line
---@field tokenizer? string bytes, a tokenizer.json, or a folder that has one (bytes)
---@field max_length? integer tokens of a sample (0)
---@field part? "all"|"train"|"test" which lines (all)
---@field test_share? number share of the lines that part test has (0.2)
---@field split_seed? integer draws the lines of part test (0)
---@field invalid_utf8? "error"|"replace" what to do with bytes that are no UTF-8 (error)

---@class moonshard.data_loader_options
---@field dataset? Dataset what is drawn from: ms.data.text or ms.data.classification; needed
---@field sampler? "fixed"|"shuffled"|"poisson" in order, in a new order each epoch, or by Poisson subsampling, which an epsilon requires (fixed)
---@field batch_size? integer samples per micro-batch and rank; poisson: the most of them (0)
---@field expected_batch_size? integer poisson: samples per step over all ranks; 0: batch_size x grad_accum x ranks (0)
---@field prefetch? integer steps that are fetched ahead; 0: none (2)
---@field pad_batches? boolean poisson: every micro-batch has batch_size rows, filled up with rows that count nowhere; otherwise their sizes change from step to step (false)

---@class moonshard.data_synthetic_options
---@field model? Model gives the shapes, so that data:next() works before a trainer has it
---@field batch_size? integer samples per step; 0 takes the model preset's (0)
---@field seq_length? integer tokens per sample; 0 takes the model preset's (0)

---@class moonshard.data_text_options
---@field model? Model checks that its vocabulary and task fit
---@field folder? string folder with .txt, .json and .jsonl files, also in folders below
---@field tokenizer? string bytes, a tokenizer.json, or a folder that has one (bytes)
---@field packing? "packed"|"padded" samples cut from all documents joined, or one per document (packed)
---@field max_length? integer tokens of a sample (0)
---@field invalid_utf8? "error"|"replace" what to do with bytes that are no UTF-8 (error)
---@field end_of_text? string token between documents; empty takes the tokenizer's own
---@field cache? string auto, none, or a folder for the file of tokens (auto)

---@class moonshard.ddp_options
---@field policies? table list of { units = globs, reduce_dtype = … }: unit_policies as a table (docs/parallel.md)
---@field unit_policies? string globs of units and what holds for them, 'model.layers.*: reshard = no; root: dtype = float32, offload = yes': dtype (of the computation), reduce_dtype, reshard, offload; the first match counts. ddp takes reduce_dtype alone
---@field reduce_dtype? "auto"|"float32"|"float64"|"bfloat16" dtype in which gradients travel; auto is that of the sums (auto)
---@field no_sync? boolean reduce gradients after the last micro-batch of a step only (false)
---@field bucket_mb? number ddp: MiB of gradients per all-reduce (25)
---@field norm_reduce? "local"|"sum" norms of a rank's own samples, or summed over ranks: for timing, not private (local)
---@field world? string auto: the ranks that were launched; fake:N: one rank of N on this device (auto)
---@field link? "nvlink"|"nvlink3"|"pcie5"|"infiniband"|"ethernet100"|"ethernet10"|"instant" world = fake:N: the link whose speed communication is modelled from (nvlink)

---@class moonshard.evaluate_options
---@field batch_size? integer samples of a forward pass and rank (32)
---@field intervals? boolean 95 % intervals beside the figures (true)
---@field public? boolean the data is nobody's secret: exact figures need no protection (false)
---@field noise_multiplier? number of a trainer: noise of the sums behind the figures, which is charged to its account as a step of all samples; 0: exact figures (0)
---@field loss_bound? number beside noise_multiplier: larger losses of a sample count as this; 0 takes twice that of a guess among all classes or tokens (0)

---@class moonshard.find_max_batch_options: moonshard.run_options
---@field low? integer first size that is tried (1)
---@field high? integer largest size; on a CPU it or memory_limit_mb is needed
---@field verify? boolean run the answer once more with all iterations (true)
---@field timeout? number seconds per try; 0: no limit (0)
---@field name? string part of the folder's name (max_batch)
---@field out? string folder of the run folder (results)
---@field resume? string run folder to go on with
---@field lock? boolean wait for the lock of each GPU; false does not (true)
---@field quiet? boolean say nothing (false)

---@class moonshard.fsdp_options
---@field policies? table list of { units = globs, dtype = …, reduce_dtype = …, reshard = …, offload = … }: unit_policies as a table (docs/parallel.md)
---@field sharding? "zero3"|"zero2"|"zero2_replicated" fsdp: parameters whole only where they are used; from forward to backward; always (zero3)
---@field wrap? "module"|"size"|"none" fsdp: a unit per block, per min_num_params parameters, or one for all (module)
---@field min_num_params? number fsdp, wrap = size: parameters that make a unit (100000000)
---@field backward_prefetch? "pre"|"post"|"none" fsdp: gather the next unit before this one's backward, after it, or when it is used (pre)
---@field forward_prefetch? boolean fsdp: gather the next unit while this one's forward runs (true)
---@field limit_all_gathers? boolean fsdp: at most one unit is gathered ahead; without it two (true)
---@field cpu_offload? boolean fsdp: parameters, gradients and optimizer state live in host memory (false)
---@field keep_frozen? boolean fsdp: frozen parameters are gathered once and stay whole (false)
---@field reshard_root? boolean fsdp: the root unit (embedding, final norm, head) is whole only where its layers run, as blocks are under zero3; without it from forward to backward (false)
---@field unit_policies? string globs of units and what holds for them, 'model.layers.*: reshard = no; root: dtype = float32, offload = yes': dtype (of the computation), reduce_dtype, reshard, offload; the first match counts. ddp takes reduce_dtype alone
---@field replicate? integer fsdp: groups of ranks that each hold a whole model in parts; gradients are summed inside a group, then across groups (HSDP) (1)
---@field reduce_dtype? "auto"|"float32"|"float64"|"bfloat16" dtype in which gradients travel; auto is that of the sums (auto)
---@field no_sync? boolean reduce gradients after the last micro-batch of a step only (false)
---@field norm_reduce? "local"|"sum" norms of a rank's own samples, or summed over ranks: for timing, not private (local)
---@field world? string auto: the ranks that were launched; fake:N: one rank of N on this device (auto)
---@field link? "nvlink"|"nvlink3"|"pcie5"|"infiniband"|"ethernet100"|"ethernet10"|"instant" world = fake:N: the link whose speed communication is modelled from (nvlink)

---@class moonshard.log_run_options
---@field name? string part of the folder's name
---@field out? string folder of the run folder (results)
---@field options? table name = value: what tells this point from others; columns of tables
---@field tags? table list of texts that sweep.json keeps
---@field note? string a text that is kept in the same way

---@class moonshard.model_options
---@field task? "auto"|"classify"|"lm"|"denoise"|"regress" what is learned: a sequence's class, the next token, an image's noise, a vector (auto)
---@field weights? string safetensors file or Hugging Face folder to start from; empty starts at random
---@field device? "auto"|"cpu"|"cuda" where it runs; auto takes a GPU when there is one (auto)
---@field dtype? "float32"|"float64"|"bfloat16" dtype that weights are kept in (float32)
---@field param_dtype? "auto"|"float32"|"float64"|"bfloat16" compute dtype; auto is dtype, bfloat16 gives mixed precision (auto)
---@field attention? "flash"|"standard" fused attention, or scores as a matrix (flash)
---@field checkpointing? "none"|"block"|"keep_attention" block keeps a block's input only and runs it again in backward; keep_attention keeps the output of its attention, too: faster in long contexts (none)
---@field checkpoint_every? integer with checkpointing: every n-th block (1)
---@field frozen? string globs of parameters that are not trained, separated by commas
---@field trained? string globs of the only parameters that are trained, separated by commas; empty: all but frozen ones, and with lora_rank the adapters and a classifier's head
---@field lora_rank? integer rank of LoRA adapters; 0 means none. The other weights are frozen (0)
---@field lora_alpha? number adapters count alpha / rank times; 0 takes twice the rank (0)
---@field lora_targets? string names, last parts of names or globs of the linear layers with an adapter, separated by commas; empty: all in blocks
---@field lora_dropout? number probability that a number of an adapter's input is dropped in a training step; -1 takes that of the adapter's folder, else 0 (-1)
---@field adapter? string folder of an adapter as PEFT saves it, to start from; it gives the lora options
---@field hidden_dim? integer model width; 0 takes the preset's (0)
---@field intermediate_dim? integer width inside the MLP; 0 takes the preset's (0)
---@field num_layers? integer blocks or layers; 0 takes the preset's (0)
---@field num_heads? integer attention heads; 0 takes the preset's (0)
---@field head_dim? integer width of an attention head; 0 takes the preset's (0)
---@field norm_eps? number added under a norm's root; 0 takes the preset's (0)
---@field num_labels? integer classes of task classify; 0 takes the preset's 3 (0)
---@field vocab_size? integer rows of the embedding; 0 takes the preset's (0)
---@field pad_token_id? integer id whose embedding is never trained; -1 means none (-1)
---@field num_kv_heads? integer key and value heads (grouped-query attention); 0 takes the preset's (0)
---@field tie_embeddings? "auto"|"yes"|"no"|boolean input and output embedding are one parameter (auto)
---@field qkv_bias? "auto"|"yes"|"no"|boolean query, key and value projections have a bias (auto)
---@field head_chunk? integer lm: positions of a sample whose scores exist at a time, made again in backward: less memory in long contexts; 0 means all, kept (0)
---@field last_block? "auto"|"scored"|"all" classify: tokens that the last block computes beside keys and values: the one that is scored, or all, for the same numbers; auto: scored (auto)
---@field rope_base? number base of rotary positions; 0 takes the preset's (0)
---@field rope_scaling? "auto"|"none"|"llama3"|"linear" stretching of rotary frequencies for long contexts (auto)
---@field rope_factor? number llama3 scaling: stretch of low frequencies; linear scaling: of all (0)
---@field rope_low_freq_factor? number llama3 scaling: wavelengths above original/this are stretched (0)
---@field rope_high_freq_factor? number llama3 scaling: wavelengths below original/this stay (0)
---@field rope_original_length? integer llama3 scaling: context of the pre-training (0)
---@field block_style? "auto"|"llama"|"gemma2"|"gemma3"|"vaultgemma" norms, activation and scaling of the embedding, as these models have them (auto)
---@field attention_scalar? number attention scores are divided by its root; 0 takes the preset's or head_dim (0)
---@field attention_softcap? number attention scores s become c tanh(s / c); 0 takes the preset's, -1 means none (0)
---@field logit_softcap? number the same for the scores of tokens; 0 takes the preset's, -1 means none (0)
---@field attention_window? integer tokens that a local layer sees, its own included; 0 takes the preset's, -1 means all (0)
---@field attention_pattern? string which layers are local (l) or global (g), repeated: gemma2 has lg, gemma3 lllllg; empty takes the preset's or g
---@field rope_local_base? number base of rotary positions in local layers; 0 takes the preset's or rope_base (0)
---@field image_size? integer pixels, or latent cells, along an image's side; 0 takes the preset's (0)
---@field patch_size? integer side of a patch; tokens = (image_size / patch_size)^2 (0)
---@field in_channels? integer 3 for pixels, 4 for latents (0)
---@field num_classes? integer image classes; 0 takes the preset's (0)
---@field positions? "auto"|"learned"|"sincos" positions of patches: a trained table, or fixed sines and cosines (auto)
---@field norm_affine? "auto"|"yes"|"no"|boolean layer norms of a DiT have weight and bias (auto)
---@field label_dropout? number share of labels replaced by the null class; -1 takes the preset's (-1)
---@field seed? integer start of every random number of the run that is not secret; -1 draws one from the operating system, the same for everything in a job (-1)

---@class moonshard.ones_options
---@field dtype? "float32"|"float64"|"bfloat16"|"float16"|"int64"|"int32"|"uint8"|"int8"|"bool" number format (float32)
---@field device? "cpu"|"cuda"|"auto" where it lies (cpu)

---@class moonshard.optim_adam_options
---@field lr? number learning rate (1e-05)
---@field lr_schedule? "constant"|"linear"|"cosine"|"inverse_sqrt" how the learning rate falls after its warm-up; inverse_sqrt has no end (constant)
---@field lr_warmup_steps? integer steps over which the learning rate rises from 0 (0)
---@field lr_total_steps? integer steps until the schedule's end; 0 takes the experiment's own, or a trainer's plan (privacy = { epochs or budget_steps }) (0)
---@field lr_min_ratio? number share of the learning rate that is left at the schedule's end (0)
---@field momentum? number sgd: decay of the running sum (0)
---@field weight_decay? number adamw: decoupled decay; adam: added to the gradient; -1 takes 0.1 and 0 (-1)
---@field beta1? number adam, adamw: decay of the mean (0.9)
---@field beta2? number adam, adamw: decay of the mean square (0.95)
---@field eps? number adam, adamw: added to the root of the mean square (1e-08)
---@field state_dtype? "auto"|"bfloat16" dtype that moments and sums are kept in: the weights', or 16 bits, rounded by a coin so that small changes add up (auto)
---@field no_decay? string parameters without weight decay: norms, biases, embeddings and globs of names, separated by commas
---@field noise_correction? boolean adam, adamw in private training: takes the noise's variance out of the mean square (DP-AdamBC, Tang et al. 2024) (false)
---@field noise_floor? number noise_correction: least mean square that is left; 0 takes a hundredth of the noise's variance (0)

---@class moonshard.optim_adamw_options
---@field lr? number learning rate (1e-05)
---@field lr_schedule? "constant"|"linear"|"cosine"|"inverse_sqrt" how the learning rate falls after its warm-up; inverse_sqrt has no end (constant)
---@field lr_warmup_steps? integer steps over which the learning rate rises from 0 (0)
---@field lr_total_steps? integer steps until the schedule's end; 0 takes the experiment's own, or a trainer's plan (privacy = { epochs or budget_steps }) (0)
---@field lr_min_ratio? number share of the learning rate that is left at the schedule's end (0)
---@field momentum? number sgd: decay of the running sum (0)
---@field weight_decay? number adamw: decoupled decay; adam: added to the gradient; -1 takes 0.1 and 0 (-1)
---@field beta1? number adam, adamw: decay of the mean (0.9)
---@field beta2? number adam, adamw: decay of the mean square (0.95)
---@field eps? number adam, adamw: added to the root of the mean square (1e-08)
---@field state_dtype? "auto"|"bfloat16" dtype that moments and sums are kept in: the weights', or 16 bits, rounded by a coin so that small changes add up (auto)
---@field no_decay? string parameters without weight decay: norms, biases, embeddings and globs of names, separated by commas
---@field noise_correction? boolean adam, adamw in private training: takes the noise's variance out of the mean square (DP-AdamBC, Tang et al. 2024) (false)
---@field noise_floor? number noise_correction: least mean square that is left; 0 takes a hundredth of the noise's variance (0)

---@class moonshard.optim_sgd_options
---@field lr? number learning rate (1e-05)
---@field lr_schedule? "constant"|"linear"|"cosine"|"inverse_sqrt" how the learning rate falls after its warm-up; inverse_sqrt has no end (constant)
---@field lr_warmup_steps? integer steps over which the learning rate rises from 0 (0)
---@field lr_total_steps? integer steps until the schedule's end; 0 takes the experiment's own, or a trainer's plan (privacy = { epochs or budget_steps }) (0)
---@field lr_min_ratio? number share of the learning rate that is left at the schedule's end (0)
---@field momentum? number sgd: decay of the running sum (0)
---@field weight_decay? number adamw: decoupled decay; adam: added to the gradient; -1 takes 0.1 and 0 (-1)
---@field beta1? number adam, adamw: decay of the mean (0.9)
---@field beta2? number adam, adamw: decay of the mean square (0.95)
---@field eps? number adam, adamw: added to the root of the mean square (1e-08)
---@field state_dtype? "auto"|"bfloat16" dtype that moments and sums are kept in: the weights', or 16 bits, rounded by a coin so that small changes add up (auto)
---@field no_decay? string parameters without weight decay: norms, biases, embeddings and globs of names, separated by commas
---@field noise_correction? boolean adam, adamw in private training: takes the noise's variance out of the mean square (DP-AdamBC, Tang et al. 2024) (false)
---@field noise_floor? number noise_correction: least mean square that is left; 0 takes a hundredth of the noise's variance (0)

---@class moonshard.plan_options: moonshard.run_options
---@field gpu? string h200, h100, a100, cpu, this (calibrated), or the file of a profile; this machine's, else cpu
---@field gpus? integer GPUs of a node (1)
---@field nodes? integer machines (1)
---@field node_link? string link between nodes; link is that inside of one (infiniband)
---@field link_gb_per_s? number bandwidth of a GPU's link in its node and direction; what link stands for
---@field link_latency_us? number least time of a collective over it; what link stands for
---@field node_link_gb_per_s? number bandwidth of a network adapter; what node_link stands for
---@field node_link_latency_us? number least time of a collective between nodes; what node_link stands for
---@field nics? number network adapters of a node, that its GPUs share; one per GPU
---@field memory_gb? number memory that a rank may use; the device's
---@field host_memory_gb? number memory of a node's host, that the offload of its GPUs shares; as much as is needed
---@field host_gb_per_s? number what a node's host reads and writes, that the updates of offload share; the measured host's for every GPU
---@field slow_ranks? integer ranks that compute slower, drawn by seed; all ranks are then simulated
---@field slow_by? number how much longer they compute (0.2)
---@field jitter? number every operation of a rank takes exp(jitter x normal) of its time, by seed
---@field mtbf_h? number mean hours between failures of one GPU: wall time, goodput and the best interval of saves
---@field save_every? integer steps between saves; the best
---@field save_s? number seconds that a save stops the training; the copy of a rank's state to its host
---@field write_s? number seconds that a save is written beside the training, before it counts and the next may begin (60)
---@field restart_s? number seconds from a failure to the next step (300)
---@field global_batch? integer samples of a step, of all ranks; split into micro-batches; batch_size times ranks and grad_accum
---@field examples? number samples of the data, for epochs and epsilon
---@field tokens? number tokens to train on
---@field steps? integer steps of the run
---@field wall_time_h? number hours that the run may take
---@field price_per_gpu_hour? number price of a GPU hour, in any currency
---@field private? boolean try the private engines; so does a budget, or a private mode (false)
---@field keep? integer plans that are kept (10)
---@field search? boolean false predicts the configuration as it is given (true)
---@field try? table option = { values }: tried beside what is searched by itself

---@class moonshard.plot_options
---@field data? any or the first item: list of rows or numbers, table of columns, results, Table; needed
---@field x? string column of the x axis; rows are counted where there is no column x (x)
---@field y? any column of the figures, or a list of columns; of a heatmap the column of its rows (y)
---@field group? any column (or list of columns) whose values are series of their own; color is the same
---@field color? any another name of group
---@field value? string heatmap: column that colours the cells
---@field panels? string column whose values are panels of their own
---@field kind? "lines"|"points"|"bars"|"stacked_bars"|"area"|"heatmap" lines, or bars where x has texts
---@field stat? "median"|"mean" figure of several rows with one x; mean with std and sem (median)
---@field error? any whiskers of several rows: iqr, std, sem, range or false; or a column, or { low, high } columns (iqr)
---@field text? string column written beside points
---@field log? "x"|"y"|"xy" logarithmic axes
---@field horizontal? boolean bars: categories from top to bottom (false)
---@field title? string above the figure
---@field note? string below it; says what points of several rows are
---@field x_label? string the column's name
---@field y_label? string the column's name
---@field x_unit? string in brackets behind the label
---@field y_unit? string in brackets behind the label
---@field x_range? table { low, high }: ends of the axis
---@field y_range? table { low, high }: ends of the axis
---@field references? table list of { y = 1, text = … } (horizontal), { x = 1 } (vertical), or curves of lists
---@field size? string WIDTHxHEIGHT in pixels (900x520)
---@field scale? number PNG: pixels per point, 1 to 4 (2)
---@field theme? "light"|"dark" colours (light)
---@field out? any file, or list of files, that end in .png, .svg or .pdf; a temporary PNG

---@class moonshard.privacy_calibrate_options
---@field method? "prv"|"rdp"|"pld"|"gaussian"|"gdp" accountant (prv)
---@field q? number sampling rate; leave out what is looked for
---@field sigma? number noise multiplier
---@field steps? number noised steps
---@field delta? number delta of the claim; needed
---@field target_epsilon? number the budget; needed
---@field epsilon_tolerance? number how far below the target the answer may stay

---@class moonshard.privacy_epsilon_options
---@field method? "prv"|"rdp"|"pld"|"gaussian"|"gdp" accountant; gdp is no guarantee, gaussian needs q = 1 (prv)
---@field q? number sampling rate: batch size over samples
---@field sigma? number noise multiplier
---@field steps? number noised steps
---@field delta? number delta of the claim; needed
---@field orders? table rdp: list of orders above 1
---@field phases? table list of { q, sigma, steps } instead of the three

---@class moonshard.profile_options
---@field iters? integer measured steps (5)
---@field warmup? integer steps before them (1)

---@class moonshard.randn_options
---@field dtype? "float32"|"float64"|"bfloat16"|"float16"|"int64"|"int32"|"uint8"|"int8"|"bool" number format (float32)
---@field device? "cpu"|"cuda"|"auto" where it lies (cpu)

---@class moonshard.rank_memory_options: moonshard.run_options
---@field ranks? integer number of ranks (1)

---@class moonshard.register_engine_options
---@field norms? function (layer, a, g) -> squared norms [B]; needed
---@field keep? "inputs"|"nothing" sum from what was kept, or by a second backward pass (inputs)
---@field doc? string what ms.engines() says of it (registered by a script)

---@class moonshard.register_rule_options
---@field per_sample? function (layer, a, g) -> gradients [B, shape of the weight]; needed
---@field squares? function (layer, a, g) -> squared norms [B]; without it from per_sample

---@class moonshard.report_options
---@field output? string another file than report.html in the folder

---@class moonshard.resolve_options: moonshard.run_options

---@class moonshard.sweep_options: moonshard.run_options
---@field name? string name of the sweep, part of its folder's name
---@field out? string folder of the run folder (results)
---@field grid? table option = { values }: all combinations
---@field zip? table option = { values }: values that change together
---@field when? function of effective options and the axes' values: false drops a point
---@field each? function of a record, after each point, good or bad
---@field run? function of a point and log: a point of your own; returns { metric = value } (docs/sweeps.md)
---@field search? table instead of a grid: { trials, minimize or maximize, space, method, seed, prune } (docs/sweeps.md)
---@field tags? table list of texts that sweep.json keeps; compare and the report show them
---@field note? string a text that is kept and shown in the same way
---@field expect? table list of claims that are judged at the end (docs/sweeps.md)
---@field baseline? any a mode, or { option = value }, that overheads are taken against
---@field growing? table axes along which a point needs more memory: larger ones than one that ran out are skipped
---@field seed_result? function of a record and a point: name and content of the result file at the top of the run folder

---@class moonshard.tensor_options
---@field dtype? "float32"|"float64"|"bfloat16"|"float16"|"int64"|"int32"|"uint8"|"int8"|"bool" number format (float32)
---@field device? "cpu"|"cuda"|"auto" where it lies (cpu)

---@class moonshard.trace_diff_options
---@field rank? integer whose traces, where paths are folders (0)

---@class moonshard.trace_path_options
---@field step? integer which step of the trace, from 1; the last
---@field rank? integer whose trace, where path is a folder (0)
---@field segments? boolean also every part of the path, in the order of time (false)

---@class moonshard.trace_what_if_options
---@field norms? boolean clipping costs nothing: no norms, no factors, no first of two backward passes (false)
---@field noise? boolean noise costs nothing: an update is one pass over its memory (false)
---@field plain? boolean both: the step of engine none (false)
---@field link? number communication so many times as fast
---@field remove? string[] globs of kernels, operators or ranges that are not there
---@field names? table glob = factor: of the time of kernels, operators or ranges
---@field phases? table glob = factor: of phases
---@field layers? table glob = factor: of layers
---@field kinds? table of host, kernel, communication, memcpy or gap
---@field step? integer which step of the trace, from 1; the last
---@field rank? integer whose trace, where path is a folder (0)

---@class moonshard.trainer_options
---@field model? Model the model to train: ms.model(…); needed
---@field clip? table the clipping engine: ms.clip(…); without it plain training
---@field optimizer? table the update rule: ms.optim.sgd {…}, adam or adamw; sgd
---@field data? Data batches: ms.data.loader {…} or ms.data.synthetic {…}; synthetic ones
---@field parallel? table how ranks share the work: ms.ddp {…} or ms.fsdp {…}; not at all
---@field privacy? moonshard.trainer_privacy_options the budget and its accountant: { target_epsilon, delta, epochs, … }, see below
---@field grad_accum? integer micro-batches per step, each of batch_size samples (1)
---@field expected_batch_size? integer what the sum is divided by; 0 takes the samples of the step (0)
---@field clip_global_norm? number plain training: the mean gradient of a step is scaled down to this norm, over all parameters and ranks; 0: not (0)
---@field deterministic? boolean only operations that give the same digits every time (false)
---@field compile? "auto"|"yes"|"no"|boolean on a GPU: replay steps of equal shapes as CUDA graphs, noise and optimizer apart; auto does so where launching kernels takes 70 % of a step, or 40 % of it and replays are faster (auto)
---@field check_memory? boolean refuse before the start what cannot fit into memory, with advice (true)
---@field record_layers? boolean put each layer's norms into the step's report (false)
---@field record_timeline? boolean put what happened when into the step's report (false)
---@field record_details? boolean put memory by owner, norm times and communication into the report (false)

---@class moonshard.verify_options
---@field model? string one preset instead of every tiny one
---@field engine? string one engine instead of all
---@field options? string one way to train, e.g. accumulation
---@field dtype? string float64, float32 or bfloat16
---@field device? "auto"|"cpu"|"cuda" where it runs (auto)
---@field seed? integer of weights and data (11)

---@class moonshard.weights_load_options
---@field task? "auto"|"classify"|"lm"|"denoise"|"regress" what is learned: a sequence's class, the next token, an image's noise, a vector (auto)
---@field weights? string safetensors file or Hugging Face folder to start from; empty starts at random
---@field device? "auto"|"cpu"|"cuda" where it runs; auto takes a GPU when there is one (auto)
---@field dtype? "float32"|"float64"|"bfloat16" dtype that weights are kept in (float32)
---@field param_dtype? "auto"|"float32"|"float64"|"bfloat16" compute dtype; auto is dtype, bfloat16 gives mixed precision (auto)
---@field attention? "flash"|"standard" fused attention, or scores as a matrix (flash)
---@field checkpointing? "none"|"block"|"keep_attention" block keeps a block's input only and runs it again in backward; keep_attention keeps the output of its attention, too: faster in long contexts (none)
---@field checkpoint_every? integer with checkpointing: every n-th block (1)
---@field frozen? string globs of parameters that are not trained, separated by commas
---@field trained? string globs of the only parameters that are trained, separated by commas; empty: all but frozen ones, and with lora_rank the adapters and a classifier's head
---@field lora_rank? integer rank of LoRA adapters; 0 means none. The other weights are frozen (0)
---@field lora_alpha? number adapters count alpha / rank times; 0 takes twice the rank (0)
---@field lora_targets? string names, last parts of names or globs of the linear layers with an adapter, separated by commas; empty: all in blocks
---@field lora_dropout? number probability that a number of an adapter's input is dropped in a training step; -1 takes that of the adapter's folder, else 0 (-1)
---@field adapter? string folder of an adapter as PEFT saves it, to start from; it gives the lora options
---@field hidden_dim? integer model width; 0 takes the preset's (0)
---@field intermediate_dim? integer width inside the MLP; 0 takes the preset's (0)
---@field num_layers? integer blocks or layers; 0 takes the preset's (0)
---@field num_heads? integer attention heads; 0 takes the preset's (0)
---@field head_dim? integer width of an attention head; 0 takes the preset's (0)
---@field norm_eps? number added under a norm's root; 0 takes the preset's (0)
---@field num_labels? integer classes of task classify; 0 takes the preset's 3 (0)
---@field vocab_size? integer rows of the embedding; 0 takes the preset's (0)
---@field pad_token_id? integer id whose embedding is never trained; -1 means none (-1)
---@field num_kv_heads? integer key and value heads (grouped-query attention); 0 takes the preset's (0)
---@field tie_embeddings? "auto"|"yes"|"no"|boolean input and output embedding are one parameter (auto)
---@field qkv_bias? "auto"|"yes"|"no"|boolean query, key and value projections have a bias (auto)
---@field head_chunk? integer lm: positions of a sample whose scores exist at a time, made again in backward: less memory in long contexts; 0 means all, kept (0)
---@field last_block? "auto"|"scored"|"all" classify: tokens that the last block computes beside keys and values: the one that is scored, or all, for the same numbers; auto: scored (auto)
---@field rope_base? number base of rotary positions; 0 takes the preset's (0)
---@field rope_scaling? "auto"|"none"|"llama3"|"linear" stretching of rotary frequencies for long contexts (auto)
---@field rope_factor? number llama3 scaling: stretch of low frequencies; linear scaling: of all (0)
---@field rope_low_freq_factor? number llama3 scaling: wavelengths above original/this are stretched (0)
---@field rope_high_freq_factor? number llama3 scaling: wavelengths below original/this stay (0)
---@field rope_original_length? integer llama3 scaling: context of the pre-training (0)
---@field block_style? "auto"|"llama"|"gemma2"|"gemma3"|"vaultgemma" norms, activation and scaling of the embedding, as these models have them (auto)
---@field attention_scalar? number attention scores are divided by its root; 0 takes the preset's or head_dim (0)
---@field attention_softcap? number attention scores s become c tanh(s / c); 0 takes the preset's, -1 means none (0)
---@field logit_softcap? number the same for the scores of tokens; 0 takes the preset's, -1 means none (0)
---@field attention_window? integer tokens that a local layer sees, its own included; 0 takes the preset's, -1 means all (0)
---@field attention_pattern? string which layers are local (l) or global (g), repeated: gemma2 has lg, gemma3 lllllg; empty takes the preset's or g
---@field rope_local_base? number base of rotary positions in local layers; 0 takes the preset's or rope_base (0)
---@field image_size? integer pixels, or latent cells, along an image's side; 0 takes the preset's (0)
---@field patch_size? integer side of a patch; tokens = (image_size / patch_size)^2 (0)
---@field in_channels? integer 3 for pixels, 4 for latents (0)
---@field num_classes? integer image classes; 0 takes the preset's (0)
---@field positions? "auto"|"learned"|"sincos" positions of patches: a trained table, or fixed sines and cosines (auto)
---@field norm_affine? "auto"|"yes"|"no"|boolean layer norms of a DiT have weight and bias (auto)
---@field label_dropout? number share of labels replaced by the null class; -1 takes the preset's (-1)
---@field seed? integer start of every random number of the run that is not secret; -1 draws one from the operating system, the same for everything in a job (-1)

---@class moonshard.zeros_options
---@field dtype? "float32"|"float64"|"bfloat16"|"float16"|"int64"|"int32"|"uint8"|"int8"|"bool" number format (float32)
---@field device? "cpu"|"cuda"|"auto" where it lies (cpu)

---Numbers on a device. + - * / work with tensors and numbers; dimensions and positions count from 1.
---@class Tensor
---@operator add(Tensor|number): Tensor
---@operator sub(Tensor|number): Tensor
---@operator mul(Tensor|number): Tensor
---@operator div(Tensor|number): Tensor
---@operator unm: Tensor
---@field shape integer[] sizes of its dimensions
---@field dtype string number format, e.g. float32
---@field device string where it lies, e.g. cpu or cuda:0
---@field bytes integer bytes of its elements
---@field dims integer number of dimensions
---@field numel integer number of elements
---@field freed boolean whether free() gave its memory back
local Tensor = {}

---Absolute values.
---```lua
---print((-t):abs():sum():item())  --> 10
---```
---@return Tensor
function Tensor:abs() end

---Sum; other is a tensor or a number.
---```lua
---print(t:add(1):sum():item(), (t + t):sum():item())  --> 14	20
---```
---@param other Tensor|number
---@return Tensor
function Tensor:add(other) end

---A copy.
---```lua
---local copy = t:clone()
---copy:free()
---print(t.freed)  --> false
---```
---@return Tensor
function Tensor:clone() end

---Quotient, element by element.
---```lua
---print(t:div(2):sum():item(), (t / t):sum():item())  --> 5	4
---```
---@param other Tensor|number
---@return Tensor
function Tensor:div(other) end

---Exponentials.
---```lua
---print(ms.tensor({ 0 }):exp():item())  --> 1
---```
---@return Tensor
function Tensor:exp() end

---Gives the memory back now; the handle is empty afterwards.
---```lua
---local large = ms.zeros { 1024 }
---large:free()
---print(large.freed)  --> true
---```
function Tensor:free() end

---The one element of a one-element tensor.
---```lua
---print(t:sum():item())  --> 10
---```
---@return number
function Tensor:item() end

---Natural logarithms.
---```lua
---print(ms.tensor({ 1 }):log():item())  --> 0
---```
---@return Tensor
function Tensor:log() end

---Matrix product.
---```lua
---print(t:matmul(t):tolist()[1][1])  --> 7
---```
---@param other Tensor|number
---@return Tensor
function Tensor:matmul(other) end

---Largest element, or along a dimension.
---```lua
---print(t:max():item(), t:max(1):tolist()[1])  --> 4	3
---```
---@param dim? integer
---@return Tensor
function Tensor:max(dim) end

---Mean of all elements, or along a dimension.
---```lua
---print(t:mean():item(), t:mean(2):tolist()[1])  --> 2.5	1.5
---```
---@param dim? integer
---@return Tensor
function Tensor:mean(dim) end

---Smallest element, or along a dimension.
---```lua
---print(t:min():item(), t:min(2):tolist()[2])  --> 1	3
---```
---@param dim? integer
---@return Tensor
function Tensor:min(dim) end

---Product, element by element.
---```lua
---print(t:mul(t):sum():item(), (2 * t):sum():item())  --> 30	20
---```
---@param other Tensor|number
---@return Tensor
function Tensor:mul(other) end

---Minus.
---```lua
---print(t:neg():sum():item(), (-t):max():item())  --> -10	-1
---```
---@return Tensor
function Tensor:neg() end

---Euclidean norm, or along a dimension.
---```lua
---print(ms.tensor({ 3, 4 }):norm():item())  --> 5
---```
---@param dim? integer
---@return Tensor
function Tensor:norm(dim) end

---The same elements in another shape.
---```lua
---print(t:reshape({ 4 }):tolist()[4])  --> 4
---```
---@param sizes integer|integer[]
---@return Tensor
function Tensor:reshape(sizes) end

---One slice along a dimension; both count from 1.
---```lua
---print(t:select(1, 2):tolist()[1])  --> 3
---```
---@param dim integer
---@param position integer
---@return Tensor
function Tensor:select(dim, position) end

---Square roots.
---```lua
---print(ms.tensor({ 9 }):sqrt():item())  --> 3
---```
---@return Tensor
function Tensor:sqrt() end

---Difference.
---```lua
---print(t:sub(1):sum():item(), (t - t):sum():item())  --> 6	0
---```
---@param other Tensor|number
---@return Tensor
function Tensor:sub(other) end

---Sum of all elements, or along a dimension.
---```lua
---print(t:sum():item(), t:sum(1):tolist()[2])  --> 10	6
---```
---@param dim? integer
---@return Tensor
function Tensor:sum(dim) end

---The same numbers in another format or on another device.
---```lua
---print(t:to("bfloat16").bytes)  --> 8
---```
---@param format string
---@return Tensor
function Tensor:to(format) end

---All elements as nested tables.
---```lua
---print(t:tolist()[2][1])  --> 3
---```
---@return table
function Tensor:tolist() end

---Two dimensions swapped; without arguments the last two.
---```lua
---print(t:transpose():tolist()[1][2])  --> 3
---```
---@param dim integer
---@param other Tensor|number
---@return Tensor
function Tensor:transpose(dim, other) end

---A model with its parameters, made by ms.model or ms.weights.load.
---@class Model
---@field name string the preset's name
---@field num_parameters integer how many numbers its parameters have
---@field bytes integer bytes of its parameters
---@field options table effective options; ms.model(m.name, m.options) builds the same model
---@field parameters string[] names of all parameters
---@field trainable string[] names of those that are trained
---@field layers table[] layers with parameters: name, kind, weight, bias, trainable
local Model = {}

---Scores of a batch, without gradients.
---```lua
---print(model:forward(data:next()).shape[1])  --> 2
---```
---@param batch table<string, Tensor>
---@return Tensor
function Model:forward(batch) end

---Leaves the parameters that match out of training; returns how many did.
---```lua
---local own = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" })
---print(own:freeze("layers.0.*"), #own.parameters - #own.trainable)  --> 2	2
---```
---@param glob string
---@return integer
function Model:freeze(glob) end

---What the model puts behind a prompt, or behind each of a list: text where there is a tokenizer, and ids. At the prompt of the REPL the text of a single one is shown as it comes. print shows the texts.
---```lua
---local writer = ms.model("llama3-tiny", { task = "lm", device = "cpu" })
---local made = writer:generate { prompt = { "to be", "or not" }, tokenizer = "bytes", stop = false, max_new_tokens = 4, temperature = 0.8 }
---print(#made.texts, #made.ids[2], made.ended[1])  --> 2	4	length
---```
---@param options moonshard.Model_generate_options
---@return Generation
function Model:generate(options) end

---One loss per sample, without gradients.
---```lua
---print(model:losses(data:next()).shape[1])  --> 2
---```
---@param batch table<string, Tensor>
---@return Tensor
function Model:losses(batch) end

---A model of its own without adapters: each is added to the weight of its layer.
---```lua
---local adapted = ms.model("llama3-tiny", { lora = { rank = 2 } })
---print(#adapted.parameters, #adapted:merged().parameters)  --> 49	21
---```
---@return Model
function Model:merged() end

---The parameter of that name; the tensor shares the model's memory.
---```lua
---print(model:parameter("model.norm.weight").shape[1])  --> 16
---```
---@param name string
---@return Tensor
function Model:parameter(name) end

---Writes config.json and the weights as safetensors; transformers opens the folder.
---```lua
---print(model:save("saved")[1])  --> config.json
---```
---@param folder string
---@return string[]
function Model:save(folder) end

---Writes the LoRA adapters, and what else is trained, as PEFT does; ms.model(name, { adapter = folder }) and PEFT open it.
---```lua
---local folder = os.tmpname() .. "_adapter"
---local adapted = ms.model("llama3-tiny", { lora = { rank = 2 } })
---adapted:save_adapter(folder)
---print(ms.model("llama3-tiny", { adapter = folder }).options.lora_rank)  --> 2
---```
---@param folder string
function Model:save_adapter(folder) end

---A model, an engine, an optimizer, data and a wrapper together; made by ms.trainer.
---@class Trainer
---@field model Model the model that it trains
---@field engine string name of its clipping engine
---@field ["private"] boolean whether that engine clips and adds noise
---@field steps integer steps so far, of all runs that it goes on from
---@field privacy_steps integer noised steps so far
---@field planned_steps integer steps that its budget lasts for; 0 without a budget
---@field steps_per_epoch number steps of one pass over the data; 0 where it has no end
---@field noise_multiplier number noise std over the clipping bound, as given or as found for a budget
---@field clip_bound number the clipping bound now; adaptive clipping moves it
---@field units string[] units that are gathered together under fsdp
local Trainer = {}

---Gives the optimizer's and the engine's memory back now.
---```lua
---local short = ms.trainer { model = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" }) }
---short:close()
---print(short)  --> Trainer (closed)
---```
function Trainer:close() end

---Goes on from the newest whole checkpoint of the folder, if there is one; from then on step() saves by itself, and saves and ends the run on SIGTERM. All ranks together.
---```lua
---local run = ms.trainer { model = ms.model("llama3-tiny"), data = ms.data.synthetic { batch_size = 1, seq_length = 4 } }
---run:durable("durable", { every = 2 })
---while run.steps < 3 do run:step() end
---print(run.steps)  --> 3
---```
---@param folder string
---@param options? moonshard.Trainer_durable_options
---@return integer?
function Trainer:durable(folder, options) end

---Waits for a save with wait = false, and says what became of it; `error` has the failures of earlier ones as well.
---```lua
---trainer:save("checkpoints", { wait = false })
---trainer:step()
---print(trainer:finish_save().error)  --> nil
---```
---@return table?
function Trainer:finish_save() end

---Trains until a step with a progress bar, evaluates, stops early, keeps the best checkpoint, and writes the curve into a run folder.
---```lua
---local learner = ms.trainer { model = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" }) }
---local fit = learner:fit { steps = 3, log = false, progress = false }
---print(fit.steps, fit.stopped)  --> 3	done
---```
---@param options moonshard.Trainer_fit_options
---@return Fit
function Trainer:fit(options) end

---Makes the parameters whole in the model, until the next step, for saving or reading them; all ranks together.
---```lua
---trainer:gather()
---print(model:parameter("model.norm.weight").numel)  --> 16
---```
function Trainer:gather() end

---The same from the trainer's model, whose parameters may be in parts: all ranks together share the prompts, and all get all texts.
---```lua
---local writing = ms.trainer { model = ms.model("llama3-tiny", { task = "lm", device = "cpu" }) }
---print(writing:generate({ prompt = { 1, 2, 3 }, max_new_tokens = 5, temperature = 0 }).new_tokens)  --> 5
---```
---@param options moonshard.Trainer_generate_options
---@return Generation
function Trainer:generate(options) end

---What the run has spent so far, and all that the claim rests on; without a claim the reason.
---```lua
---print(trainer:privacy().why_no_epsilon ~= nil)  --> true
---```
---@return table
function Trainer:privacy() end

---Goes on from a checkpoint, or from the newest in a folder: of any number of ranks and any sharding. All ranks together.
---```lua
---trainer:save("checkpoints")
---print(trainer:resume("checkpoints") == trainer.privacy_steps)  --> true
---```
---@param folder string
---@param options? moonshard.Trainer_resume_options
---@return integer?
function Trainer:resume(folder, options) end

---Writes a checkpoint of all that the next step depends on; it is there as a whole or not at all. All ranks together.
---```lua
---print(trainer:save("checkpoints", { keep = 3 }) ~= nil)  --> true
---```
---@param folder string
---@param options? moonshard.Trainer_save_options
---@return string
function Trainer:save(folder, options) end

---One training step on the data's next batch, or on a batch of your own: a table of tensors as data:next() gives.
---```lua
---local report = trainer:step()
---print(report.batch_size, #report.norms)  --> 2	2
---```
---@param batch? table<string, Tensor>
---@return table
function Trainer:step(batch) end

---The next steps (1) go into a Chrome trace, which is written after the last of them; a name that ends in .gz is compressed. Perfetto opens it.
---```lua
---trainer:trace("step.json.gz", 1)
---trainer:step()  -- step.json.gz opens in Perfetto
---```
---@param file string
---@param steps? integer
function Trainer:trace(file, steps) end

---Where a trainer's batches come from: ms.data.synthetic or ms.data.loader.
---@class Data
local Data = {}

---The next batch, a table of tensors.
---```lua
---print(data:next().input_ids.shape[2])  --> 8
---```
---@return table<string, Tensor>
function Data:next() end

---Examples read from files: ms.data.text or ms.data.classification.
---@class Dataset
local Dataset = {}

---These examples (numbers from 1) in this order, a table of tensors on the CPU.
---```lua
---print(ms.data.text { folder = "corpus", max_length = 8 }:batch({ 1, 2 }).input_ids.shape[1])  --> 2
---```
---@param examples integer[]
---@return table<string, Tensor>
function Dataset:batch(examples) end

---What was read and how: files, documents, tokens, what was passed over and repaired, the cache, the unit of privacy.
---```lua
---print(ms.data.text { folder = "corpus", max_length = 8 }:facts().documents)  --> 1
---```
---@return table
function Dataset:facts() end

---How many examples there are.
---```lua
---print(ms.data.text { folder = "corpus", max_length = 8 }:size() > 0)  --> true
---```
---@return number
function Dataset:size() end

---Turns text into ids and back; made by ms.tokenizer.
---@class Tokenizer
local Tokenizer = {}

---The bytes that ids stand for, special tokens written out.
---```lua
---print(ms.tokenizer("bytes"):decode { 72, 105 })  --> Hi
---```
---@param ids integer[]
---@param options? moonshard.Tokenizer_decode_options
---@return string
function Tokenizer:decode(ids, options) end

---The ids of a text, with the tokens that this tokenizer puts around a whole text unless special_tokens = false.
---```lua
---print(ms.tokenizer("bytes"):encode("A", { special_tokens = false })[1])  --> 65
---```
---@param text string
---@param options? moonshard.Tokenizer_encode_options
---@return integer[]
function Tokenizer:encode(text, options) end

---The id that ends a text, where the tokenizer has one of the usual names for it.
---```lua
---print(ms.tokenizer("bytes"):end_of_text())  --> 0
---```
---@return integer?
function Tokenizer:end_of_text() end

---The id of exactly this token.
---```lua
---print(ms.tokenizer("bytes"):id("A"))  --> 65
---```
---@param token string
---@return integer?
function Tokenizer:id(token) end

---One more than the largest id.
---```lua
---print(ms.tokenizer("bytes"):vocab_size() >= 256)  --> true
---```
---@return number
function Tokenizer:vocab_size() end

---Open files of weights; made by ms.weights.open.
---@class Weights
---@field path string the file or folder
---@field count integer number of tensors
---@field metadata table texts of the file's header
local Weights = {}

---Closes the files; what was read stays valid.
---```lua
---ms.weights.save("t.safetensors", { t = t })
---local file = ms.weights.open("t.safetensors")
---file:close()
---print(file)  --> Weights (closed)
---```
function Weights:close() end

---The names of all tensors, sorted.
---```lua
---ms.weights.save("t.safetensors", { b = t, a = t })
---print(ms.weights.open("t.safetensors"):names()[1])  --> a
---```
---@return table[]
function Weights:names() end

---Reads a tensor, as it is in the file, onto the CPU.
---```lua
---ms.weights.save("t.safetensors", { t = t })
---print(ms.weights.open("t.safetensors"):tensor("t"):sum():item())  --> 10
---```
---@param name string
---@return Tensor
function Weights:tensor(name) end

---Experiments over a grid, checked and not yet run; made by ms.sweep.
---@class Sweep
---@field name string name of the sweep, part of its folder's name
---@field points table[] planned points: id, options, asked, label
---@field axes string[] options that vary
local Sweep = {}

---Runs the points that have no good result yet, each in a process of its own, and returns all results.
---```lua
---local sweep = ms.sweep { model = "linear-tiny", hidden_dim = 8, device = "cpu", threads = 1, grid = { mode = { "none" } } }
---print(#sweep:run { timeout = 60 })  --> 1
---```
---@param options? moonshard.Sweep_run_options
---@return Runs
function Sweep:run(options) end

---Results of a run folder; made by ms.load or sweep:run(). #runs counts points, runs[1] is the first.
---@class Runs
---@field [integer] table points
---@field path string the run folder
---@field name string name of the sweep
---@field points table[] points: id, status, options, metrics, error, result (the whole record: ms.fields())
---@field axes string[] options that vary
---@field environment table the machine that it ran on
---@field tags string[] tags of the sweep
---@field note string? its note
---@field is_dry boolean? true after a dry run, which has no points
local Runs = {}

---The good point with the least median_time_ms, or with the best of another metric: the most of rates, shares of use and what is called accuracy, score or reward, the least of all others, unless most = true or least = true says it. nil when no point is good.
---```lua
---print(runs:best("peak_memory_mb").options.batch_size)  --> 8
---print(runs:best({ "peak_memory_mb", most = true }).options.batch_size)  --> 16
---```
---@param options? moonshard.Runs_best_options|string
---@return table?
function Runs:best(options) end

---How many points have a status: ok, oom, failed, timeout, skipped.
---```lua
---print(runs:count "ok")  --> 4
---```
---@param status string
---@return number
function Runs:count(status) end

---Tags and note of the sweep in one line.
---```lua
---print(runs:labels())  --> nil
---```
---@return string?
function Runs:labels() end

---Cost of each point against the baseline with the same other options.
---```lua
---print(runs:overhead { baseline = "none" }.columns[4])  --> time x
---```
---@param options? moonshard.Runs_overhead_options
---@return Table
function Runs:overhead(options) end

---Draws figures of these results as PNG, SVG or PDF files; all that they allow when none is named.
---```lua
---print(runs:plot("time_comparison")[1]:match("time_comparison"))  --> time_comparison
---```
---@param options? moonshard.Runs_plot_options|string
---@return string[]
function Runs:plot(options) end

---Titles and rows of runs:table().
---```lua
---local columns, rows = runs:rows()
---print(columns[1], #rows)  --> mode	4
---```
---@return string[]
---@return table[]
function Runs:rows() end

---Points of one status, or all that a function of a point accepts.
---```lua
---print(#runs:select(function(point) return point.options.mode == "ghost" end))  --> 2
---```
---@param filter string|fun(point: table): boolean
---@return table[]
function Runs:select(filter) end

---What a sweep writes to summary.txt and summary.md.
---```lua
---print((runs:summary():match("4 points, 4 ok")))  --> 4 points, 4 ok
---```
---@return string
---@return string
function Runs:summary() end

---All points as aligned text: axes, status, time with its spread, memory, throughput, loss, epsilon.
---```lua
---print(runs:table():match("median ms"))  --> median ms
---```
---@return string
function Runs:table() end

---The points as a table object: points, overhead, phases or memory.
---```lua
---print(#runs:tabulate("phases").rows > 0)  --> true
---```
---@param which? "points"|"overhead"|"phases"|"memory"
---@return Table
function Runs:tabulate(which) end

---A point of a run folder that a script writes itself; made by ms.log.run.
---@class RunLog
---@field path string? the run folder; nil in other ranks than the first, which write nothing
---@field id string? name of the point's folder
---@field options table what the script gave
---@field steps table[] steps so far
local RunLog = {}

---Ends the point without a result. Its steps stay.
---```lua
---print(ms.load(ms.log.run():fail("diverged"))[1].error)  --> diverged
---```
---@param reason string
---@return string
function RunLog:fail(reason) end

---Ends the point well, with metrics of your own; they are columns of tables and figures.
---```lua
---print(ms.load(ms.log.run():finish { score = 1 })[1].status)  --> ok
---```
---@param options? table
---@return string
function RunLog:finish(options) end

---Notes a step: its number, and figures by name. loss is drawn as any experiment's.
---```lua
---local run = ms.log.run()
---run:log(1, { loss = 2.5 })
---print(#run.steps)  --> 1
---```
---@param step number
---@param options? table
function RunLog:log(step, options) end

---Begins another point in the same folder.
---```lua
---local first = ms.log.run { options = { lr = 0.1 } }
---first:finish { score = 1 }
---print(#ms.load(first:point({ lr = 0.2 }):finish { score = 2 }))  --> 2
---```
---@param options? table
---@return RunLog
function RunLog:point(options) end

---Rows that print as aligned text: what analyses return.
---@class Table
---@field columns string[] titles
---@field rows table[] rows, each a list of values
---@field title string? line above it
---@field notes string[]? lines below it
local Table = {}

---The table in another format: text, md, latex, csv or json.
---```lua
---print(runs:overhead():to("csv"):match("^[^,]+"))  --> mode
---```
---@param format "text"|"md"|"latex"|"csv"|"json"
---@return string
function Table:to(format) end

---A figure in one or several files; made by ms.plot. Its list part are the paths, and it prints as these.
---@class Figure
---@field spec table its plot spec (docs/plots.md)
---@field look table scale and theme that it is drawn with
local Figure = {}

---Draws it into more files, by the endings of their names: .png, .svg, .pdf.
---```lua
---local figure = ms.plot { runs, x = "batch_size", y = "median_time_ms", group = "mode", out = "a.svg" }
---print(#figure:save("a.pdf"))  --> 2
---```
---@param path string
---@param ... string
---@return Figure
function Figure:save(path, ...) end

---Results side by side; made by ms.compare. Prints as tables.
---@class Comparison
---@field tables Table[] options that differ, then figures with ratios
---@field items table[] the results: name, status, options, metrics
local Comparison = {}

---Times of a trainer's steps; made by ms.profile. Prints as a table.
---@class Profile
---@field time table of a step in ms: count, mean, median, min, max, p95, iqr
---@field phases table the same of each phase, by name
---@field phase_order string[] phases in the order of a step
---@field loss number loss of the last step
---@field peak_memory_bytes integer most memory of any measured step
---@field warmup integer steps before measuring
local Profile = {}

---A model on a whole dataset; made by ms.evaluate. Prints as a table.
---@class Evaluation
---@field task string lm, classify, regress or denoise
---@field samples integer how many samples there were
---@field tokens integer? lm: predicted tokens
---@field loss number mean loss per token (lm) or sample
---@field perplexity number? lm: exp of the loss per token
---@field accuracy number? classify: share of samples that are right; micro_f1 is the same
---@field micro_f1 number? classify: F1 over all classes together
---@field macro_f1 number? classify: mean of the F1 scores of classes that occur
---@field classes table[]? classify: label, count, predicted, correct, precision, recall, f1, recall_interval, f1_interval
---@field confusion table[]? classify: [label][predicted], how many samples
---@field intervals table? low and high of 95 %, by the figure's name: Wilson's for accuracy, else a bootstrap over samples
---@field not_finite integer? samples without a finite loss, which are in no mean
---@field noise table? of noised figures: noise_multiplier, sensitivity, loss_bound, and deviations of loss and accuracy
---@field ["private"] boolean the figures are noised and charged to an account with a claim
---@field privacy string what of the figures is protected, and why not
local Evaluation = {}

---Texts that a model has made; made by Model:generate. Prints as these.
---@class Generation
---@field text string? of a single prompt: what was put behind it
---@field texts string[]? of each prompt; where there is a tokenizer
---@field ids table[] of each prompt: the new tokens, without the one that ended it
---@field ended string[] of each prompt: stop (by a stop token) or length (max_new_tokens)
---@field prompt_tokens integer tokens of all prompts
---@field new_tokens integer tokens that were made, stop tokens included
---@field seconds number all of it
---@field prefill_seconds number reading the prompts, up to the first token
---@field decode_seconds number the tokens behind it
---@field tokens_per_second number new tokens in all seconds
---@field cache_bytes integer of the KV cache
---@field graph string yes where tokens were replayed as a CUDA graph, else why not
---@field streamed boolean the text was shown as it came
local Generation = {}

---What training needs on a cluster, modelled; made by ms.plan. Prints as tables.
---@class Plan
---@field plans table[] what fits, fastest first: options, peak_memory_bytes, breakdown, step_ms, phases_ms, likely (90 %), run, tokens_per_sample, …
---@field best table? the first of them
---@field too_large table[] the fastest that do not fit; why says what is missing and what would help
---@field front table[] time against memory: no other is faster and smaller
---@field tried integer configurations that were predicted
---@field fits integer? of a search: how many of them fit
---@field refused integer? of a search: configurations whose options exclude each other
---@field machine table the machine's profile: name, device, source, measured, checked
---@field assumptions string[] what times and links are taken from
---@field memory_bytes number that a rank may use
---@field ranks integer GPUs of all nodes
---@field num_parameters integer of the model
---@field too_slow string? where no plan keeps within wall_time_h
local Plan = {}

---Every term of a plan: memory by owner, time by phase, the run, what is assumed.
---```lua
---local plan = ms.plan { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }
---print(plan:explain():match "^memory of a rank")  --> memory of a rank
---```
---@param place? integer
---@return string
function Plan:explain(place) end

---A plan that fits, by its place.
---```lua
---local plan = ms.plan { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }
---print(plan:row(1).fits)  --> true
---```
---@param place? integer
---@return table
function Plan:row(place) end

---The Lua script that runs a plan.
---```lua
---local plan = ms.plan { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }
---print(plan:script():match "ms%.run")  --> ms.run
---```
---@param place? integer
---@return string
function Plan:script(place) end

---Writes simulated steps as a run folder, marked as modelled: steps, out, name, place.
---```lua
---local plan = ms.plan { model = "llama3-tiny", gpu = "h200", batch_size = 2, seq_length = 16, search = false }
---print(plan:simulate({ steps = 2 }).points[1].options.world:match "^modelled")  --> modelled
---```
---@param options? table
---@return Runs
function Plan:simulate(options) end

---A sweep around a plan: its neighbours in batch, checkpointing and engine.
---```lua
---local plan = ms.plan { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }
---print(plan:sweep_script():match "ms%.sweep")  --> ms.sweep
---```
---@param place? integer
---@return string
function Plan:sweep_script(place) end

---Writes the simulated step as a Chrome trace, marked as modelled.
---```lua
---ms.plan({ model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }):trace(os.tmpname())
---```
---@param file string
---@param place? integer
function Plan:trace(file, place) end

---The critical path of a traced step; made by ms.trace.path. Prints as tables.
---@class TracePath
---@field step_ms number length of the step, and of the path
---@field kinds table[] its parts by kind (host, kernel, communication, memcpy, gap), largest first: name, ms, percent, count
---@field phases table[] the same by phase
---@field layers table[] the same by layer, where ranges name them; - where not
---@field names table[] the same by kernel, operator or gap, with its kind
---@field segments table[]? every part in the order of time: begin_ms, ms, kind, name, phase, layer, lane
---@field measured_ms number? median of the steps that were measured without a trace, where the point's result lies beside it
---@field steps integer steps in the trace
---@field step integer which of them
---@field graph_kernels integer kernels of it that CUDA graphs started
---@field events integer events in the file
---@field file string the trace
---@field what string? model and engine, in our own traces
---@field device string? the GPU's name
---@field rank integer? whose trace
---@field world integer number of ranks
---@field modelled boolean a plan's simulated step
---@field notes string[] what was not known
local TracePath = {}

---What a traced step would take after changes; made by ms.trace.what_if. Prints as text.
---@class TraceForecast
---@field step_ms number as traced
---@field predicted_ms number with the changes
---@field change_percent number of the traced step
---@field measured_ms number? median of the steps that were measured without a trace
---@field predicted_measured_ms number? what that median would be
---@field host_scale number? the host's time without the trace, of that in it: with it the graph gives the measured median
---@field removed_device_ms number work of the device that is gone, on the critical path or not
---@field removed_host_ms number the same of the host
---@field kinds table[] the critical path that would be, by kind
---@field notes string[] what was assumed, and what could not be answered
local TraceForecast = {}

---What differs between two traces; made by ms.trace.diff. Prints as tables.
---@class TraceDiff
---@field before table file, what, device, steps, step_ms, device_ms
---@field after table the same of the other
---@field phases table[] largest change first: name, before_ms, after_ms, change_ms, change_percent, before_count, after_count
---@field layers table[] the same by layer
---@field names table[] the same by kernel, with its kind; of traces without a GPU by operator
local TraceDiff = {}

---What Trainer:fit did. Prints as a line.
---@class Fit
---@field steps integer the last step's number
---@field stopped string why it ended: done, patience, on_step or on_evaluate
---@field evaluations table[] evaluations in order: step, result
---@field last Evaluation? the last of them
---@field best table? step, metric, value and, with option best, path of the checkpoint
---@field report table? of the last step
---@field folder string? the run folder with the curve
---@field seconds number how long it took
local Fit = {}

---@class moonshard
---@field version string the version of moonshard
---@field libtorch_version string the version of LibTorch that it runs with
local ms = {}

---Analyses of results: overhead, memory, stages, phases, scaling, tradeoff, bottleneck.
ms.analyze = {}

---Data: synthetic, text, classification, loader.
ms.data = {}

---Ranks of this job: rank, world, barrier, all_reduce, all_gather, broadcast. Start several with 'moonshard run --nproc N SCRIPT', torchrun, srun or mpirun.
ms.dist = {}

---Run folders that any script writes: ms.log.run.
ms.log = {}

---Optimizers: sgd, adam, adamw.
ms.optim = {}

---Budgets of differential privacy: what noised steps cost, and what a budget allows.
ms.privacy = {}

---What Chrome traces say, our own and PyTorch's: ms.trace.path, what_if, diff.
ms.trace = {}

---Files of weights: open, save, config, load.
ms.weights = {}

---What bounds each point: cause, evidence, advice.
---```lua
---print(ms.analyze.bottleneck(runs).findings ~= nil)  --> true
---```
---@param runs Runs
---@return table
function ms.analyze.bottleneck(runs) end

---The fit that ms.analyze.scaling uses, of two lists.
---```lua
---print(("%.1f"):format(ms.analyze.fit({ 1, 2, 4 }, { 2, 4, 8 }).exponent))  --> 1.0
---```
---@param x number[]
---@param y number[]
---@return table
function ms.analyze.fit(x, y) end

---Memory by owner at the moment of the peak.
---```lua
---print(#ms.analyze.memory(runs).rows > 0)  --> true
---```
---@param runs Runs
---@return Table
function ms.analyze.memory(runs) end

---Memory in GiB and time in % beyond the baseline with the same other options.
---```lua
---print(#ms.analyze.overhead(runs, { baseline = "none" }).rows > 0)  --> true
---```
---@param runs Runs
---@param options? moonshard.analyze_overhead_options
---@return Table
function ms.analyze.overhead(runs, options) end

---Median time of each phase of a step.
---```lua
---print(#ms.analyze.phases(runs).rows > 0)  --> true
---```
---@param runs Runs
---@return Table
function ms.analyze.phases(runs) end

---How time, memory and communication grow with an axis: exponent, its error, O(T) or O(T^2).
---```lua
---print(ms.analyze.scaling(runs, { axis = "batch_size" }).axis)  --> batch_size
---```
---@param runs Runs
---@param options? moonshard.analyze_scaling_options
---@return Table
function ms.analyze.scaling(runs, options) end

---Memory at the stages of each run.
---```lua
---print(#ms.analyze.stages(runs).rows > 0)  --> true
---```
---@param runs Runs
---@return Table
function ms.analyze.stages(runs) end

---Time and memory of each point, and which points no other one beats in both.
---```lua
---print(#ms.analyze.tradeoff(runs).rows)  --> 4
---```
---@param runs Runs
---@return Table
function ms.analyze.tradeoff(runs) end

---The numbers 0 to n - 1.
---```lua
---print(ms.arange(4):tolist()[4])  --> 3
---```
---@param n integer
---@param options? moonshard.arange_options
---@return Tensor
function ms.arange(n, options) end

---Puts canaries into real training steps by coin flips, guesses the coins from the weights, and gives lower bounds on epsilon beside the claim. A bound above it is a broken promise.
---```lua
---local found = ms.audit { engine = "ghost", seeds = 1, canaries = 20, trials = 4, secure = false, seed = 1, device = "cpu" }
---print(#found.audits)  --> 1
---```
---@param options moonshard.audit_options
---@return table
function ms.audit(options) end

---A clipping engine's options, checked. ms.engines() lists the engines.
---```lua
---print(ms.clip("flash", { max_grad_norm = 0.5, clipping = "per_layer" }).max_grad_norm)  --> 0.5
---print(ms.clip("auto", { groups = { { match = "*.bias", max_grad_norm = 0.5 } } }).clip_groups)  --> *.bias = 0.5
---```
---@param engine string
---@param options? moonshard.clip_options
---@return table
function ms.clip(engine, options) end

---Results side by side: the options that differ, then figures with ratios.
---```lua
---print(#ms.compare({ runs.path }, { metrics = { "median_time_ms" } }).items)  --> 4
---```
---@param paths string|string[]
---@param options? moonshard.compare_options
---@return Comparison
function ms.compare(paths, options) end

---Labelled texts of a .jsonl file with "text" and "label" on every line.
---```lua
---local reviews = ms.data.classification { file = "reviews.jsonl", max_length = 16, part = "all" }
---print(reviews:size())  --> 4
---```
---@param options moonshard.data_classification_options
---@return Dataset
function ms.data.classification(options) end

---Batches of a dataset for ms.trainer: fixed, shuffled or drawn by Poisson sampling, without which there is no epsilon.
---```lua
---local texts = ms.data.text { folder = "corpus", max_length = 8 }
---print(ms.data.loader { dataset = texts, sampler = "poisson", batch_size = 2 })  --> Data (poisson of … examples)
---```
---@param options moonshard.data_loader_options
---@return Data
function ms.data.loader(options) end

---Random batches of the model's shapes. No privacy claim comes with them.
---```lua
---print(ms.data.synthetic { model = model, batch_size = 3, seq_length = 4 }:next().input_ids.shape[1])  --> 3
---```
---@param options moonshard.data_synthetic_options
---@return Data
function ms.data.synthetic(options) end

---The text of a folder (.txt, .json, .jsonl) as samples for a language model.
---```lua
---local texts = ms.data.text { folder = "corpus", max_length = 8, tokenizer = "bytes" }
---print(texts)  --> Dataset of … examples
---```
---@param options moonshard.data_text_options
---@return Dataset
function ms.data.text(options) end

---For ms.trainer's `parallel`: whole copies, gradients summed over ranks.
---```lua
---print(ms.ddp { bucket_mb = 10 }.parallel)  --> ddp
---```
---@param options moonshard.ddp_options
---@return table
function ms.ddp(options) end

---Every rank's value, by rank: numbers, lists of numbers or Tensors of one size.
---```lua
---print(ms.dist.all_gather(ms.dist.rank())[1])  --> 0
---```
---@param value any
---@return table[]
function ms.dist.all_gather(value) end

---The sum over ranks (or mean, max, min) of a number, a list of numbers or a Tensor.
---```lua
---print(ms.dist.all_reduce(3), ms.dist.all_reduce({ 1, 2 }, "max")[2])  --> 3	2
---```
---@param value any
---@param reduction? "sum"|"mean"|"max"|"min"
---@return any
function ms.dist.all_reduce(value, reduction) end

---Waits until every rank is here.
---```lua
---ms.dist.barrier()
---```
function ms.dist.barrier() end

---The value of rank `root` (0) on every rank; all give one of the same kind and size.
---```lua
---print(ms.dist.broadcast(7, 0))  --> 7
---```
---@param value any
---@param root? integer
---@return any
function ms.dist.broadcast(value, root) end

---This process's rank on its machine.
---```lua
---print(ms.dist.local_rank())  --> 0
---```
---@return number
function ms.dist.local_rank() end

---This process's rank, from 0.
---```lua
---print(ms.dist.rank())  --> 0
---```
---@return number
function ms.dist.rank() end

---The number of ranks; 1 without a launcher.
---```lua
---print(ms.dist.world())  --> 1
---```
---@return number
function ms.dist.world() end

---Documentation of a function or table of this module.
---```lua
---print(ms.doc_of(ms.zeros).name)  --> ms.zeros
---```
---@param value any
---@return table?
function ms.doc_of(value) end

---Documents a function or table of your own, so that help() knows it; a text documents what it names.
---```lua
---local function double(x) return 2 * x end
---ms.document(double, "double", "double(x) -> number", "Twice a number.")
---print(ms.doc_of(double).signature)  --> double(x) -> number
---```
---@param value any
---@param name string
---@param signature string
---@param text string
function ms.document(value, name, signature, text) end

---The clipping engines, each with the layers, models, options and dtypes that moonshard verify proves it on. print shows a table.
---```lua
---print(ms.engines()[3].name, ms.engines()[3].private)  --> ghost	true
---```
---@return table[]
function ms.engines() end

---Loss, perplexity, accuracy and F1 of a whole dataset, by class, with 95 % intervals. Of a trainer all ranks together, also in parts; noise_multiplier noises the figures and charges them to its account. print shows a table.
---```lua
---local linear = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" })
---local batches = { ms.data.synthetic({ model = linear, batch_size = 4 }):next() }
---print(ms.evaluate(linear, batches).samples)  --> 4
---```
---@param subject Model|Trainer
---@param dataset Dataset|table[]
---@param options? moonshard.evaluate_options
---@return Evaluation
function ms.evaluate(subject, dataset, options) end

---What each field of a result.json means; with a text, those whose path contains it. print shows a table.
---```lua
---print(ms.fields("median_time_ms")[1].unit)  --> ms
---```
---@param text? string
---@return table[]
function ms.fields(text) end

---The largest batch_size that fits, by trying, each try in a process of its own. Other keys are experiment options.
---```lua
---local found = ms.find_max_batch { model = "linear-tiny", hidden_dim = 8, device = "cpu", high = 2, verify = false, quiet = true }
---print(found.batch_size)  --> 2
---```
---@param options moonshard.find_max_batch_options
---@return table
function ms.find_max_batch(options) end

---For ms.trainer's `parallel`: parameters, gradients and optimizer state in parts.
---```lua
---print(ms.fsdp { sharding = "zero2", cpu_offload = true }.parallel)  --> fsdp
---```
---@param options moonshard.fsdp_options
---@return table
function ms.fsdp(options) end

---GPUs as the driver sees them: name, memory, utilisation, processes. Makes no CUDA context; absence says why there are none.
---```lua
---print(ms.gpus().gpus ~= nil)  --> true
---```
---@return table
function ms.gpus() end

---The record of the last ms.run that was interrupted: status interrupted, its steps and what they measured. print shows a table.
---```lua
---print((pcall(ms.last_run)))  --> false
---```
---@return table
function ms.last_run() end

---The results in a run folder: runs:overhead{}, runs:plot(name), runs:table(). A list of folders: all their points, with the axis run.
---```lua
---print(#ms.load(runs.path))  --> 4
---print(#ms.load { runs.path, runs.path })  --> 8
---```
---@param folder string|string[]
---@return Runs
function ms.load(folder) end

---A run folder with a point of this script, without a sweep: run:log(step, { loss = … }), then run:finish { score = … } or run:fail(reason). ms.load, tables, plots and the viewer read it as any other; an interrupted one keeps its steps.
---```lua
---local run = ms.log.run { name = "mine", options = { lr = 0.1 } }
---for step = 1, 3 do run:log(step, { loss = 1 / step }) end
---print(ms.load(run:finish { score = 0.9 }):best("score").status)  --> ok
---```
---@param options moonshard.log_run_options
---@return RunLog
function ms.log.run(options) end

---This machine and program: versions, CPU, memory, GPUs.
---```lua
---print(ms.machine().moonshard == ms.version)  --> true
---```
---@return table
function ms.machine() end

---Bytes held now: by host tensors (with their peak), by this process, by Lua.
---```lua
---print(ms.memory().cpu_allocated_bytes > 0)  --> true
---```
---@return table
function ms.memory() end

---Builds a model with random weights from its seed, or with `weights` from a file or folder. ms.models() lists the names; a folder with config.json is a name, too.
---```lua
---print(ms.model("llama3-tiny", { task = "lm", num_layers = 1, device = "cpu" }))  --> Model llama3-tiny (lm, …
---```
---@param name string
---@param options? moonshard.model_options
---@return Model
function ms.model(name, options) end

---The model presets with their sizes. print shows a table.
---```lua
---print(ms.models()[1].name)  --> llama3.1-8b
---```
---@return table[]
function ms.models() end

---A tensor of ones.
---```lua
---print(ms.ones({ 2, 3 }, { dtype = "float64" }):sum():item())  --> 6
---```
---@param sizes integer|integer[]
---@param options? moonshard.ones_options
---@return Tensor
function ms.ones(sizes, options) end

---Adam, fused; weight decay is added to the gradient.
---```lua
---print(ms.optim.adam { lr = 1e-3 }.optimizer)  --> adam
---```
---@param options moonshard.optim_adam_options
---@return table
function ms.optim.adam(options) end

---AdamW, fused.
---```lua
---print(ms.optim.adamw { lr = 1e-3, weight_decay = 0.1 }.optimizer)  --> adamw
---```
---@param options moonshard.optim_adamw_options
---@return table
function ms.optim.adamw(options) end

---Stochastic gradient descent.
---```lua
---print(ms.optim.sgd { lr = 0.1, momentum = 0.9 }.momentum)  --> 0.9
---```
---@param options moonshard.optim_sgd_options
---@return table
function ms.optim.sgd(options) end

---Names of all experiment options.
---```lua
---print(ms.option_names()[1])  --> model
---```
---@return table[]
function ms.option_names() end

---All experiment options with type, default and meaning. print shows a table.
---```lua
---print(ms.options()[1].name, ms.options()[1].default)  --> model	llama3-tiny
---```
---@return table[]
function ms.options() end

---The options of a function or method: name, kind, type, default, choices, doc.
---```lua
---print(ms.options_of(ms.optim.adam)[1].name)  --> lr
---```
---@param of function|string
---@return table[]?
function ms.options_of(of) end

---Memory by owner, time by phase, GPU hours, price and epsilon of training on a cluster, before anything runs, and the fastest configurations that fit. Other keys are experiment options: what is given stays, what is not is searched. print shows a table.
---```lua
---local plan = ms.plan { model = "llama3.1-8b", mode = "bookkeeping", gpu = "h200", gpus = 8, global_batch = 64, seq_length = 1024 }
---print(plan.best.options.parallel)  --> fsdp
---```
---@param options moonshard.plan_options
---@return Plan
function ms.plan(options) end

---A figure of your own as PNG, SVG or PDF. data: a list of rows, a table of columns, results (ms.load; x = "step" takes their steps) or a Table of an analysis.
---```lua
---local rows = { { step = 1, loss = 3.1, mode = "none" }, { step = 2, loss = 2.4, mode = "none" }, { step = 1, loss = 3.3, mode = "ghost" } }
---print(ms.plot { rows, x = "step", y = "loss", group = "mode", title = "Loss", out = { "loss.pdf", "loss.svg" } })  --> loss.pdf
-----> loss.svg
---```
---@param options moonshard.plot_options
---@return Figure
function ms.plot(options) end

---Finds the one of q, sigma and steps that is left out: the least noise, or the most steps or the largest rate, whose epsilon is at most the target.
---```lua
---local found = ms.privacy.calibrate { q = 0.01, steps = 1000, delta = 1e-5, target_epsilon = 2 }
---print(("%.1f"):format(found.sigma))  --> 1.0
---```
---@param options moonshard.privacy_calibrate_options
---@return table
function ms.privacy.calibrate(options) end

---Epsilon of Poisson-sampled steps: q is batch size over samples, sigma the noise multiplier. method is rdp, prv (the default), pld, gaussian (q = 1 alone) or gdp, which is an approximation and no guarantee. phases = { { q, sigma, steps }, ... } instead of the three is a history; orders are of rdp.
---```lua
---local spent = ms.privacy.epsilon { q = 0.01, sigma = 1, steps = 1000, delta = 1e-5 }
---print(("%.1f"):format(spent.epsilon))  --> 1.8
---```
---@param options moonshard.privacy_epsilon_options
---@return table
function ms.privacy.epsilon(options) end

---Times a trainer's steps: median, IQR and share of each phase, memory, loss. print it.
---```lua
---print(ms.profile(trainer, { iters = 2, warmup = 1 }).time.count)  --> 2
---```
---@param trainer Trainer
---@param options? moonshard.profile_options
---@return Profile
function ms.profile(trainer, options) end

---Normal random numbers; the same seed gives the same numbers.
---```lua
---print(ms.randn({ 2 }, 1):sub(ms.randn({ 2 }, 1)):norm():item())  --> 0
---```
---@param sizes integer|integer[]
---@param seed? integer
---@param options? moonshard.randn_options
---@return Tensor
function ms.randn(sizes, seed, options) end

---What one rank of so many holds between steps, without running anything; beside it what the same job holds in PyTorch.
---```lua
---print(ms.rank_memory({ ranks = 8, model = "llama3.2-1b", parallel = "fsdp" }).parameter_bytes > 0)  --> true
---```
---@param options moonshard.rank_memory_options
---@return table<string, integer>
function ms.rank_memory(options) end

---Adds a clipping engine: norms(layer, a, g) gives each sample's squared norm [B] of a layer; keep = "inputs" sums from what was kept, "nothing" by a second backward pass. false takes it away.
---```lua
---local function norms(_, a, g) return a:norm(2):norm(2):mul(g:norm(2):norm(2)) end  -- an upper bound, for the sake of shortness
---ms.register_engine("mine", { norms = norms, doc = "an upper bound" })
---print(ms.clip("mine").mode)  --> mine
---ms.register_engine("mine", false)
---```
---@param name string
---@param options moonshard.register_engine_options|false
function ms.register_engine(name, options) end

---Sets the gradient rule of a kind of layers: per_sample(layer, a, g) gives each sample's gradient [B, shape of the weight], squares(layer, a, g) its squared norm [B]. false removes the rule.
---```lua
---ms.register_rule("my_linear", { per_sample = function(_, a, g) return g:transpose():matmul(a) end })
---ms.register_rule("my_linear", false)
---```
---@param kind string
---@param options moonshard.register_rule_options|false
function ms.register_rule(kind, options) end

---One self-contained page of a run, report.html: tables, verdicts, figures, failures, environment, commands.
---```lua
---print(ms.report(runs, { output = "report.html" }))  --> report.html
---```
---@param folder string
---@param options? moonshard.report_options
---@return string
function ms.report(folder, options) end

---Checks options without running: the effective ones, and the id that names them.
---```lua
---print(ms.resolve({ model = "llama3-tiny", device = "cpu" }).options.seq_length)  --> 128
---```
---@param options moonshard.resolve_options
---@return table
function ms.resolve(options) end

---The kinds of layers that have a gradient rule.
---```lua
---print(#ms.rules() > 5)  --> true
---```
---@return table[]
function ms.rules() end

---Runs one experiment here and returns its record. Out of memory is a status, not an error. ms.options() lists all options. Ctrl-C raises an error; ms.last_run() has the steps until then. print shows a table.
---```lua
---local result = ms.run { model = "linear-tiny", hidden_dim = 8, mode = "ghost", device = "cpu", iters = 2 }
---print(result.status, result.options.mode)  --> ok	ghost
---```
---@param options moonshard.run_options
---@return table
function ms.run(options) end

---Calls fn; frees the tensors made inside, except those it returns.
---```lua
---print(ms.scope(function() return (t + 1):sum() end):item())  --> 14
---```
---@param fn function
---@return any
function ms.scope(fn) end

---Functions, options and fields of records that a text is part of, by name or meaning. print shows a table.
---```lua
---print(ms.search("lr_schedule")[1].name)  --> option lr_schedule of ms.optim.adam, …
---```
---@param text string
---@return table[]
function ms.search(text) end

---Memory over time of a PyTorch memory snapshot (.pickle), whoever wrote it: ms, total, places, order, peak_bytes.
---```lua
---print(ms.snapshot("snapshot.pickle").peak_bytes > 0)  --> true
---```
---@param file string
---@return table
function ms.snapshot(file) end

---A grid of experiments, or of points of your own (run), each in a process of its own. sweep:run { resume, retry, timeout, … } returns the results; every other key is an experiment option (ms.options()).
---```lua
---local sweep = ms.sweep { model = "llama3-tiny", device = "cpu", grid = { mode = { "none", "ghost", "flash" }, seq_length = { 64, 128 } } }
---print(sweep)  --> Sweep : 6 points over mode x seq_length
---```
---@param options moonshard.sweep_options
---@return Sweep
function ms.sweep(options) end

---A tensor from a number or nested tables. Methods: add sub mul div matmul neg abs sqrt exp log sum mean max min norm item tolist reshape transpose select to clone free.
---```lua
---print(ms.tensor({ { 1, 2 }, { 3, 4 } }).shape[2])  --> 2
---```
---@param numbers number|table
---@param options? moonshard.tensor_options
---@return Tensor
function ms.tensor(numbers, options) end

---The tokenizer of bytes, of a tokenizer.json (BPE: Llama 2 and 3, Qwen 2, Gemma, GPT-2), or of a folder that has one.
---```lua
---print(ms.tokenizer "bytes")  --> Tokenizer bytes (… ids)
---```
---@param name "bytes"|string
---@return Tokenizer
function ms.tokenizer(name) end

---What differs between two traces by phase, layer and kernel, largest change first; figures are of one step. print shows tables.
---```lua
---local file = os.tmpname()
---ms.plan({ model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }):trace(file)
---print(ms.trace.diff(file, file).phases[1].change_ms)  --> 0
---```
---@param before string
---@param after string
---@param options? moonshard.trace_diff_options
---@return TraceDiff
function ms.trace.diff(before, after, options) end

---The critical path of a traced step: what it waited for, by kind, phase, layer and kernel. path: a trace, the folder of a point, or of a run with one. print shows tables.
---```lua
---local file = os.tmpname()
---ms.plan({ model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }):trace(file)
---print(ms.trace.path(file).kinds[1].name)  --> kernel
---```
---@param path string
---@param options? moonshard.trace_path_options
---@return TracePath
function ms.trace.path(path, options) end

---What a traced step would take if some of it were faster or not there, from the graph of what waited for what. print shows it.
---```lua
---local file = os.tmpname()
---ms.plan({ model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, search = false }):trace(file)
---local forecast = ms.trace.what_if(file, { phases = { backward = 0.5 } })
---print(forecast.predicted_ms < forecast.step_ms)  --> true
---```
---@param path string
---@param options? moonshard.trace_what_if_options
---@return TraceForecast
function ms.trace.what_if(path, options) end

---Puts a model, a clipping engine, an optimizer, data and a wrapper together.
---```lua
---local clip, optimizer = ms.clip("ghost", { max_grad_norm = 1 }), ms.optim.adamw { lr = 1e-3 }
---local private = ms.trainer { model = model, data = data, clip = clip, optimizer = optimizer }
---print(private.engine, private.private)  --> ghost	true
---```
---@param options moonshard.trainer_options
---@return Trainer
function ms.trainer(options) end

---Words that completion offers for a text: of an option by its name, of a function's argument by the function's.
---```lua
---print(ms.values_of("tokenizer")[1])  --> bytes
---```
---@param name string
---@param position? integer
---@return table[]?
function ms.values_of(name, position) end

---Compares engines with batch-of-one gradients by plain autograd, cell by cell.
---```lua
---local found = ms.verify { model = "linear-tiny", engine = "ghost", options = "default", dtype = "float64", device = "cpu" }
---print(found.failed)  --> 0
---```
---@param options moonshard.verify_options
---@return table
function ms.verify(options) end

---Model options from a folder's config.json (llama, qwen2, gemma, dit, linear).
---```lua
---model:save("saved")
---print(ms.weights.config("saved").hidden_dim)  --> 16
---```
---@param folder string
---@return table
function ms.weights.config(folder) end

---Builds the model of a Hugging Face folder and loads its weights; options given here win over its config.json.
---```lua
---model:save("saved")
---print(ms.weights.load("saved", { device = "cpu" }).num_parameters == model.num_parameters)  --> true
---```
---@param folder string
---@param options? moonshard.weights_load_options
---@return Model
function ms.weights.load(folder, options) end

---Opens a .safetensors file, an index of shards, or a folder with such files.
---```lua
---model:save("saved")
---print(ms.weights.open("saved").count == #model.parameters)  --> true
---```
---@param path string
---@return Weights
function ms.weights.open(path) end

---Writes one safetensors file, whole or not at all. Metadata are texts.
---```lua
---ms.weights.save("t.safetensors", { t = t }, { author = "me" })
---print(ms.weights.open("t.safetensors").metadata.author)  --> me
---```
---@param path string
---@param tensors table<string, Tensor>
---@param metadata? table<string, string>
function ms.weights.save(path, tensors, metadata) end

---A tensor of zeros.
---```lua
---print(ms.zeros({ 2, 3 }).numel)  --> 6
---```
---@param sizes integer|integer[]
---@param options? moonshard.zeros_options
---@return Tensor
function ms.zeros(sizes, options) end

return ms
