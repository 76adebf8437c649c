"""What a name of Stable-Baselines3, CleanRL or Spinning Up is here, where it is neither a
hyper-parameter nor an option."""

from __future__ import annotations

OF_A_RUN = {
    "get_parameters": "the weights are run.agent.state_dict()",
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
    "logger": "its numbers are run.metrics",
    "set_logger": 'rlbook.train(…, track="tensorboard") logs there, and run.metrics has the numbers',
    "set_random_seed": "rlbook.train(…, seed=1) seeds all that is random",
    "num_timesteps": "its steps are run.steps",
}
"""Attributes of a run."""
OF_THE_PACKAGE = {
    "evaluate_policy": "rlbook.evaluate(run, episodes=10)",
    "make_vec_env": 'rlbook.train("ppo", "CartPole-v1", num_envs=4) makes them',
    "VecNormalize": "rlbook.train(…, normalize_observation=True, normalize_reward=True)",
    "Monitor": "returns and lengths are always recorded: run.episode_returns, run.episode_lengths",
    "EvalCallback": "rlbook.train(…, eval_every=1000, eval_episodes=5, out=folder) evaluates and"
    ' keeps the best, which rlbook.load(folder, checkpoint="best") reads',
    "CheckpointCallback": "rlbook.train(…, out=folder) writes checkpoints",
    "StopTrainingOnRewardThreshold": "rlbook.train(…, stop_at_return=475)",
    "BaseCallback": "any object with on_report, on_episode or on_evaluation is a callback",
    "ActorCriticPolicy": 'rlbook.train(…, model={"network": MyFeatures})',
    "BaseFeaturesExtractor": 'rlbook.train(…, model={"network": MyFeatures})',
    "NormalActionNoise": "rlbook.train(…, exploration_noise=0.1)",
    "configure": 'rlbook.train(…, track="tensorboard", out=folder)',
    "RecurrentPPO": 'rlbook.train("ppo", …, recurrent="lstm")',
    "MaskablePPO": 'rlbook.train("ppo", …) reads an action mask where the environment shows one',
    "HerReplayBuffer": "hindsight experience replay is not part of rlbook",
    "tune": "it is a command: rlbook tune ppo CartPole-v1 --trials 20",
}
"""Names that are imported from their modules."""
