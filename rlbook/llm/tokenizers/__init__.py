"""From texts to token ids: vocabularies, chat templates, and which tokens the assistant writes."""
