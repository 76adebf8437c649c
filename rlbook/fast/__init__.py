"""Code that exists only for speed. The table below maps each function to the form that replaces it,
and each loss to its written-out gradient; a test holds each equal to what it replaces."""

FORMS = {
    "rlbook.algorithms.planning.search.mcts:grow": "rlbook.fast.tabular.table_search:grow_tree",
    "rlbook.algorithms.planning.modified_policy_iteration:ModifiedPolicyIteration._sweep": (
        "rlbook.fast.tabular.planning:modified_policy_iteration_sweep"
    ),
    "rlbook.algorithms.planning.policy_evaluation:PolicyEvaluation._sweep": (
        "rlbook.fast.tabular.planning:policy_evaluation_sweep"
    ),
    "rlbook.algorithms.planning.value_iteration:ValueIteration._sweep": (
        "rlbook.fast.tabular.planning:value_iteration_sweep"
    ),
    "rlbook.algorithms.policy.off_policy.sac:sac_update": "rlbook.fast.sac_step:update",
    "rlbook.functional.policy_losses:clipped_surrogate_loss": (
        "rlbook.fast.losses:clipped_surrogate_loss"
    ),
    "rlbook.interaction.vector_envs.sync_vector:SyncVector.advance": (
        "rlbook.fast.cart_pole:advance"
    ),
    "rlbook.llm.generation.running_batch:running_batch": "rlbook.fast.llama_batch:start_batch",
    "rlbook.llm.models.causal_lm:decoder": "rlbook.fast.decoders:decoder",
    "rlbook.llm.models.causal_lm:hidden_states": "rlbook.fast.llama:hidden_states",
    "rlbook.llm.models.causal_lm:logits": "rlbook.fast.llama:logits",
    "rlbook.llm.models.packing:packed_logits": "rlbook.fast.llama:packed_logits",
    "rlbook.networks.mlp:MLP.forward": "rlbook.fast.mlp:forward",
    "rlbook.networks.mlp:apply_networks": "rlbook.fast.mlp:apply_networks",
    "rlbook.networks.mlp:apply_two_heads": "rlbook.fast.mlp:apply_two_heads",
    "rlbook.networks.noisy_linear:apply_layers": "rlbook.fast.mlp:apply_layers",
    "rlbook.networks.optimizer:adam": "rlbook.fast.flat_adam:adam",
    "rlbook.networks.optimizer:gradient_step": "rlbook.fast.gradient_step:gradient_step",
    "rlbook.networks.optimizer:rmsprop": "rlbook.fast.flat_adam:rmsprop",
    "rlbook.networks.recurrent:RecurrentCore.forward": "rlbook.fast.recurrent:forward",
}
"""Plain function → fast form with the same signature."""

GRADIENTS = {
    "rlbook.algorithms.policy.a2c:a2c_loss": "rlbook.fast.a2c_step:step",
    "rlbook.algorithms.policy.ppo:ppo_loss": "rlbook.fast.ppo_step:step",
    "rlbook.algorithms.value.dqn:dqn_loss": "rlbook.fast.dqn_step:step",
}
"""Loss → a gradient step on it: `step(optimizer, batch, max_grad_norm, *args, **kwargs)`, where the
loss is `loss(*args, batch, **kwargs)`; it returns the diagnostics, or None, without any change, if
it cannot guarantee the same result."""
