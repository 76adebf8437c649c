"""From text to token ids: vocabularies, chat templates, and masks of the assistant's tokens."""
