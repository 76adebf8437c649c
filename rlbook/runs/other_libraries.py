"""Other libraries' names that are neither a hyper-parameter nor an option here, and their
equivalents: of Stable-Baselines3, CleanRL, Spinning Up, Tianshou, RLlib, TRL, gymnasium and
scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable

from rlbook.agent import Agent
from rlbook.checks import name_hint, names_or_help, synonyms
from rlbook.hyperparameters import field_names
from rlbook.registry import name_of

METRICS = "its numbers are run.metrics, a list of dicts, which pandas.DataFrame takes"
WEIGHTS = "the weights are run.agent.state_dict()"
OF_A_RUN = {
    "get_parameters": WEIGHTS,
    "get_weights": WEIGHTS,
    "set_parameters": "run.agent.load_state_dict(…) takes weights, and rlbook.train(…, start=run)"
    " begins with those of a run",
    "save_replay_buffer": "run.save(folder) keeps the replay buffer, too",
    "load_replay_buffer": "rlbook.load(folder) brings back the replay buffer, too",
    "replay_buffer": "run.save(folder) and rlbook.load(folder) keep it with the run",
    "set_env": "a run keeps its environment; rlbook.train(…, env, start=run) trains its policy in"
    " another one",
    "get_vec_normalize_env": "observations are normalised inside the agent, with"
    " normalize_observation=True",
    "policy": "its networks are run.agent.policy, and run.predict(observation) acts",
    "logger": METRICS,
    "history": METRICS,
    "results": METRICS,
    "log": METRICS,
    "df": METRICS,
    "dataframe": METRICS,
    "to_dataframe": METRICS,
    "to_pandas": METRICS,
    "to_csv": METRICS,
    "log_to_csv": METRICS,
    "loss_curve_": METRICS,
    "set_logger": 'rlbook.train(…, track="tensorboard") logs there, and run.metrics has the numbers',
    "set_random_seed": "rlbook.train(…, seed=1) seeds all that is random",
    "num_timesteps": "its steps are run.steps",
    "rewards": "returns are run.episode_returns, one for each training episode",
    "score": "run.evaluate(episodes=100).mean is its mean return",
    "test": "run.evaluate(episodes=100) plays greedy episodes",
    **dict.fromkeys(("observation_space", "action_space"), "run.make_env() has it"),
    "seed": "it is run.request.seed",
    **dict.fromkeys(("n_envs", "num_envs"), "it is run.request.num_envs"),
    "device": "it is run.request.options.device",
    **dict.fromkeys(
        ("gamma", "learning_rate", "n_steps", "batch_size"),
        "its hyper-parameters are run.agent.config",
    ),
    "ep_info_buffer": "returns are run.episode_returns, one for each training episode",
    **dict.fromkeys(
        ("optimizer", "network", "actor", "critic"), "its networks are those of run.agent"
    ),
    **dict.fromkeys(
        ("q_table", "Q", "values"),
        "a table of values is run.agent.action_values() or run.agent.values(), where the agent has"
        " one",
    ),
    "algorithm": "its name is run.request.algorithm",
    "best": 'rlbook.load(folder, checkpoint="best") loads the best',
    "load": "rlbook.load(folder)",
    **dict.fromkeys(("path", "out", "dir"), "its folder is run.folder"),
    "predict_proba": "run.agent.policy.distribution(observations) has the probabilities, where the"
    " agent has a policy",
    "config": "its hyper-parameters are run.agent.config",
    "get_params": "its hyper-parameters are run.agent.config",
    "set_params": "a run keeps its hyper-parameters; rlbook.train(…, start=run) begins a new one"
    " with its networks",
    "act": "run.predict(observation) acts",
    "compute_single_action": "run.predict(observation) acts",
    "compute_actions": "run.predict(observations) acts on a batch, too",
    "get_policy": "its networks are run.agent.policy",
    "get_module": "its networks are run.agent.policy",
    "generate": 'run.predict("12+34=") completes a prompt, and run.evaluate(samples=8) all that are'
    " held out",
    "env": "run.make_env() makes one",
    "render": "run.watch() shows it act, and run.watch(gif=file) writes the film",
    "save_model": "run.save(folder) saves it, and `rlbook export` writes a language model",
    "save_pretrained": "it is a command: rlbook export FOLDER OUT",
    "push_to_hub": "`rlbook export FOLDER OUT` writes a folder that huggingface_hub can upload",
    "save_checkpoint": "run.save(folder)",
    "close": "there is nothing to close",
    **dict.fromkeys(("diagnose", "diagnosis", "doctor"), "it is a command: rlbook doctor FOLDER"),
    "stop": 'a callback that returns "stop" ends it',
}
"""Attributes of a run."""
PROMPTS = {"PPO": "ppo", "GRPO": "grpo", "RLOO": "rloo"}
"""TRL's names of trainers that learn from prompts and rewards."""
ANSWERS = {"DPO": "dpo", "KTO": "kto", "ORPO": "orpo", "SFT": "sft", "Reward": "reward_model"}
"""TRL's names of trainers that learn from answers."""
EVAL_CALLBACK = (
    "rlbook.train(…, eval_every=1000, eval_episodes=5, out=folder) evaluates and keeps the best,"
    ' which rlbook.load(folder, checkpoint="best") reads'
)
SEVERAL = 'rlbook.train("ppo", "CartPole-v1", num_envs=4) makes them'
IN_PROCESSES = 'rlbook.train("ppo", "CartPole-v1", num_envs=8, workers=8) makes them'
FILM = "rlbook.load(folder).watch(gif=file) writes the film of a trained agent"
RECORDED = "returns and lengths are always recorded: run.episode_returns, run.episode_lengths"
BUFFER = "rlbook.train(…, buffer_size=100_000) makes it; rlbook.data has replay buffers"
TRAIN = 'rlbook.train("ppo", "CartPole-v1") trains'
OF_THE_PACKAGE = {
    "evaluate_policy": "rlbook.evaluate(run, episodes=10)",
    "make_vec_env": SEVERAL,
    "make_vec": SEVERAL,
    "DummyVecEnv": SEVERAL,
    "DummyVectorEnv": SEVERAL,
    "SyncVectorEnv": SEVERAL,
    "SubprocVecEnv": IN_PROCESSES,
    "SubprocVectorEnv": IN_PROCESSES,
    "AsyncVectorEnv": IN_PROCESSES,
    "VecNormalize": "rlbook.train(…, normalize_observation=True, normalize_reward=True)",
    "VecFrameStack": "rlbook.train(…, frame_stack=4)",
    "Monitor": RECORDED,
    "RecordEpisodeStatistics": RECORDED,
    "RecordVideo": FILM,
    "VecVideoRecorder": FILM,
    "EvalCallback": EVAL_CALLBACK,
    "CheckpointCallback": "rlbook.train(…, out=folder) writes checkpoints",
    "StopTrainingOnRewardThreshold": "rlbook.train(…, stop_at_return=475)",
    "BaseCallback": "any object with on_report, on_episode or on_evaluation is a callback",
    "TrainerCallback": "any object with on_report, on_episode or on_evaluation is a callback",
    "ActorCriticPolicy": 'rlbook.train(…, model={"network": MyFeatures})',
    "BaseFeaturesExtractor": 'rlbook.train(…, model={"network": MyFeatures})',
    "NormalActionNoise": "rlbook.train(…, exploration_noise=0.1)",
    "configure": 'rlbook.train(…, track="tensorboard", out=folder)',
    "RecurrentPPO": 'rlbook.train("ppo", …, recurrent="lstm")',
    "MaskablePPO": 'rlbook.train("ppo", …) reads an action mask where the environment shows one',
    "HerReplayBuffer": "hindsight experience replay is not part of rlbook",
    "ReplayBuffer": BUFFER,
    "VectorReplayBuffer": BUFFER,
    "Collector": f"{TRAIN}, and rlbook.evaluate(run, episodes=10) plays",
    "OnpolicyTrainer": TRAIN,
    "OffpolicyTrainer": TRAIN,
    "PPOPolicy": TRAIN,
    "Algorithm": TRAIN,
    "Trainer": TRAIN,
    **{
        f"{name}Trainer": f'rlbook.train("{algorithm}", "Chat-v0", model="a/model",'
        ' env_kwargs={"data": "rows.jsonl", "reward": "numeric"})'
        for name, algorithm in PROMPTS.items()
    },
    **{
        f"{name}Trainer": f'rlbook.train("{algorithm}", "Chat-v0", model="a/model",'
        ' data="rows.jsonl")'
        for name, algorithm in ANSWERS.items()
    },
    **{
        f"{name}Config": f'hyper-parameters are arguments: rlbook.train("{algorithm}", …,'
        " learning_rate=1e-5)"
        for name, algorithm in (PROMPTS | ANSWERS | {"DQN": "dqn", "SAC": "sac"}).items()
    },
    "Tuner": "it is a command: rlbook tune ppo CartPole-v1 --trials 20",
    "GridSearchCV": "it is a command: rlbook tune ppo CartPole-v1 --trials 20",
    "tune": "it is a command: rlbook tune ppo CartPole-v1 --trials 20",
    "Env": "derive your environment from gymnasium.Env, and give rlbook.train its class",
    "Wrapper": "it is gymnasium.Wrapper; rlbook.train takes a wrapped environment",
    "wrappers": "they are gymnasium.wrappers; rlbook.train takes a wrapped environment",
    "vector": "it is gymnasium.vector; rlbook.train(…, num_envs=4) makes several environments",
    "spaces": "they are gymnasium.spaces",
    "register": "gymnasium.register names an environment, and rlbook.registry.register an"
    " algorithm; rlbook.train takes classes without",
    "check_env": "gymnasium.utils.env_checker.check_env checks an environment",
    "save": "run.save(folder)",
    "play": "it is a command: rlbook play",
    **dict.fromkeys(("diagnose", "doctor"), "it is a command: rlbook doctor FOLDER"),
    "make_env": 'rlbook.make("CartPole-v1")',
    "gym": "it is a package of its own: import gymnasium",
    "LoraConfig": 'rlbook.train(…, model={"adapter": {"r": 16}})',
    "Batch": "arrays of NumPy are taken and given",
    "CallbackList": "rlbook.train(…, callbacks=[one, other])",
    "ProgressBarCallback": "rlbook.train(…, quiet=False) shows a bar",
    "StopTrainingOnMaxEpisodes": "rlbook.train(…, episodes=100)",
    "OrnsteinUhlenbeckActionNoise": "rlbook.train(…, exploration_noise=0.1)",
    "RolloutBuffer": "rlbook.train(…, rollout_steps=128) sets its length",
    "make_atari_env": 'rlbook.train("dqn", "ALE/Pong-v5", frame_stack=4, grayscale=True, resize=84)',
    "ExperimentGrid": "`rlbook train ppo CartPole-v1 --seeds 5` trains several, and rlbook tune"
    " searches",
    "seed_everything": "rlbook.train(…, seed=1) seeds all that is random",
    "set_random_seed": "rlbook.train(…, seed=1) seeds all that is random",
}
"""Names to be imported from their modules."""
SDE = "state-dependent exploration (gSDE) is not part of rlbook"
REPORTS = "a line is logged a hundred times in a run, whatever its length"
CHECKPOINTS = "a checkpoint is written with each evaluation (eval_every) into the folder out"
WRAPPED = "give a wrapped environment, or a function that makes one, in place of the id"
WRITTEN = "nothing is uploaded; the run's folder holds everything"
PLACES = 'algorithm and environment come first, in this order, such as "ppo" and "CartPole-v1"'
OF_TRAINING = {
    "use_sde": SDE,
    "sde_sample_freq": SDE,
    "use_sde_at_warmup": SDE,
    "wrapper_class": WRAPPED,
    "wrapper_kwargs": WRAPPED,
    "env_wrapper": WRAPPED,
    "wrappers": WRAPPED,
    "capture_video": "`rlbook watch FOLDER --gif FILE`, in Python run.watch(gif=…), films it"
    " afterwards",
    "render": "`rlbook watch FOLDER`, in Python run.watch(), shows it afterwards",
    "render_mode": "`rlbook watch FOLDER`, in Python run.watch(), shows it afterwards",
    "torch_deterministic": "the same seed gives the same bytes without it",
    "log_interval": REPORTS,
    "log_freq": REPORTS,
    "logging_steps": REPORTS,
    "logging_strategy": REPORTS,
    "stats_window_size": "the log has means over each report, and episodes.csv every episode",
    "save_steps": CHECKPOINTS,
    "save_strategy": CHECKPOINTS,
    "checkpoint_freq": CHECKPOINTS,
    "upload_model": WRITTEN,
    "push_to_hub": WRITTEN,
    "hf_entity": WRITTEN,
    "eval_env": "evaluation makes an environment of its own",
    "eval_dataset": "some rows of data are held out for evaluation",
    "eval_strategy": "eval_every says after how many steps it is evaluated, and 0 never",
    "return_episode_rewards": "the return of every episode is in evaluation.returns",
    "framework": "there is one, torch",
    "optim": "the optimiser is Adam, and AdamW with weight_decay",
    "dataset_text_field": "rows of `text` alone are learned whole",
    **dict.fromkeys(("env", "env_id", "env_name", "gym_id"), PLACES),
    **dict.fromkeys(("algo", "algorithm", "run"), PLACES),
    "n_critics": "there are two critics, always",
    "epoch_num_steps": "steps is the length of the whole run",
    "step_per_epoch": "steps is the length of the whole run",
    "max_epoch": "steps is the length of the whole run",
    "training_iteration": "steps is the length of the whole run",
    "multiagent": "several agents are not part of rlbook",
    "tokenizer": "a model's folder holds its tokenizer",
    "processing_class": "a model's folder holds its tokenizer",
    "x": "recorded data is given as data",
    "y": "recorded data is given as data",
}
"""Arguments of `rlbook.train` and of other libraries' trainers."""
LEARNED_ALPHA = "its α is temperature, or initial_temperature where it is learned"
OF_ALGORITHMS = {"sac": {"alpha": LEARNED_ALPHA}, "mbpo": {"alpha": LEARNED_ALPHA}}
"""The same for arguments with a meaning in one algorithm only."""


