"""From text to token ids: characters, words and byte-pair encoding, n-gram models and word vectors,
chat templates, and masks of the assistant's tokens. Models of whole texts are in `models`."""
