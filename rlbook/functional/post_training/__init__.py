"""Equations of post-training: preference losses, distillation, rewards from judges and from
confidence, and pass@k."""