def hint_of(name: str, valid_names: Iterable[str], algorithm: str | None = None) -> str:
    """The ending of an error message about an unknown option or hyper-parameter; "" if nothing is
    known about it.

    Args:
        name: as it was typed, with or without dashes.
        valid_names: what there is, as it would be typed.
        algorithm: the one that is to be trained.
    """
    return name_hint(name, OF_ALGORITHMS.get(str(algorithm), {}) | OF_TRAINING, valid_names)


def unknown_hyperparameter(agent: type[Agent], name: str, options: Iterable[str] = ()) -> str:
    """The sentence for a hyper-parameter that an algorithm does not have.

    Args:
        agent: the algorithm.
        name: what was asked for.
        options: what else may have been meant.
    """
    names, algorithm = field_names(agent.Config), name_of(agent)
    hint = hint_of(name, (*names, *options), algorithm)
    inside = [each for each in synonyms(name) if "." in each]
    if inside and "model" in agent.uses and not {*names} & {*synonyms(name)}:
        hint = f"; did you mean {_as_argument(inside[0])}?"
    all_of_them = names_or_help(names, f"`rlbook train {algorithm} --help`")
    return f"{algorithm} has no hyper-parameter {name!r}{hint}{all_of_them}"


def _as_argument(path: str) -> str:
    """The Python form of `model.adapter.r` or `env.reward`."""
    place, *keys = path.split(".")
    value = "…"
    for key in reversed(keys):
        value = f"{{{key!r}: {value}}}"
    return f"{'env_kwargs' if place == 'env' else place}={value}"
