"""The commands for language models: import, export, serve, synthesize, and evaluating a judge."""
